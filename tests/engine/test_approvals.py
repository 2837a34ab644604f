"""Approvals from the outside: what a person is asked, what counts as a yes, and what is on record."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from delegate import Cancellation, ConfigError, Delegator, RunResult, Task, TaskResult, Tool
from delegate.models.providers.scripted import Scripted
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest, OnApproval
from delegate.types.events import Event, as_json
from delegate.types.ports import ChatReply
from tests.support.deadlines import in_time
from tests.support.words import words
from tests.types.test_events import misfits

call = Scripted.call
DONE = "I did what I could."
ASK = {"irreversible": "ask"}
UNCONFINED: dict[str, Any] = {"sandbox": "off", "commands": "ask"}


class Person:
    """Answers requests, and remembers them."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[ApprovalRequest] = []
        self._answers = answers

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        return answer(request) if callable(answer) else answer


class Mailer:
    """A tool whose calls can't be undone."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    @property
    def tool(self) -> Tool:
        def send(to: str) -> str:
            """Send a mail."""
            self.sent.append(to)
            return "sent"

        return Tool.from_function(send, effects=("external",), irreversible=True)


def sends(*names: str) -> Scripted:
    return words([*(call("send", to=name) for name in names), DONE])


async def run(
    client: Scripted,
    person: OnApproval | None,
    tool: Tool | None = None,
    task: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[TaskResult, list[Event]]:
    events: list[Event] = []
    tools = None if tool is None else (tool,)
    async with Delegator(
        client=client, on_approval=person, on_event=events.append, tools=tools, **options
    ) as delegator:
        result = await delegator.run(Task(goal="go", **(task or {})))
        record = await delegator.records.read(result.results[0].handle or "")
    assert record is not None
    assert misfits([as_json(event) for event in events]) == []
    assert misfits(json.loads(json.dumps(record["events"]))) == []
    return result.results[0], events


def told(client: Scripted, n: int) -> str:
    return client.requests[n].messages[-1].tool_replies[-1].text


def answers(events: list[Event]) -> list[tuple[bool, str]]:
    return [(event.approved, event.outcome) for event in events if event.kind == "approval.answered"]


# ------------------------------------------------------------------------------------------------ a yes and a no


async def test_an_approved_call_is_made_and_stands_on_record_with_who_approved_it() -> None:
    mail, person = Mailer(), Person(ApprovalAnswer(approved=True, by="ada"))
    result, events = await run(sends("a"), person, mail.tool, policy=ASK)
    (asked,) = person.requests
    assert (mail.sent, result.receipts.ok) == (["a"], 1)
    assert (asked.tool, dict(asked.arguments), asked.code, asked.goal) == ("send", {"to": "a"}, "irreversible", "go")
    kinds = [event.kind for event in events if event.kind in ("approval.asked", "approval.answered", "child.tool")]
    assert kinds == ["approval.asked", "approval.answered", "child.tool"]
    by_kind = {event.kind: as_json(event) for event in events}
    assert by_kind["approval.answered"]["by"] == "ada"
    assert by_kind["approval.asked"]["sha256"] == by_kind["approval.answered"]["sha256"] == asked.sha256
    assert by_kind["approval.asked"]["args_sha256"] == by_kind["child.tool"]["args_sha256"]


async def test_a_refused_call_is_not_made_and_its_receipt_says_why() -> None:
    mail, client = Mailer(), sends("a")
    result, events = await run(
        client, Person(ApprovalAnswer(approved=False, note="not on Sunday")), mail.tool, policy=ASK
    )
    assert (mail.sent, result.receipts.denied) == ([], 1)
    assert result.receipts.why_denied
    assert "not called (irreversible): what send does can't be undone; a person refused it: not on Sunday" in told(
        client, 1
    )
    assert answers(events) == [(False, "refused")]


@pytest.mark.parametrize(
    "answer",
    [
        False,
        None,
        "yes",
        1,
        {"approved": True},
        ApprovalAnswer(approved=cast("bool", "no")),
        ApprovalAnswer(approved=True, sha256="0"),
    ],
)
async def test_everything_but_a_clear_yes_is_a_no(answer: Any) -> None:
    mail = Mailer()
    result, _ = await run(sends("a"), Person(answer), mail.tool, policy=ASK)
    assert (mail.sent, result.receipts.denied) == ([], 1)


def _raise(error: BaseException) -> Callable[[ApprovalRequest], Awaitable[bool]]:
    async def ask(request: ApprovalRequest) -> bool:
        raise error

    return ask


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("no screen"), "failed"),
        (TimeoutError(), "no_answer"),
        (asyncio.CancelledError(), "no_answer"),
    ],
)
async def test_an_error_of_the_function_that_asks_is_a_no(error: BaseException, outcome: str) -> None:
    mail = Mailer()
    result, events = await run(sends("a"), _raise(error), mail.tool, policy=ASK)
    assert (mail.sent, result.status, answers(events)) == ([], "completed", [(False, outcome)])


async def test_silence_is_a_no() -> None:
    mail = Mailer()

    async def ask(request: ApprovalRequest) -> bool:
        await asyncio.Event().wait()
        return True

    result, events = await run(sends("a"), ask, mail.tool, policy={**ASK, "answer_seconds": 0.05})
    assert (mail.sent, result.status, answers(events)) == ([], "completed", [(False, "no_answer")])


async def test_without_anybody_to_ask_it_is_a_no() -> None:
    mail, client = Mailer(), sends("a")
    result, events = await run(client, None, mail.tool, policy=ASK)
    assert (mail.sent, result.receipts.denied, answers(events)) == ([], 1, [])
    assert "nobody is there to give one" in told(client, 1)


async def test_what_the_policy_denies_is_not_asked_about() -> None:
    mail, person = Mailer(), Person(True)
    result, _ = await run(sends("a"), person, mail.tool, policy={"irreversible": "deny"})
    assert (mail.sent, result.receipts.denied, person.requests) == ([], 1, [])


# ------------------------------------------------------------------------------------------------- what it binds


async def test_each_call_needs_an_approval_of_its_own() -> None:
    mail, person = Mailer(), Person(True, True, False)
    await run(sends("a", "a", "b"), person, mail.tool, policy=ASK)
    assert mail.sent == ["a", "a"]
    first, second, third = (one.sha256 for one in person.requests)
    assert first == second != third


async def test_an_approval_may_hold_for_the_same_call_again_and_for_no_other() -> None:
    mail, person = Mailer(), Person(ApprovalAnswer(approved=True, same_again=True), False)
    await run(sends("a", "a", "b", "a"), person, mail.tool, policy=ASK)
    assert (mail.sent, len(person.requests)) == (["a", "a", "a"], 2)


async def test_what_was_refused_is_not_asked_again() -> None:
    mail, person = Mailer(), Person(False, True)
    await run(sends("a", "a", "a"), person, mail.tool, policy=ASK)
    assert (mail.sent, len(person.requests)) == ([], 1)


async def test_a_task_that_asks_too_often_is_refused_without_a_question() -> None:
    mail, person = Mailer(), Person(True)
    names = [str(n) for n in range(25)]
    result, _ = await run(sends(*names), person, mail.tool, policy=ASK)
    assert (len(mail.sent), len(person.requests)) == (20, 20)
    assert (result.receipts.ok, result.receipts.denied) == (20, 5)


async def test_the_arguments_that_are_shown_are_those_that_are_called() -> None:
    mail, given = Mailer(), {"to": "boss"}

    def sneak(request: ApprovalRequest) -> bool:
        given["to"] = "everybody"
        with pytest.raises(TypeError):
            request.arguments["to"] = "everybody"  # pyright: ignore[reportIndexIssue]
        return True

    client = words([ChatReply("", "tool_calls", *_usage_and(given)), DONE])
    await run(client, Person(sneak), mail.tool, policy=ASK)
    assert mail.sent == ["boss"]


def _usage_and(arguments: dict[str, Any]) -> tuple[Any, Any]:
    reply = call("send", to="boss")
    return reply.usage, tuple(type(one)(one.id, one.name, arguments) for one in reply.tool_calls)


async def test_two_calls_in_one_turn_are_asked_one_after_the_other() -> None:
    mail, open_now, most = Mailer(), 0, 0

    async def ask(request: ApprovalRequest) -> bool:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return True

    client = words([Scripted.calls(*(("send", {"to": str(n)}) for n in range(5))), DONE])
    await run(client, ask, mail.tool, policy=ASK)
    assert (sorted(mail.sent), most) == (list("01234"), 1)


# ---------------------------------------------------------------------------------------------------- the waiting


async def test_the_time_of_an_answer_is_not_the_childs_own() -> None:
    async def play(seconds: float) -> tuple[TaskResult, list[Event]]:
        async def ask(request: ApprovalRequest) -> bool:
            await asyncio.sleep(1.2 * seconds)
            return True

        return await run(sends("a"), ask, Mailer().tool, policy=ASK, task={"timeout_seconds": seconds})

    result, events = await in_time(play, lambda played: played[0].status == "completed")
    assert (result.status, result.receipts.ok) == ("completed", 1)
    assert [event.seconds is None for event in events if event.kind == "child.waiting"] == [True, False]


async def test_while_one_child_waits_for_an_answer_another_one_runs() -> None:
    asked, other_is_done = asyncio.Event(), asyncio.Event()
    mail = Mailer()

    async def ask(request: ApprovalRequest) -> bool:
        asked.set()
        await asyncio.wait_for(other_is_done.wait(), 5)
        return True

    def see(event: Event) -> None:
        if event.kind == "child.done" and event.task_index == 1:
            other_is_done.set()

    client = words(
        lambda request: DONE if request.messages[0].text == "b" or len(request.messages) > 1 else call("send", to="x")
    )
    async with Delegator(
        client=client, on_approval=ask, on_event=see, tools=(mail.tool,), policy=ASK, max_concurrent=1
    ) as delegator:
        result = await delegator.run(Task(goal="a"), Task(goal="b"))
    assert [one.status for one in result.results] == ["completed", "completed"]
    assert mail.sent == ["x"]


@pytest.mark.parametrize("how", ["cancellation", "deadline"])
async def test_a_child_that_is_stopped_while_it_asks_makes_no_call(how: str) -> None:
    mail = Mailer()

    async def play(seconds: float) -> tuple[RunResult, list[Event]]:
        cancellation, events = Cancellation(), list[Event]()

        async def ask(request: ApprovalRequest) -> bool:
            if how == "cancellation":
                cancellation.cancel()
            await asyncio.Event().wait()
            return True

        options: dict[str, Any] = {"run_timeout_seconds": seconds} if how == "deadline" else {}
        async with Delegator(
            client=sends("a"), on_approval=ask, on_event=events.append, tools=(mail.tool,), policy=ASK, **options
        ) as delegator:
            return await delegator.run(Task(goal="go"), cancellation=cancellation), events

    result, events = await in_time(play, lambda played: any(event.kind == "approval.asked" for event in played[1]))
    assert mail.sent == []
    assert result.results[0].status == ("cancelled" if how == "cancellation" else "timeout")
    assert answers(events) == [(False, "cancelled")]


async def test_the_children_of_a_child_ask_the_same_person() -> None:
    mail, person = Mailer(), Person(True)

    def child(request: Any) -> Any:
        if len(request.messages) > 1:
            return DONE
        boss = request.messages[0].text == "boss"
        return call("delegate_task", goal="worker") if boss else call("send", to="x")

    async with Delegator(client=words(child), tools=(mail.tool,), policy=ASK, max_depth=2) as delegator:
        await delegator.run(Task(goal="boss"), on_approval=person)
    assert (mail.sent, [one.goal for one in person.requests]) == (["x"], ["worker"])


# ----------------------------------------------------------------------------------------- commands without a sandbox


def shell(*commands: str) -> Scripted:
    return words([*(call("run_shell", command=command) for command in commands), DONE])


async def test_with_commands_ask_a_command_without_a_sandbox_runs_once_it_is_approved() -> None:
    person, client = Person(True, False), shell("echo one", "echo two")
    result, _ = await run(client, person, **UNCONFINED)
    assert (result.receipts.ok, result.receipts.denied) == (1, 1)
    assert "one" in told(client, 1)
    assert 'commands = "ask": a person refused it' in told(client, 2)
    assert [(one.command, one.code) for one in person.requests] == [
        ("echo one", "no_sandbox"),
        ("echo two", "no_sandbox"),
    ]


async def test_with_commands_ask_and_nobody_there_a_child_has_no_shell() -> None:
    client = shell("echo one")
    result, _ = await run(client, None, **UNCONFINED)
    assert "run_shell" not in [tool.name for tool in client.requests[0].tools]
    assert result.receipts.ok == 0


async def test_one_command_is_asked_about_once_even_if_two_reasons_ask() -> None:
    person, client = Person(True), shell("echo one")
    rule = {"decision": "ask", "reason": "all commands", "tools": ["run_shell"]}
    result, _ = await run(client, person, policy={"rules": [rule]}, **UNCONFINED)
    assert (result.receipts.ok, [one.code for one in person.requests]) == (1, ["rule"])


async def test_a_check_without_a_sandbox_needs_an_approval_too() -> None:
    check = {"kind": "shell", "command": "test -f a.txt"}
    for answer, code in ((True, "met"), (False, "commands_not_allowed")):
        person, client = Person(answer), words([call("write_file", path="a.txt", content="hello"), DONE])
        result, _ = await run(client, person, task={"acceptance_criteria": [check]}, **UNCONFINED)
        assert result.verdict is not None
        assert (result.verdict.criteria[0].code, len(person.requests)) == (code, 1)
        assert person.requests[0].tool == "shell criterion"


async def test_commands_ask_takes_a_command_to_the_sandbox_without_a_question() -> None:
    from delegate.sandbox.commands.commands import Commands

    if await Commands().mechanism() == "process":
        pytest.skip("no sandbox works here")
    person = Person(False)
    result, _ = await run(shell("echo one"), person, commands="ask")
    assert (result.receipts.ok, person.requests) == (1, [])


async def test_a_digest_can_be_computed_from_the_request_alone() -> None:
    person = Person(True)
    await run(shell("echo one"), person, **UNCONFINED)
    (asked,) = person.requests
    exact = f'["run_shell",{{"command":"echo one"}},"{asked.workspace}"]'
    assert hashlib.sha256(exact.encode()).hexdigest() == asked.sha256


# ------------------------------------------------------------------------------------------- what a command runs


def script(text: str) -> Any:
    return call("write_file", path="build.sh", content=f"echo {text}")


def runs_script() -> Any:
    return call("run_shell", command="sh build.sh")


async def test_an_approval_holds_again_only_while_the_script_is_what_was_approved() -> None:
    again = ApprovalAnswer(approved=True, same_again=True)
    person = Person(again, again, False)
    client = words(
        [script("one"), runs_script(), runs_script(), script("two"), runs_script(), script("x"), runs_script(), DONE]
    )
    await run(client, person, **UNCONFINED)
    assert ["one" in told(client, n) for n in (2, 3)] == [True, True]
    assert "two" in told(client, 5)
    assert "a person refused it" in told(client, 7)
    assert [list(one.files) for one in person.requests] == [["build.sh"]] * 3
    assert len({one.sha256 for one in person.requests}) == 3


async def test_an_approval_holds_again_only_while_what_a_piped_script_sources_is_what_was_approved() -> None:
    person = Person(ApprovalAnswer(approved=True, same_again=True))
    runs = call("run_shell", command="cat build.sh | sh")
    main = call("write_file", path="build.sh", content=". ./lib.sh")
    turns = [main, *(turn for text in ("one", "one", "two") for turn in (library(text), runs)), DONE]
    client = words(turns)
    await run(client, person, **UNCONFINED)
    assert [list(one.files) for one in person.requests] == [["build.sh", "lib.sh"]] * 2
    assert ["one" in told(client, 3), "one" in told(client, 5), "two" in told(client, 7)] == [True] * 3


def library(text: str) -> Any:
    return call("write_file", path="lib.sh", content=f"echo {text}")


async def test_a_script_that_changes_while_a_person_decides_does_not_run() -> None:
    def change(request: ApprovalRequest) -> ApprovalAnswer:
        Path(request.workspace, "build.sh").write_text("echo changed")
        return ApprovalAnswer(approved=len(person.requests) == 1, same_again=True)

    person = Person(change)
    client = words([script("one"), runs_script(), runs_script(), DONE])
    result, _ = await run(client, person, **UNCONFINED)
    assert "has changed since it was shown" in told(client, 2)
    assert (len(person.requests), result.receipts.denied) == (2, 2)


async def test_a_check_whose_script_changed_is_asked_about_as_another_one() -> None:
    check = {"kind": "shell", "command": "sh build.sh"}
    person = Person(True)
    client = words([script("one"), runs_script(), script("two"), DONE])
    await run(client, person, task={"acceptance_criteria": [check]}, **UNCONFINED)
    first, second = person.requests
    assert (first.tool, second.tool) == ("run_shell", "shell criterion")
    assert first.files != second.files


async def test_a_rule_is_about_what_a_path_leads_to_and_what_a_command_runs() -> None:
    rules = [
        {"decision": "deny", "reason": "people change the CI", "arguments": {"path": r"^\.github/"}},
        {"decision": "deny", "reason": "nothing is removed", "arguments": {"command": r"^rm\b"}},
    ]
    shell = [
        call("run_shell", command=text) for text in ("mkdir .github && ln -s .github ci", "r''m -rf ci", "echo rm")
    ]
    client = words([shell[0], call("write_file", path="ci/a.yml", content="x"), *shell[1:], DONE])
    result, _ = await run(client, None, policy={"rules": rules}, sandbox="off", commands="allow")
    assert "people change the CI" in told(client, 2)
    assert "nothing is removed" in told(client, 3)
    assert (result.receipts.ok, result.receipts.denied) == (2, 2)


# -------------------------------------------------------------------------------------------- what is expected


async def test_a_call_says_what_it_expects_and_the_tool_does_not_get_it() -> None:
    mail, client = Mailer(), words([call("send", to="a"), call("send", to="b", expected_outcome="b knows"), DONE])
    result, _ = await run(client, None, mail.tool, policy={"no_expected_outcome": "deny"})
    assert (mail.sent, result.receipts.denied, result.receipts.ok) == (["b"], 1, 1)
    assert "expected_outcome" in client.requests[0].tools[0].parameters["properties"]
    assert "send `expected_outcome`" in told(client, 1)


# --------------------------------------------------------------------------------------------------- enforcement


def test_a_policy_that_a_runner_would_not_ask_is_refused() -> None:
    async def work(job: Any) -> str:
        return "done"

    with pytest.raises(ConfigError, match="policy: it can't be enforced"):
        Delegator(runner=work, policy=ASK)
    Delegator(runner=work).close()


async def test_a_hostile_argument_breaks_nothing(tmp_path: Path) -> None:
    mail, person = Mailer(), Person(False)
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    client = words([call("send", to="\ud800\x00" * 1_000, more=deep, expected_outcome=7), DONE])
    result, _ = await run(client, person, mail.tool, policy=ASK)
    assert (result.status, result.receipts.denied, mail.sent) == ("completed", 1, [])
    assert person.requests[0].describe()


@pytest.mark.parametrize("tools", [["things.add"], ["db_*"], ["run_shell"], ["send", "send_mails"]])
async def test_a_rule_on_tools_that_may_be_there_is_no_mistake(tools: list[str], caplog: Any) -> None:
    rule = {"decision": "deny", "reason": "r", "tools": tools}
    await run(words([DONE]), None, Mailer().tool, policy={"rules": [rule]})
    assert "there is no tool" not in caplog.text


async def test_a_rule_on_another_tool_is_warned_of_since_programs_may_share_the_settings(caplog: Any) -> None:
    rule = {"decision": "deny", "reason": "r", "tools": ["delete_all_rows"]}
    await run(words([DONE]), None, Mailer().tool, policy={"rules": [rule]})
    assert "policy.rules[0].tools: there is no tool 'delete_all_rows', so the rule applies to no call" in caplog.text
