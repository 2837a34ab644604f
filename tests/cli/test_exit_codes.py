"""Exit code 3, "nobody could look", apart from 1, "the work is bad": in `judge`, `run`, `call` and `batch`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.batch.rows import lines
from tests.cli.command import delegate, openai_at, worker
from tests.support.model_server import Call, Fault, ModelServer, Reply

DENIED = Fault(status=401)
JUDGE = ("judge", "--goal", "x", "--report", "report.md", "-c", "report: the report greets")
RUN = ("run", "Write note.md", "--model", "gpt-6-luna")


def _answer(verdict: str) -> str:
    answer = {"id": "c1", "source": "report", "evidence": "hello", "reason": "It does.", "verdict": verdict}
    return json.dumps({"answers": [answer]})


@pytest.mark.parametrize(
    ("reply", "exit_code", "code"),
    [
        (Reply(_answer("met")), 0, "met"),
        (Reply(_answer("not_met")), 1, "not_met"),
        (Reply(_answer("cannot_tell")), 1, "cannot_tell"),
        (DENIED, 3, "judge_unavailable"),
        (Reply("The work is fine."), 3, "judge_unparseable"),
    ],
    ids=["met", "not met", "cannot tell", "no access", "no answer"],
)
def test_a_judge_that_could_not_decide_exits_with_3(reply: Reply | Fault, exit_code: int, code: str) -> None:
    Path("report.md").write_text("hello\n")
    with ModelServer(lambda call: reply) as server:
        done = delegate(*JUDGE, "--format", "json", **openai_at(server))
    assert (done.returncode, json.loads(done.stdout)["code"]) == (exit_code, code)


def test_bad_work_outweighs_what_nobody_could_look_at() -> None:
    Path("report.md").write_text("hello\n")
    alone = delegate(*JUDGE, "--receipts", "none.jsonl", "-c", "file: x")
    assert alone.returncode == 2, "a file that can't be read is invalid input"
    unseen = delegate(*JUDGE, "-c", "file: x")
    both = delegate(*JUDGE, "-c", "file: x", "-c", "regex: goodbye")
    assert (unseen.returncode, both.returncode) == (3, 1)


@pytest.mark.parametrize("command", ["run", "call"])
def test_a_child_without_access_exits_with_3(command: str) -> None:
    task = {"goal": "Write note.md", "acceptance_criteria": ["file note.md: the note greets the reader"]}
    arguments = (
        (*RUN, "-c", "file note.md: the note greets the reader") if command == "run" else ("call", json.dumps(task))
    )
    with ModelServer(lambda call: DENIED) as server:
        done = delegate(*arguments, **openai_at(server))
    assert done.returncode == 3, done.stdout
    assert "auth" in done.stdout


def test_a_child_whose_checks_may_not_run_here_exits_with_3() -> None:
    with ModelServer(worker()) as server:
        arguments = (*RUN, "-c", "shell: grep -q hello note.md")
        done = delegate(*arguments, DELEGATE_SANDBOX="off", **openai_at(server))
        both = delegate(*arguments, "-c", "file: other.md", DELEGATE_SANDBOX="off", **openai_at(server))
    assert done.returncode == 3, done.stdout
    assert "commands_not_allowed" in done.stdout
    assert both.returncode == 1


def test_a_budget_that_is_used_up_exits_with_3_and_too_many_turns_with_1() -> None:
    def endless(call: Call) -> Reply:
        turn = ("write_file", {"path": "note.md", "content": str(len(call.tool_results))})
        return Reply(tool_calls=(turn,), input_tokens=400_000, output_tokens=10)

    with ModelServer(endless) as server:
        poor = delegate(*RUN, "-c", "file: note.md", "--max-cost", "0.0001", **openai_at(server))
        slow = delegate(*RUN, "-c", "file: note.md", "--max-steps", "2", **openai_at(server))
    assert "✗ child   budget_exceeded" in poor.stdout
    assert "✗ child   max_steps" in slow.stdout
    assert (poor.returncode, slow.returncode) == (3, 1)


def _children(by_goal: dict[str, Reply | Fault]) -> Callable[[Call], Reply | Fault]:
    return lambda call: by_goal[call.texts[0].split("\n")[0]]


def test_a_batch_exits_with_3_only_if_no_work_is_bad() -> None:
    replies = {"good": Reply("hello"), "bad": Reply("goodbye"), "denied": DENIED}
    codes = {}
    with ModelServer(_children(replies)) as server:
        for names in (("good",), ("good", "denied"), ("bad", "denied"), ("denied",)):
            name = "-".join(names)
            tasks = [{"goal": one, "acceptance_criteria": [{"kind": "regex", "pattern": "hello"}]} for one in names]
            Path(f"{name}.json").write_text(json.dumps(tasks))
            done = delegate("batch", f"{name}.json", "-o", f"{name}.jsonl", **openai_at(server))
            codes[name] = done.returncode
    assert codes == {"good": 0, "good-denied": 3, "bad-denied": 1, "denied": 3}
    by_status = {row["status"]: row["code"] for row in lines(Path("good-denied.jsonl"))}
    assert by_status == {"completed": "met", "failed": "run_failed"}
