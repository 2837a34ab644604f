"""Tasks with steps: what a child may call in a step, what is on record, and what its end says."""

from typing import Any

import pytest

from delegate import CallError, Delegator, Task, TaskResult, Tool
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types.events import Event, as_json
from delegate.types.ports import ChatReply
from tests.support.words import asked_ids, words
from tests.types.test_events import misfits

call = Scripted.call
WRITE = call("write_file", path="a.txt", content="hello")
DONE = "I wrote a.txt."


def declare(*tools: str, goal: str = "Write a.txt") -> ChatReply:
    return call("declare_step", goal=goal, tools=list(tools), expected="a.txt says hello")


VERIFY = call("verify_step", outcome="a.txt says hello", held=True)


async def run(
    *turns: Any, asks: bool | None = None, task: dict[str, Any] | None = None, **options: Any
) -> tuple[TaskResult, Any, Any]:
    requests, events = list[Any](), list[Event]()

    async def person(request: Any) -> bool:
        requests.append(request)
        return bool(asks)

    client = turns[0] if isinstance(turns[0], Scripted) else words([*turns, DONE])
    on_approval = None if asks is None else person
    async with Delegator(client=client, on_event=events.append, on_approval=on_approval, **options) as delegator:
        result = await delegator.run(Task(goal="go", steps=True, **(task or {})))
    assert result.error is None, result.error
    assert misfits([as_json(event) for event in events]) == []
    return result.results[0], client, (requests, events)


def told(client: Scripted, n: int) -> str:
    return client.requests[n].messages[-1].tool_replies[-1].text


async def test_a_call_in_the_scope_of_a_step_needs_no_approval() -> None:
    result, client, (requests, events) = await run(declare("write_file"), WRITE, VERIFY, asks=False)
    assert (result.receipts.ok, result.receipts.denied, requests) == (3, 0, [])
    assert "called in its scope: write_file (ok)" in told(client, 3)
    names = [tool.name for tool in client.requests[0].tools]
    assert {"declare_step", "verify_step"} <= set(names)
    assert "call `declare_step`" in client.requests[0].system
    steps = [as_json(event) for event in events if event.kind.startswith("step.")]
    assert [one["kind"] for one in steps] == ["step.declared", "step.verified"]
    assert (steps[0]["tools"], steps[1]["called"], steps[1]["held"]) == (["write_file"], ["write_file (ok)"], True)


@pytest.mark.parametrize("before", [(), (declare("run_shell"),), (declare("write_file"), WRITE, VERIFY)])
async def test_a_call_outside_of_a_steps_scope_has_to_be_approved(before: tuple[ChatReply, ...]) -> None:
    outside = call("write_file", path="b.txt", content="x")
    for answer, denied in ((True, 0), (False, 1), (None, 1)):
        result, _, (requests, _) = await run(*before, outside, asks=answer)
        assert result.receipts.denied == denied
        assert [one.code for one in requests] == ([] if answer is None else ["outside_scope"])


async def test_tools_that_only_read_need_no_step() -> None:
    result, _, (requests, _) = await run(call("list_files"), call("search_files", pattern="x"), asks=False)
    assert (result.receipts.ok, requests) == (2, [])


async def test_what_a_step_expects_is_the_expected_outcome_of_its_calls() -> None:
    policy = {"no_expected_outcome": "deny"}
    result, _, _ = await run(declare("write_file"), WRITE, VERIFY, WRITE, policy=policy)
    assert (result.receipts.ok, result.receipts.denied) == (3, 1)


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        (declare("write_fil"), "did you mean write_file?"),
        (declare("*"), "there is no tool '*'; your tools are"),
        (declare(), "`tools` has to be a list"),
        (call("declare_step", goal="x", tools="write_file", expected="y"), "`tools` has to be a list"),
        (call("declare_step", goal="x", tools=[1], expected="y"), "`tools` has to be a list"),
        (call("declare_step", tools=["write_file"], expected="y"), "`goal` is missing"),
        (call("declare_step", goal="x", tools=["write_file"], expected=" "), "`expected` is missing"),
        (call("declare_step", goal="x" * 2_001, tools=["write_file"], expected="y"), "at most 2,000"),
        (VERIFY, "no step is open"),
        (call("verify_step", outcome="x"), "`held` is missing"),
    ],
)
async def test_a_wrong_declaration_is_refused_with_what_to_do(turn: ChatReply, problem: str) -> None:
    result, client, _ = await run(turn)
    assert result.receipts.error == 1
    assert problem in told(client, 1)


async def test_a_second_step_waits_for_the_end_of_the_first() -> None:
    result, client, _ = await run(declare("write_file"), declare("run_shell"))
    assert result.receipts.error == 1
    assert "step 1 is still open" in told(client, 2)


async def test_a_step_says_what_was_called_outside_of_it_and_what_was_not_called() -> None:
    shell = call("run_shell", command="true")
    _, client, (_, events) = await run(declare("edit_file"), WRITE, shell, VERIFY, asks=False)
    text = told(client, 4)
    assert "called outside its scope: write_file (denied), run_shell (denied)" in text
    assert "declared and not called: edit_file" in text
    (end,) = (event for event in events if event.kind == "step.verified")
    assert end.outside == ("write_file (denied)", "run_shell (denied)")


async def test_a_receipt_check_and_the_judge_see_the_steps() -> None:
    def judge(request: Any) -> str:
        return judge_reply(**dict.fromkeys(asked_ids(request), ("met", "I wrote a.txt.")))

    check = {"kind": "receipt", "calls": [{"tool": "declare_step"}, {"tool": "verify_step", "args": {"held": True}}]}
    client = words([declare("write_file"), WRITE, VERIFY, DONE], judge)
    task = {"acceptance_criteria": [check, "the report names the file"]}
    result, _, _ = await run(client, task=task)
    assert result.verdict
    assert result.verdict.criteria[0].outcome == "met"
    question = next(request for request in client.requests if request.reply_schema is not None)
    assert "declare_step" in question.messages[0].text
    assert "called in its scope: write_file (ok)" in question.messages[0].text


async def test_steps_are_for_children_that_call_only_the_tools_of_their_job() -> None:
    async def work(job: Any) -> str:
        return "done"

    async with Delegator(runner=work) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.run(Task(goal="go", steps=True))
    assert (refused.value.code, refused.value.field) == ("no_steps", "steps")

    def verify_step() -> str:
        """A tool of the host."""
        return ""

    async with Delegator(client=words([DONE]), tools=[Tool.from_function(verify_step)]) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.run(Task(goal="go", steps=True))
    assert refused.value.code == "no_steps"


async def test_a_model_cannot_ask_for_steps() -> None:
    async with Delegator(client=words([DONE])) as delegator:
        result = await delegator.call({"goal": "go", "steps": False})
    assert result.error
    assert result.error.code == "unknown_field"
