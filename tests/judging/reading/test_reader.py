"""Who reads criteria in words: the criterion itself, a stored reading, one blind request per call, or nobody."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, Task, TaskResult, Verdict
from delegate.batch.sources import TaskFile
from delegate.batch.templates import Templates
from delegate.cli.input.taskfile import read_task
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types import CriterionReading, Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Tool
from tests.support.words import Child, asked_ids, is_judge, met_by

SENT = {"about": "deed", "tools": ["send"], "names": ["ann@example.com"]}
MAIL = "Ann got the mail at ann@example.com"


async def _sent(args: Any) -> str:
    return json.dumps({"id": "m-1", "to": args["to"]})


SEND = Tool("send", "Send a mail.", {"type": "object", "properties": {"to": {"type": "string"}}}, _sent)
CHILD: Child = [Scripted.call("send", to="ann@example.com"), "I wrote to Ann, see m-1."]


def client(reading: Any, child: Child = CHILD, quote: str = "ann@example.com") -> Scripted:
    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return met_by(quote)(request)
        if callable(child):
            return child(request)
        return child[sum(message.role == "assistant" for message in request.messages)]

    return Scripted(answer, reading=reading)


async def results_of(model: Scripted, *tasks: dict[str, Any], **options: Any) -> list[TaskResult]:
    async with Delegator(client=model, tools=[SEND], **options) as delegator:
        result = await delegator.call({"tasks": list(tasks)})
    assert result.error is None, result.error
    return list(result.results)


async def verdict_on(model: Scripted, goal: str, *criteria: Any, **options: Any) -> Verdict:
    (result,) = await results_of(model, {"goal": goal, "acceptance_criteria": list(criteria)}, **options)
    assert result.verdict
    return result.verdict


def reading_in(verdict: Verdict) -> CriterionReading:
    """How the first criterion was read."""
    reading = verdict.criteria[0].reading
    assert reading
    return reading


async def test_one_request_reads_all_criteria_of_a_call_and_sees_no_childs_text(home: Path) -> None:
    model = client({"c1": SENT, "c2": "report"})
    task = {"goal": "mail Ann (ann@example.com)", "acceptance_criteria": [MAIL, "names the message"]}
    other = {"goal": "again", "acceptance_criteria": ["report: it names m-1"]}
    results = await results_of(model, task, {**task, "goal": "mail Ann again (ann@example.com)"}, other)
    assert [len(result.verdict.criteria) for result in results if result.verdict] == [2, 2, 1]
    (request,) = model.readings
    text = request.messages[0].text
    assert text.endswith("Read each of these ids exactly once: 1.c1, 1.c2, 2.c1, 2.c2")
    assert "I wrote to Ann" not in text
    assert "send (?): Send a mail." in text
    assert not request.tools


async def test_the_reading_is_on_the_verdict_and_says_what_proves_the_criterion(home: Path) -> None:
    (result,) = await results_of(client({"c1": SENT}), {"goal": "mail Ann", "acceptance_criteria": [MAIL]})
    assert result.verdict
    (one,) = result.verdict.criteria
    assert one.reading
    assert str(one.reading) == "read as deed, by `send` with ann@example.com"
    assert (one.reading.by, one.source, one.evidence) == ("model", "receipt:1", "ann@example.com")
    assert result.verdict.reading_version.startswith("sha256:")
    async with Delegator(client=Scripted([]), tools=[SEND]) as delegator:
        record = await delegator.records.read(result.handle or "")
    assert record
    assert record["result"]["verdict"]["criteria"][0]["reading"]["parts"][0]["tools"] == ["send"]


@pytest.mark.parametrize(
    "criterion",
    [
        "report: it names m-1",
        "file notes.md: it names m-1",
        {"kind": "text", "text": "names m-1", "about": "report"},
        {"kind": "question", "question": "Does it name m-1?", "about": "report"},
        {"kind": "regex", "pattern": "m-1"},
        {"kind": "rubric", "rubric": "research_report"},
    ],
    ids=str,
)
async def test_a_criterion_that_says_what_it_is_about_costs_no_model_call(criterion: Any, home: Path) -> None:
    model = client({})
    await verdict_on(model, "mail Ann", criterion)
    assert model.readings == []


async def test_of_a_deed_that_says_so_itself_a_model_says_which_calls_would_prove_it(home: Path) -> None:
    deed = {"about": "deed", "tools": ["send"], "names": ["Ann Lee"]}
    in_parts = [{"about": "report", "text": "Ann Lee"}, {**deed, "text": "was told"}]
    for n, reading in enumerate((deed, in_parts, {"about": "report"}, {"about": "absence", "tools": ["send"]})):
        model = client({"c1": reading})
        read = reading_in(await verdict_on(model, f"mail Ann Lee, {n}", "deed: Ann Lee was told"))
        assert len(model.readings) == 1
        # The criterion's own word stands: of a reading that contradicts it, only what proves the deed is used.
        is_used = reading in (deed, in_parts)
        assert [(part.about, part.tools) for part in read.parts] == [("deed", ("send",) if is_used else ())]
        assert read.by == ("model" if is_used else "parent")


async def test_who_says_report_for_a_deed_has_said_it_and_the_parent_reads_that(home: Path) -> None:
    model = client({}, quote="I wrote to Ann")
    async with Delegator(client=model, tools=[SEND]) as delegator:
        text = await delegator.answer({"goal": "mail Ann", "acceptance_criteria": ["report: Ann got the mail"]})
    assert "1 of 1 PASS" in text
    assert "; the criterion is about report" in text


async def test_the_same_criterion_goal_and_tools_are_read_once_also_by_another_process(home: Path) -> None:
    task = {"goal": "mail Ann", "acceptance_criteria": [MAIL]}
    first, second = client({"c1": SENT}), client({"c1": "report"})
    async with Delegator(client=first, tools=[SEND]) as delegator:
        for _ in range(2):
            await delegator.call(task)
    assert len(first.readings) == 1
    assert reading_in(await verdict_on(second, "mail Ann", MAIL)).by == "stored"
    assert second.readings == []
    await verdict_on(second, "mail Ann today", MAIL)
    assert len(second.readings) == 1, "another goal"


def says_nothing(request: ChatRequest) -> str:
    return "{}"


def unreachable(request: ChatRequest) -> str:
    raise ProviderError("connection", "no route", provider="x", final=True)


def read_as(*criteria: dict[str, Any]) -> str:
    return json.dumps({"criteria": criteria, "effects": []})


def _read(id: str, **fields: Any) -> dict[str, Any]:
    lists: dict[str, Any] = {"files": [], "tools": [], "names": [], "allowed": []}
    part = {"text": "x", "about": "report", **lists, "claim": False, "whole": False, **fields}
    return {"id": id, "parts": [part]}


@pytest.mark.parametrize(
    "reading",
    [
        unreachable,
        "it is about the report",
        read_as(),
        read_as({"id": "1.c1", "parts": []}),
        read_as(_read("1.c1"), _read("1.c1")),
        read_as(_read("1.c1"), _read("9.c9")),
        read_as(_read("1.c1", about="world")),
        ChatReply(read_as(_read("1.c1")), "length", Usage()),
    ],
    ids=["unreachable", "prose", "nothing", "no part", "twice", "not asked", "unknown word", "cut off"],
)
async def test_what_nobody_read_is_a_deed_and_never_an_error_of_the_call(reading: Any, home: Path) -> None:
    reply = reading
    reading = reply if callable(reply) else lambda request: reply  # type: ignore[misc]
    said = await verdict_on(client(reading, quote="I wrote to Ann"), "mail Ann", MAIL)
    assert (said.verdict, said.code) == ("FAIL", "self_report_only")
    assert str(reading_in(said)) == "not read, so deed"
    why = "that depends on what the criterion is about, which no model could read; begin it with `report: `"
    assert f"what would show it: {why}" in said.criteria[0].reason
    assert str(await verdict_on(client(reading), "mail Ann again", MAIL)) == "PASS (trusted: c1)"


@pytest.mark.parametrize("reading", [unreachable, says_nothing])
@pytest.mark.parametrize(
    ("criterion", "path", "quote", "said"),
    [
        ("note.txt greets the reader", "note.txt", "hello dear reader", "PASS (trusted: c1)"),
        ("`note.txt`に挨拶がある", "out/note.txt", "hello dear reader", "PASS (trusted: c1)"),
        ("out/note.txt greets the reader.", "out/note.txt", "hello dear reader", "PASS (trusted: c1)"),
        ("the note greets the reader", "note.txt", "hello dear reader", "doesn't show that it was done"),
        ("order A-17 was refunded", "A-17", "hello dear reader", "doesn't show that it was done"),
        ("https://shop.example/note.txt greets", "note.txt", "hello dear reader", "doesn't show that it was done"),
        ("note.txt says hello, reader", "note.txt", "hello reader says note.txt", "only repeats the criterion"),
        ("note.txt greets the reader", "note.txt", "I wrote a greeting", "only the report says so"),
        ("note.txt greets the reader", "note.txt", "wrote 18 bytes", "write_file only writes files"),
    ],
)
async def test_what_nobody_read_is_believed_of_a_file_only_if_it_names_that_file(
    reading: Any, criterion: str, path: str, quote: str, said: str
) -> None:
    text = f"{quote if 'hello' in quote else 'hello dear reader'}\n"
    child = [Scripted.call("write_file", path=path, content=text), "I wrote a greeting."]
    async with Delegator(client=client(reading, child, quote)) as delegator:
        run = await delegator.run(Task(goal="Greet.", acceptance_criteria=(criterion,)))  # type: ignore[arg-type]
    verdict = run.results[0].verdict
    assert verdict
    assert said in str(verdict)
    assert verdict.criteria[0].code == ("not_read" if verdict.verdict == "PASS" else "self_report_only")


async def test_code_keeps_only_literals_of_the_task_and_tools_that_exist(home: Path) -> None:
    invented = {**SENT, "tools": ["send", "teleport"], "names": ["ann@example.com", "bob@example.com", "2026-05-03"]}
    (part,) = reading_in(await verdict_on(client({"c1": invented}), "mail Ann by 3 May 2026", MAIL)).parts
    assert (part.tools, part.names) == (("send",), ("ann@example.com", "2026-05-03"))


async def test_parts_that_leave_something_out_do_not_stand_for_the_criterion(home: Path) -> None:
    two = [
        {"about": "report", "text": "the answer names Ann"},
        {"about": "deed", "text": "the invoice was paid in full"},
    ]
    half = [two[0], {**two[0], "text": "names Ann"}]
    asked = "x", "The answer names Ann, and the invoice was paid in full"
    assert len(reading_in(await verdict_on(client({"c1": two}), *asked, home=home / "a")).parts) == 2
    lacking = await verdict_on(client({"c1": half}), *asked, home=home / "b")
    assert str(reading_in(lacking)) == "not read, so deed"


async def test_each_part_needs_its_own_proof_and_the_judge_answers_each(home: Path) -> None:
    parts = [{"about": "report", "text": "the answer names Ann"}, {**SENT, "text": "and the mail was sent"}]
    asked: list[list[str]] = []

    def answer(request: ChatRequest) -> ChatReply | str:
        if not is_judge(request):
            return "I wrote to Ann: done."
        asked.append(asked_ids(request))
        return judge_reply(**{"c1.1": ("met", "I wrote to Ann"), "c1.2": ("met", "I wrote to Ann")})

    model = Scripted(answer, reading={"c1": parts})
    verdict = await verdict_on(model, "mail ann@example.com", "The answer names Ann and the mail was sent")
    assert asked == [["c1.1", "c1.2"]]
    (one,) = verdict.criteria
    assert (one.outcome, one.code) == ("not_met", "self_report_only")
    assert [part.outcome for part in one.parts] == ["met", "not_met"]
    assert "a successful call of `send` with 'ann@example.com'" in one.reason


async def test_the_request_runs_beside_the_child_and_the_verdict_waits_for_it(home: Path) -> None:
    order: list[str] = []
    child_is_done, model_was_asked = asyncio.Event(), asyncio.Event()

    async def read(request: ChatRequest) -> str:
        order.append("reading")
        model_was_asked.set()
        await child_is_done.wait()
        return json.dumps({"criteria": [_read("1.c1")], "effects": []})

    async def answer(request: ChatRequest) -> str:
        if is_judge(request):
            order.append("judge")
            return judge_reply(c1=("met", "I did my part"))
        await model_was_asked.wait()
        order.append("child")
        child_is_done.set()
        return "I did my part"

    verdict = await verdict_on(Scripted(answer, reading=read), "x", "says who did it")  # type: ignore[arg-type]
    assert (verdict.verdict, order) == ("PASS", ["reading", "child", "judge"])


async def test_its_cost_is_verifications_and_on_the_first_verdict_of_the_call(home: Path) -> None:
    task = {"goal": "mail Ann", "acceptance_criteria": ["names m-1"]}
    results = await results_of(client({}, quote="I wrote to Ann"), task, {**task, "goal": "mail Ann, too"})
    records = [result.verdict.judge for result in results if result.verdict and result.verdict.judge]
    second, first = sorted(records, key=lambda record: len(record.attempts))
    assert [attempt.purpose for attempt in second.attempts] == ["judging"]
    assert [attempt.purpose for attempt in first.attempts] == ["reading", "judging"]
    assert first.usage.model_calls == 2


async def test_a_verdict_that_needs_no_reading_stops_the_request_and_pays_what_was_sent(home: Path) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def read(request: ChatRequest) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async def answer(request: ChatRequest) -> str:
        await started.wait()
        return "I did nothing"

    model = Scripted(answer, reading=read)  # type: ignore[arg-type]
    verdict = await verdict_on(model, "x", "names m-1", {"kind": "regex", "pattern": "m-1"})
    assert stopped.is_set()
    assert (verdict.verdict, verdict.decided_by) == ("FAIL", "check")
    assert verdict.judge
    assert [(one.purpose, one.fault) for one in verdict.judge.attempts] == [("reading", "timeout")]


async def test_a_batch_reads_its_template_once_and_fills_in_the_rows(home: Path, tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("to\n" + "".join(f"p{n}@example.com\n" for n in range(12)))
    templates = Templates(goal="Send a mail to {to} today.", criteria=("The mail went to {to}",))

    def child(request: ChatRequest) -> ChatReply | str:
        to = request.messages[0].text.split()[4]
        if request.messages[-1].role == "tool":
            return "Done, as asked."
        return Scripted.call("send", to=to if to != "p7@example.com" else "someone@example.com")

    model = client({"c1": {**SENT, "names": ["{to}"]}}, child, quote="m-1")
    async with Delegator(client=model, tools=[SEND]) as delegator:
        batch = delegator.batches.run(TaskFile(table, read_task, templates))
        outcomes = [outcome async for outcome in batch]
    assert len(model.readings) == 1
    assert "{to}" in model.readings[0].messages[0].text
    failed = [one.input["to"] for one in outcomes if not one.passed]
    assert failed == ["p7@example.com"]


async def test_the_child_is_told_what_shows_a_criterion_where_that_is_known(home: Path) -> None:
    model = client({})
    await verdict_on(model, "mail Ann", "deed: the mail went out", "report: it names m-1", "says more")
    system = next(request.system for request in model.requests if not is_judge(request))
    assert "- c1: the mail went out [shown by your calls; where a tool can show what came of them" in system
    assert "- c2: it names m-1 [shown by your report]" in system
    assert "- c3: says more\n" in system


@pytest.mark.parametrize("about", ["world", 7, {"path": "x"}])
async def test_about_with_another_value_is_refused_with_what_is_allowed(about: Any, home: Path) -> None:
    async with Delegator(client=Scripted(lambda request: "never asked")) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.judge(
                goal="x", acceptance_criteria=[{"kind": "text", "text": "x", "about": about}], report="y"
            )
    assert "about" in str(refused.value.field)


@pytest.mark.parametrize("criterion", ["file ../other.md: it names m-1", "file /etc/passwd: it has a root"])
async def test_a_file_outside_the_workspace_is_refused_before_anything_is_spent(criterion: str, home: Path) -> None:
    model = client({})
    async with Delegator(client=model) as delegator:
        result = await delegator.call({"goal": "x", "acceptance_criteria": [criterion]})
    assert result.error
    assert (result.error.code, result.error.field) == ("path_refused", "acceptance_criteria[0]")
    assert (model.requests, model.readings) == ([], [])


def test_a_shell_criterion_in_python_is_a_shell_criterion() -> None:
    task = Task(goal="x", acceptance_criteria=["SHELL: python3 -m unittest -q", "Shell: make", "plain"])
    assert [one.kind for one in task.acceptance_criteria] == ["shell", "shell", "text"]
    with pytest.raises(CallError, match="shel"):
        Task(goal="x", acceptance_criteria=["shel: make"])
