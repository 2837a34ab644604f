"""Goal mode from the outside: what a refused child is told, what counts as verified, and what a claim costs."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delegate import Cancellation, ChildRun, Delegator, Job, Task, TaskResult, Tool
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types.errors import CallError, ProviderError
from delegate.types.events import Event, as_json
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import Child, asked_ids, met_by, words
from tests.types.test_events import misfits

FILE = {"kind": "file", "path": "a.txt", "contains": "hello"}
call = Scripted.call
WORK = call("write_file", path="a.txt", content="hello")


def claim(rationale: str = "I did it.") -> ChatReply:
    return call("claim_complete", rationale=rationale)


async def run(client: Scripted, *criteria: Any, **fields: Any) -> TaskResult:
    task = Task(goal="Write a.txt.", acceptance_criteria=criteria or (FILE,), mode="goal", **fields)
    async with Delegator(client=client, commands="allow") as delegator:
        result = await delegator.run(task)
    return result.results[0]


def told(client: Scripted, n: int) -> str:
    """The last tool result in the request `n` of a client."""
    return client.requests[n].messages[-1].tool_replies[-1].text


# ---------------------------------------------------------------------------------------------- what the child reads


async def test_a_refused_child_is_told_what_failed_with_the_last_lines_of_its_check() -> None:
    check = {"kind": "shell", "command": "echo one; echo two; test -f a.txt"}
    client = words([claim(), WORK, claim("Now it is there.")])
    result = await run(client, check, {"kind": "regex", "pattern": "there"})
    assert result.goal_end == "verified"
    text = told(client, 1)
    assert "Verification failed: 2 of 2 criteria." in text
    assert "- c1 (not met): `echo one; echo two; test -f a.txt` exits with 0" in text
    assert "    one\n    two\n" in text
    assert "This was claim 1 of 3." in text
    assert [message.role for message in client.requests[2].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


async def test_a_refused_child_reads_neither_the_judges_prompt_nor_its_quotes() -> None:
    def judge(request: ChatRequest) -> str:
        return judge_reply(**dict.fromkeys(asked_ids(request), ("not_met", "a secret of another task")))

    client = words([claim(), call("abort_with_report", reason="no", learned="")], judge)
    result = await run(client, "report: the report names a number")
    question = next(request for request in client.requests if request.reply_schema is not None)
    text = told(client, 2)
    assert (result.goal_end, result.claims[0].code) == ("aborted", "not_met")
    assert "The judge says not_met." in text
    assert "a secret of another task" not in text
    assert question.system[:200] not in text
    assert question.messages[0].text[:200] not in text


async def test_what_a_check_prints_is_cleaned_and_framed_before_a_child_reads_it() -> None:
    check = {"kind": "shell", "command": "printf '\\033[31m<<<end 1>>> \\342\\200\\256 hidden\\n'; exit 1"}
    client = words([claim(), call("abort_with_report", reason="no", learned="")])
    await run(client, check)
    text = told(client, 1)
    first, last = text.splitlines()[0], text.splitlines()[-1]
    assert first.startswith("<<<")
    assert first.removeprefix("<<<").split()[0] + ">>>" == last
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<<<end" not in text


async def test_a_child_in_goal_mode_has_two_more_tools_and_may_claim_in_its_last_turn() -> None:
    client = words([WORK, claim()])
    result = await run(client, max_steps=2)
    assert (result.goal_end, result.status) == ("verified", "completed")
    names = [tool.name for tool in client.requests[0].tools]
    assert names[-2:] == ["claim_complete", "abort_with_report"]
    assert client.requests[1].tool_choice == "auto"
    assert "One turn is left" in told(client, 1)
    assert "You may claim 3 times." in client.requests[0].system


async def test_a_claim_in_a_turn_waits_for_its_other_tools() -> None:
    wrote = ("write_file", {"path": "a.txt", "content": "hello"})
    both = Scripted.calls(("claim_complete", {"rationale": "I did it."}), wrote)
    result = await run(words([both]))
    assert [one.code for one in result.claims] == ["met"]
    assert result.receipts.total == 1, "a claim has no receipt"


# ------------------------------------------------------------------------------------------------ what is verified


async def test_a_pass_that_rests_on_the_childs_own_tests_is_not_verified() -> None:
    client = words([call("write_file", path="test_own.sh", content="true"), claim("a"), claim("b")])
    result = await run(client, {"kind": "shell", "command": "sh test_own.sh"}, max_claims=2)
    assert result.verdict
    assert (result.goal_end, result.verdict.verdict, result.verdict.code) == ("budget_limited", "FAIL", "not_verified")
    assert "own_tests_only" in told(client, 2)


@pytest.mark.parametrize("mode", ["copy", "shared"])
async def test_what_a_check_wrote_for_an_earlier_claim_is_not_the_childs_work(mode: str, tmp_path: Path) -> None:
    writes = {"kind": "shell", "command": "echo built > out.txt; grep -q hello a.txt"}
    client = words([claim("a"), WORK, claim("b"), call("write_file", path="out.txt", content="mine"), claim("c")])
    (tmp_path / "project").mkdir()
    workspace = {"mode": mode, "path": tmp_path / "project"}
    result = await run(client, writes, {"kind": "file", "path": "./out.txt"}, workspace=workspace)
    assert [one.code for one in result.claims] == ["not_met", "not_met", "met"]


async def test_a_check_does_not_pass_on_what_its_first_run_left() -> None:
    once = {"kind": "shell", "command": "mkdir -p d; test -f d/seen && exit 0; touch d/seen; exit 1"}
    client = words([claim("a"), claim("b"), WORK, claim("c")])
    result = await run(client, once)
    assert (result.goal_end, [one.code for one in result.claims]) == ("budget_limited", ["not_met"] * 3)
    assert [one.path for one in result.artifacts] == ["a.txt"]


async def test_what_was_there_before_stays_though_a_check_changes_it(tmp_path: Path) -> None:
    (tmp_path / "count.txt").write_text("0")
    check = {"kind": "shell", "command": "test -f count.txt || exit 9; echo 1 >> count.txt; test -f a.txt"}
    result = await run(words([claim("a"), WORK, claim("b")]), check, workspace={"mode": "copy", "path": tmp_path})
    assert [one.code for one in result.claims] == ["not_met", "met"]


async def test_what_is_taken_over_is_what_was_judged_and_not_what_checks_left(home: Path, tmp_path: Path) -> None:
    git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    subprocess.run(git, shell=True, cwd=tmp_path, check=True)
    check = {"kind": "shell", "command": "echo built > out.txt; test -f a.txt"}
    workspace = {"mode": "worktree", "path": tmp_path}
    result = await run(words([claim("a"), WORK, claim("b")]), check, workspace=workspace)
    assert result.goal_end == "verified"
    (diff,) = (home / "workspaces").glob("*.diff")
    assert "b/a.txt" in diff.read_text()
    assert "out.txt" not in diff.read_text()
    assert [one.path for one in result.artifacts] == ["a.txt"]


async def test_what_a_child_changed_of_a_checks_files_is_its_own_and_stays() -> None:
    check = {"kind": "shell", "command": "grep -q mine out.txt && exit 0; echo built > out.txt; exit 1"}
    client = words([claim("a"), call("write_file", path="out.txt", content="mine"), claim("b")])
    assert (await run(client, check)).goal_end == "verified"


CALC = "def add(a, b): return a + b\n"
HELD = {"kind": "shell", "command": "grep -q 'a + b' calc.py"}
SAYS = {"about": "report", "claim": True}


async def on_calc(child: Child, *criteria: Any, folder: Path, judge: Any = "{}", reading: Any = None) -> TaskResult:
    """A goal in a folder in which `HELD` succeeds before the child does anything."""
    (folder / "calc.py").write_text(CALC)
    task = Task(
        goal="Fix add() in calc.py, and note it in notes.md.",
        acceptance_criteria=criteria,
        mode="goal",
        workspace={"mode": "copy", "path": folder},
    )
    async with Delegator(client=words(child, judge, reading=reading), commands="allow") as delegator:
        return (await delegator.run(task)).results[0]


GIVE_UP = call("abort_with_report", reason="no", learned="")


async def test_what_held_before_the_child_began_is_no_goal_that_it_reached(tmp_path: Path) -> None:
    client = [claim("It is fixed."), claim("It is fixed, really."), GIVE_UP]
    result = await on_calc(client, HELD, folder=tmp_path)
    assert (result.goal_end, [one.code for one in result.claims]) == ("aborted", ["not_verified"] * 2)
    assert result.claims[0].refused[0].held_before
    assert "held before it began" in result.claims[0].reasoning


async def test_a_check_that_held_before_and_still_holds_does_not_keep_work_from_being_verified(tmp_path: Path) -> None:
    child = [call("write_file", path="notes.md", content="It was right."), claim("I looked.")]
    result = await on_calc(child, HELD, {"kind": "file", "path": "notes.md"}, folder=tmp_path)
    assert result.goal_end == "verified"


async def test_where_a_criterion_asks_only_for_a_claim_that_is_enough() -> None:
    reading = {"c1": SAYS}
    result = await run(words([claim("add() is right.")], met_by("add() is right"), reading=reading), "says it is right")
    assert result.verdict
    assert (result.goal_end, result.verdict.level) == ("verified", "said")


@pytest.mark.parametrize(
    ("criteria", "problem"),
    [
        ([], "needs acceptance_criteria"),
        ([{"kind": "manual", "text": "it is pretty"}], "can't verify the manual criterion c1"),
        ([{**FILE, "findings_only": True}], "needs acceptance_criteria"),
    ],
)
def test_a_goal_that_cannot_be_verified_is_refused(criteria: list[Any], problem: str) -> None:
    with pytest.raises(CallError, match=problem):
        Task(goal="x", acceptance_criteria=criteria, mode="goal")


async def test_a_model_cannot_ask_for_goal_mode() -> None:
    async with Delegator(client=Scripted([])) as delegator:
        for fields in ({"mode": "goal"}, {"max_claims": 9}):
            result = await delegator.call({"goal": "x", "acceptance_criteria": ["y"], **fields})
            assert result.error
            assert (result.error.code, result.error.field) == ("unknown_field", *fields)
            assert "set by the operator" in (result.error.hint or "")


async def test_goal_mode_needs_a_runner_that_can_make_claims() -> None:
    async def child(job: Job) -> str:
        return "done"

    async with Delegator(runner=child) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.run(Task(goal="x", acceptance_criteria=[FILE], mode="goal"))
    assert (refused.value.code, refused.value.field) == ("no_goal_mode", "mode")


# -------------------------------------------------------------------------------- what a judge refused stays refused


class _Judge:
    """Refuses each criterion the first time that it is asked about it, and finds it met from then on."""

    def __init__(self, first: str = "not_met", **quotes: str) -> None:
        self.asked: list[list[str]] = []
        self._first, self._quotes = first, quotes

    def __call__(self, request: ChatRequest) -> str:
        before = {id for ids in self.asked for id in ids}
        self.asked.append(asked_ids(request))
        said = {id: "met" if id in before else self._first for id in self.asked[-1]}
        return judge_reply(**{id: (word, self._quotes.get(id, "hello")) for id, word in said.items()})


TOUCH = call("write_file", path="zz.txt", content="1")
A_TXT = "file a.txt: greets the reader"
READ_AS_FILE = {"c1": {"about": "file", "files": ["a.txt"]}}


@pytest.mark.parametrize(
    ("criterion", "turns", "reading"),
    [
        (A_TXT, [WORK, claim("a"), claim("b")], {}),
        (A_TXT, [WORK, claim("a"), TOUCH, claim("b")], {}),
        (A_TXT, [WORK, claim("a"), call("run_shell", command="true # 1"), claim("b")], {}),
        (A_TXT, [WORK, claim("a"), WORK, claim("b")], {}),
        ("report: it says hello", [claim("hello"), claim("hello.")], {}),
        ("report: it says hello", [claim("hello you"), TOUCH, claim("**hello**\n\n- you")], {}),
        ("the reader is greeted", [WORK, claim("a"), TOUCH, claim("b")], READ_AS_FILE),
        ({"kind": "question", "question": "Is it kind?"}, [WORK, claim("a"), TOUCH, claim("b")], READ_AS_FILE),
    ],
)
@pytest.mark.parametrize("first", ["not_met", "cannot_tell"])
async def test_who_only_claims_again_is_not_judged_again(criterion: Any, turns: Any, reading: Any, first: str) -> None:
    judge = _Judge(first)
    result = await run(words([*turns, GIVE_UP], judge, reading=reading), criterion)
    assert (result.goal_end, len(judge.asked)) == ("aborted", 1)
    assert [one.code for one in result.claims] == [first] * len(result.claims)
    assert len(result.claims) >= 2
    assert result.claims[-1].cost_usd == 0
    assert "was refused before, and what it is about" in result.claims[-1].refused[0].reason


async def test_other_calls_are_not_the_deed_that_was_refused() -> None:
    judge, reading = _Judge(c1="noted 2"), {"c1": {"about": "deed", "tools": ["note"]}}
    turns = [call("note", text="2"), claim("a"), call("other", text="3"), claim("b, in other words"), GIVE_UP]

    async def answer(arguments: Any) -> str:
        return f"noted {arguments['text']}"

    shape = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [Tool(name, "Keeps a text.", shape, answer, effects=frozenset({"external"})) for name in ("note", "other")]
    task = Task(goal="Note 2.", acceptance_criteria=["2 is noted"], mode="goal")
    async with Delegator(client=words(turns, judge, reading=reading), tools=tools) as delegator:
        (result,) = (await delegator.run(task)).results
    assert (result.goal_end, [one.code for one in result.claims]) == ("aborted", ["not_met", "not_met"])
    assert len(judge.asked) == 1


@pytest.mark.parametrize(
    ("criterion", "turns", "quote"),
    [
        (A_TXT, [WORK, claim("a"), call("write_file", path="a.txt", content="hello, you"), claim("b")], "hello, you"),
        ("file docs/*.md: greets", [call("write_file", path="docs/b.md", content="hello"), claim("a"),
                                    call("write_file", path="docs/c.md", content="hello"), claim("b")], "hello"),
        ("report: it says hello", [claim("It says hello."), claim("It says hello to you.")], "says hello to you"),
        ("report: the sum is -4", [claim("I say the sum is 4"), claim("I say the sum is -4")], "the sum is -4"),
    ],
)  # fmt: skip
async def test_changed_work_is_judged_again(criterion: str, turns: Any, quote: str) -> None:
    judge = _Judge(c1=quote)
    result = await run(words(turns, judge), criterion)
    assert (result.goal_end, len(judge.asked)) == ("verified", 2)


async def test_only_what_is_open_is_asked_again_and_the_rest_is_still_told() -> None:
    judge = _Judge(c1="hello", c2="good morning")
    other = call("write_file", path="b.txt", content="good morning, dear reader")
    turns = [WORK, claim("a"), other, claim("b"), call("write_file", path="a.txt", content="hello, you"), claim("c")]
    client = words(turns, judge)
    result = await run(client, A_TXT, "file b.txt: greets the reader")
    assert judge.asked == [["c1", "c2"], ["c2"], ["c1", "c2"]]
    assert result.goal_end == "verified"
    assert [[one.id for one in each.refused] for each in result.claims] == [["c1", "c2"], ["c1"], []]
    assert "what it is about (`a.txt`) hasn't changed since" in result.claims[1].refused[0].reason


async def test_checks_run_though_a_judge_need_not_be_asked_again_and_what_depends_on_it_waits() -> None:
    judge = _Judge()
    turns = [WORK, claim("a"), call("write_file", path="b.txt", content="x"), claim("b"), GIVE_UP]
    client = words(turns, judge)
    check = {"kind": "shell", "command": "test ! -e b.txt"}
    later = {"kind": "text", "text": "a.txt is short", "about": "a.txt", "depends_on": ["c1"]}
    result = await run(client, A_TXT, check, later)
    assert len(judge.asked) == 1
    assert [one.id for one in result.claims[1].refused] == ["c1", "c2"]
    assert "Not looked at, since others failed: c3" in told(client, -1)


async def test_where_a_judge_could_not_be_reached_nothing_was_refused() -> None:
    asked: list[ChatRequest] = []

    def judge(request: ChatRequest) -> str:
        asked.append(request)
        if len(asked) <= 3:
            raise ProviderError("bad_request", "down for a moment", provider="openai")
        return met_by("hello")(request)

    result = await run(words([WORK, claim("a"), claim("b")], judge), A_TXT)
    assert [one.code for one in result.claims] == ["judge_unavailable", "met"]


# --------------------------------------------------------------------------------------------- how it ends, and costs


async def test_an_abort_is_a_report_of_what_was_tried() -> None:
    result = await run(words([call("abort_with_report", reason="There is no compiler.", learned="gcc is missing.")]))
    assert (result.goal_end, result.status) == ("aborted", "failed")
    assert result.error
    assert (result.error.code, result.error.message) == ("aborted", "There is no compiler.")
    assert result.report == "There is no compiler.\n\nLearned: gcc is missing."
    assert result.verdict
    assert result.verdict.code == "run_failed"


async def test_a_claim_that_nobody_could_look_at_may_be_made_again() -> None:
    judged: list[ChatRequest] = []

    def judge(request: ChatRequest) -> str:
        judged.append(request)
        if len(judged) <= 3:
            raise ProviderError("bad_request", "down for a moment", provider="openai")
        return met_by("I counted 12")(request)

    client = words([claim("I counted 12."), claim("I counted 12.")], judge)
    result = await run(client, "report: the report has a number")
    assert [one.code for one in result.claims] == ["judge_unavailable", "met"]
    assert "which says nothing about the work" in told(client, -2)


async def test_the_judges_of_all_claims_are_part_of_the_cost() -> None:
    def judge(request: ChatRequest) -> str:
        return met_by("the number 12")(request)

    client = words([claim("I counted."), claim("It is the number 12.")], judge)
    task = Task(goal="Count.", acceptance_criteria=["report: the report has a number"], mode="goal")
    async with Delegator(client=client) as delegator:
        run = await delegator.run(task)
        record = await delegator.records.read(run.results[0].handle or "")
    (result,) = run.results
    assert record
    assert result.goal_end == "verified"
    assert all(one.cost_usd and one.usage.model_calls == 1 for one in result.claims)
    judging = sum(one.cost_usd or 0 for one in result.claims)
    own = sum(event["cost_usd"] for event in record["events"] if event["kind"] == "child.usage")
    assert result.cost_usd == pytest.approx(own + judging)
    assert run.totals.judge_cost_usd == pytest.approx(judging)
    assert run.totals.judge_usage.model_calls == 2


async def test_time_ends_a_goal_and_a_cancel_is_no_end_of_it() -> None:
    async def hang(request: ChatRequest) -> str:
        await asyncio.sleep(60)
        return ""

    result = await run(Scripted(hang), timeout_seconds=0.05)
    assert (result.goal_end, result.status) == ("budget_limited", "timeout")
    cancellation = Cancellation()

    def stop(event: Event) -> None:
        if event.kind == "claim.judged":
            cancellation.cancel()

    async with Delegator(client=words([claim(f"{n}") for n in range(9)]), on_event=stop) as delegator:
        task = Task(goal="x", acceptance_criteria=[FILE], mode="goal", max_claims=9)
        returned = await delegator.run(task, cancellation=cancellation)
    (result,) = returned.results
    assert (result.goal_end, result.status, result.claims[0].code) == (None, "cancelled", "not_met")
    assert result.verdict
    assert result.verdict.verdict == "FAIL"


async def test_a_runner_that_ends_without_a_claim_has_not_reached_the_goal() -> None:
    class Runner:
        needs_model, records_tools, makes_claims = False, True, True

        async def run(self, job: Job) -> ChildRun:
            (job.workspace / "a.txt").write_text("hello")
            return job.recorder.finish("completed", report="I wrote a.txt.")

    async with Delegator(runner=Runner(), gate=False) as delegator:
        (result,) = (await delegator.run(Task(goal="x", acceptance_criteria=[FILE], mode="goal"))).results
    assert result.error
    assert (result.good, result.goal_end, result.error.code) == (False, None, "bad_report")


async def test_others_may_run_while_a_claim_is_judged() -> None:
    second_runs = asyncio.Event()

    async def answer(request: ChatRequest) -> ChatReply | str:
        if request.reply_schema is not None:
            await second_runs.wait()
            return met_by("the number 12")(request)
        if request.messages[0].text == "second":
            second_runs.set()
            return "I am here."
        return claim("It is the number 12.")

    first = Task(goal="first", acceptance_criteria=["report: the report has a number"], mode="goal")
    async with Delegator(client=Scripted(answer), max_concurrent=1) as delegator:
        run = await delegator.run(first, Task(goal="second"))
    assert [result.status for result in run.results] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ([ChatReply("no", "refusal", claim().usage)], "refused"),
        ([Scripted.calls(*[("think", {"thought": "x"})] * 300)], "too_many_tool_calls"),
    ],
)
async def test_an_error_of_the_child_ends_a_goal_as_it_ends_any_task(child: Child, code: str) -> None:
    result = await run(words(child))
    assert result.error
    assert (result.goal_end, result.status, result.error.code) == (None, "failed", code)


async def test_the_events_of_a_claim_have_its_verdict_and_its_cost() -> None:
    events: list[Event] = []
    async with Delegator(client=words([claim("a"), WORK, claim("b")]), on_event=events.append) as delegator:
        await delegator.run(Task(goal="x", acceptance_criteria=[FILE], mode="goal"))
    made = [event for event in events if event.kind == "claim.made"]
    judged = [event for event in events if event.kind == "claim.judged"]
    assert [(event.rationale, event.n) for event in made] == [("a", 1), ("b", 2)]
    assert [(event.verdict, event.code) for event in judged] == [("FAIL", "not_met"), ("PASS", "met")]
    assert judged[0].refused[0]["id"] == "c1"
    assert misfits([as_json(event) for event in (*made, *judged)]) == []
