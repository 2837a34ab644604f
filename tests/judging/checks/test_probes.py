"""Criteria about the state that a read-only tool shows after the run."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, Task, Verdict, contract
from delegate.hosts.host_tool import read_only_hint
from delegate.judging.checks.json_schema import check_schema
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import ToolError
from delegate.types.ports import Tool, ToolOutput
from tests.support.words import words

EVENT_ID = {"from": {"tool": "create_event", "path": "event.id"}}
PROBE: dict[str, Any] = {
    "kind": "probe",
    "tool": "get_event",
    "args": {"id": EVENT_ID},
    "expr": "status === 'confirmed'",
}
CREATED: dict[str, Any] = {"tool": "create_event", "args": {}, "status": "ok", "output": '{"event": {"id": "e1"}}'}


@dataclass
class Calendar:
    """A host with a calendar: `create_event` changes it, `get_event` looks something up."""

    events: dict[str, Any] = field(default_factory=lambda: {"e1": {"id": "e1", "status": "confirmed"}})
    asked: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    async def get(self, args: Mapping[str, Any]) -> str | ToolOutput:
        self.asked.append(args)
        if args.get("id") not in self.events:
            raise ToolError("no event has this id")
        return json.dumps(self.events[args["id"]])

    async def create(self, args: Mapping[str, Any]) -> str:
        self.events["new"] = {"id": "new", "status": "confirmed"}
        return '{"event": {"id": "new"}}'

    @property
    def tools(self) -> list[Tool]:
        schema: dict[str, Any] = {"type": "object"}
        return [
            Tool("get_event", "Look up.", schema, self.get, read_only=True),
            Tool("create_event", "Create.", schema, self.create),
        ]


async def judged(
    *criteria: Any, tools: list[Tool] | None = None, receipts: list[Any] | None = None, **options: Any
) -> Verdict:
    async with Delegator(client=Scripted([])) as delegator:
        return await delegator.judge(
            goal="Book it.",
            acceptance_criteria=criteria,
            report="It is booked.",
            tools=Calendar().tools if tools is None else tools,
            receipts=[CREATED] if receipts is None else receipts,
            **options,
        )


def answering(answer: Any) -> list[Tool]:
    async def call(args: Mapping[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        return answer

    return [Tool("get_event", "", {"type": "object"}, call, read_only=True)]


async def test_a_probe_is_met_by_what_the_tool_says(home: Path) -> None:
    calendar = Calendar()
    verdict = await judged(PROBE, tools=calendar.tools)
    assert (verdict.verdict, verdict.verified, verdict.decided_by) == ("PASS", True, "check")
    assert calendar.asked == [{"id": "e1"}]
    assert verdict.criteria[0].source == "check:c1"
    assert "confirmed" in (verdict.criteria[0].evidence or "")


async def test_a_probe_that_sees_another_state_is_not_met(home: Path) -> None:
    other = Calendar({"e1": {"id": "e1", "status": "pending"}})
    verdict = await judged(PROBE, tools=other.tools)
    assert (verdict.verdict, verdict.code) == ("FAIL", "not_met")
    schema = {"type": "object", "properties": {"status": {"const": "confirmed"}}, "required": ["status"]}
    by_schema = {**PROBE, "schema": schema}
    del by_schema["expr"]
    assert (await judged(by_schema)).verdict == "PASS"
    assert (await judged(by_schema, tools=other.tools)).code == "not_met"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ToolError("no event has this id"), "probe_failed"),
        (RuntimeError("the server is gone"), "probe_failed"),
        (ToolOutput("denied", "denied"), "probe_failed"),
        (ToolOutput('{"status": "confirmed"}', "error"), "probe_failed"),
        ('{"status": "confirmed", ', "probe_failed"),
        (30.0, "probe_timeout"),
        ("confirmed", "not_met"),
        ('["confirmed"]', "not_met"),
    ],
)
async def test_a_tool_that_does_not_answer_never_makes_a_pass(answer: Any, code: str, home: Path) -> None:
    holds = {**PROBE, "expr": "output.status === 'confirmed'", "timeout_seconds": 0.05}
    verdict = await judged(holds, tools=answering(answer))
    assert (verdict.verdict, verdict.code) == ("FAIL", code)


@pytest.mark.parametrize(
    ("receipts", "code"),
    [
        ([], "probe_unbound"),
        ([{**CREATED, "status": "error"}], "probe_unbound"),
        ([{**CREATED, "output": '{"event": {}}'}], "probe_unbound"),
        ([{**CREATED, "output": '{"event": {"id": '}], "result_cut"),
    ],
)
async def test_a_probe_without_its_value_is_an_error(receipts: list[Any], code: str, home: Path) -> None:
    calendar = Calendar()
    verdict = await judged(PROBE, receipts=receipts, tools=calendar.tools)
    assert (verdict.verdict, verdict.code, verdict.criteria[0].outcome) == ("FAIL", code, "error")
    assert calendar.asked == []


async def test_a_probe_is_bound_to_the_last_call_that_has_the_value(home: Path) -> None:
    calendar = Calendar({"e2": {"id": "e2", "status": "confirmed"}})
    later = [CREATED, {**CREATED, "output": '{"event": {"id": "e2"}}'}, {**CREATED, "output": '{"event": null}'}]
    assert (await judged(PROBE, receipts=later, tools=calendar.tools)).verdict == "PASS"
    assert calendar.asked == [{"id": "e2"}]


async def test_a_run_whose_calls_were_not_recorded_binds_nothing(home: Path) -> None:
    async with Delegator(client=Scripted([])) as delegator:
        verdict = await delegator.judge(
            goal="g", acceptance_criteria=[PROBE], report="It is booked.", tools=Calendar().tools, receipts=None
        )
    assert verdict.code == "no_receipts"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tool": "create_event"}, "`tool` is 'create_event', which may change things"),
        ({"tool": "get_evnt"}, "`tool` is 'get_evnt', which doesn't exist; the read-only tools are: get_event"),
        ({"schema": {}}, "`expr` can't be combined with `schema`"),
        ({"expr": None}, "`expr` is missing; give `expr` or `schema`"),
        ({"expr": "status ="}, "status ="),
        ({"expr": None, "schema": {"type": 3}}, "not a JSON Schema"),
        ({"args": {"id": {"matches": "e1"}}}, "`args.id` has the matcher `matches`"),
        ({"args": {"id": {"from": {"tool": "create_event", "path": "["}}}}, "`args.id.from.path` '[' is not a path"),
    ],
)
async def test_a_probe_that_cannot_be_made_is_refused(change: dict[str, Any], complaint: str, home: Path) -> None:
    calendar = Calendar()
    with pytest.raises(CallError) as caught:
        await judged({**PROBE, **change}, tools=calendar.tools)
    assert caught.value.code == "invalid_criterion"
    assert complaint in caught.value.message
    assert calendar.asked == []
    never = Scripted([])
    async with Delegator(client=never, tools=calendar.tools) as delegator:
        result = await delegator.call({"goal": "g", "acceptance_criteria": [{**PROBE, **change}]})
    assert result.error is not None
    assert never.requests == []


async def test_a_probe_runs_after_the_child_and_leaves_no_receipt(home: Path) -> None:
    calendar = Calendar()
    client = words([Scripted.call("create_event"), "Booked."])
    async with Delegator(client=client, tools=calendar.tools) as delegator:
        run = await delegator.run(Task(goal="Book it.", acceptance_criteria=[PROBE]))
        result = run.results[0]
    assert result.verdict is not None
    assert (result.verdict.verdict, result.verdict.verified) == ("PASS", True), result.verdict.reasoning
    assert calendar.asked == [{"id": "new"}]
    assert result.receipts.tools == {"create_event": 1}


async def test_a_child_without_the_tool_is_probed_all_the_same(home: Path) -> None:
    calendar = Calendar()
    client = words([Scripted.call("create_event"), "Booked."])
    async with Delegator(client=client, tools=calendar.tools) as delegator:
        task = Task(goal="Book it.", tools=["create_event"], acceptance_criteria=[PROBE])
        result = (await delegator.run(task)).results[0]
    assert result.verdict is not None
    assert result.verdict.verdict == "PASS"


async def test_the_built_in_tools_that_only_read_can_be_probed(home: Path) -> None:
    client = words([Scripted.call("write_file", path="total.json", content='{"total": 3}'), "Written."])
    probe = {"kind": "probe", "tool": "read_file", "args": {"path": "total.json"}, "expr": "total === 3"}
    async with Delegator(client=client) as delegator:
        result = (await delegator.run(Task(goal="g", acceptance_criteria=[probe]))).results[0]
        assert result.verdict is not None
        assert result.verdict.verdict == "PASS", result.verdict.reasoning
        for tool in ("write_file", "run_shell", "fetch_url", "think"):
            with pytest.raises(CallError, match="the read-only tools are: read_file, list_files, search_files"):
                await delegator.run(Task(goal="g", acceptance_criteria=[{**probe, "tool": tool}]))


async def test_a_secret_in_a_probes_result_is_not_on_the_verdict(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-0123456789abcdefghijABCDEFGHIJ")
    answer = '{"status": "sk-proj-0123456789abcdefghijABCDEFGHIJ"}'
    verdict = await judged(PROBE, tools=answering(answer))
    assert "0123456789abcdefghij" not in verdict.model_dump_json()


async def test_probes_call_their_tools_one_at_a_time(home: Path) -> None:
    running, most = 0, 0

    async def call(args: Mapping[str, Any]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return '{"status": "confirmed"}'

    tools = [Tool("get_event", "", {"type": "object"}, call, read_only=True)]
    assert (await judged(*[PROBE] * 5, tools=tools)).verdict == "PASS"
    assert most == 1


def test_arguments_may_be_json_text() -> None:
    given = {**PROBE, "args": json.dumps(PROBE["args"])}
    (task,) = contract.parse_call({"goal": "g", "acceptance_criteria": [given]}, check_schema=check_schema)
    assert task.acceptance_criteria[0].model_dump(exclude_defaults=True)["args"] == PROBE["args"]


@dataclass
class Annotations:
    readOnlyHint: Any


@pytest.mark.parametrize(
    ("annotations", "read_only"),
    [
        ({"readOnlyHint": True}, True),
        (Annotations(True), True),
        ({"readOnlyHint": False}, False),
        ({"readOnlyHint": "true"}, False),
        (Annotations(None), False),
        ({}, False),
        (None, False),
    ],
)
def test_only_a_hint_that_is_true_makes_an_mcp_tool_read_only(annotations: object, read_only: bool) -> None:
    assert read_only_hint(annotations) is read_only


async def test_a_result_that_is_too_long_to_read_is_an_error() -> None:
    async def look(args: Any) -> str:
        return "[" + "0," * 300_000 + "0]"

    tool = Tool("look", "Look.", {"type": "object", "properties": {}}, look, read_only=True)
    criterion: Any = {"kind": "probe", "tool": "look", "args": {}, "expr": "output.length > 3"}
    async with Delegator() as delegator:
        verdict = await delegator.judge(goal="x", acceptance_criteria=[criterion], report="I looked.", tools=[tool])
    assert (verdict.verdict, verdict.criteria[0].code) == ("FAIL", "probe_failed")
    assert "600,003 characters" in verdict.criteria[0].reason
