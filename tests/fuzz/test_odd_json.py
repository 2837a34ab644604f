"""JSON that is allowed but odd, or almost JSON, is met, not met or a typed error; never an error inside delegate."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from delegate import Delegator, Job, Task
from delegate.testing import Scripted, judge_reply
from delegate.types import TaskResult, Verdict
from delegate.types.errors import CallError
from tests.models.providers.test_deep_arguments import WAYS
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.samples import sampled
from tests.support.wire_formats import FORMATS

KEYS = json.dumps({f"k{n}": n for n in range(5_000)})
TEXTS = {
    "2^64+1": str(2**64 + 1), "-2^63-1": str(-(2**63) - 1), "400 digits": "1" + "0" * 400, "5000 digits": "1" * 5000,
    "NaN": "NaN", "Infinity": "Infinity", "-0": "-0", "-0.0": "-0.0", "1e999": "1e999", "1e-999": "1e-999",
    "deep": "[" * 3000 + "]" * 3000, "150 deep": "[" * 151 + "]" * 151, "200 deep": "[" * 200 + "]" * 200,
    "deep object": '{"a":' * 900 + "1" + "}" * 900, "twice": '{"a": 1, "a": 2}', "surrogate": '"\\ud800"',
    "surrogate key": '{"\\ud800": 1}', "NUL": '"\\u0000"', "keys": KEYS, "raw surrogate": '"\ud800"',
}  # fmt: skip
VALUES: dict[str, Any] = {
    "2^64+1": 2**64 + 1, "400 digits": 10**400, "NaN": math.nan, "Infinity": math.inf, "-0.0": -0.0,
    "surrogate": "\ud800", "surrogate key": {"\ud800": 1}, "keys": {f"k{n}": n for n in range(3_000)},
    "list": [[]], "true": True,
}  # fmt: skip
CRITERIA: tuple[Any, ...] = (
    {"kind": "json_schema", "schema": {"type": "object"}},
    {"kind": "json_schema", "schema": {"type": "integer", "multipleOf": 0.5, "maximum": 10}},
    {"kind": "json_schema", "schema": {"uniqueItems": True, "enum": [1]}},
    {"kind": "json_predicate", "expr": "output > 3"},
    {"kind": "json_predicate", "expr": "output.a === 2"},
    {"kind": "regex", "pattern": "1"},
    "the report has a number",
)


def expect_typed(result: TaskResult | Verdict | None) -> None:
    """Expect a result that can be written, with no error inside delegate."""
    assert result is not None
    result.model_dump_json().encode()
    verdict = result.verdict if isinstance(result, TaskResult) else result
    error = result.error if isinstance(result, TaskResult) else None
    for one in (verdict, error):
        assert one is None or one.code not in ("internal_error", "crashed"), result


@pytest.mark.parametrize("name", sampled(TEXTS, 4))
async def test_a_report_of_odd_json_gets_a_verdict(name: str) -> None:
    async def child(job: Job) -> str:
        return TEXTS[name]

    async with Delegator(runner=child, client=Scripted(lambda _: judge_reply(c1=("met", TEXTS[name][:50])))) as one:
        for criterion in CRITERIA:
            task: dict[str, Any] = {"goal": "Count.", "acceptance_criteria": [criterion], "output_schema": {}}
            result = await one.run(Task.model_validate(task))
            expect_typed(result.results[0])
            assert result.results[0].verdict, criterion
            assert one.render(result)


@pytest.mark.parametrize("name", sampled(VALUES, 3))
@pytest.mark.parametrize(
    "tool", sampled(["write_file", "read_file", "think", "run_shell", "delegate_task", "no_such_tool"], 2)
)
async def test_odd_arguments_of_a_tool_are_answered_and_recorded(tool: str, name: str) -> None:
    arguments = ("path", "limit", "command", "thought", "timeout_seconds", "goal", "unknown")
    calls = [Scripted.call(tool, **{argument: VALUES[name]}) for argument in arguments]
    known = "think" if tool == "no_such_tool" else tool
    criterion = {"kind": "receipt", "mode": "none", "calls": [{"tool": known, "args": {"path": {"$matches": "^1$"}}}]}
    async with Delegator(client=Scripted([*calls, "I tried."]), max_depth=2) as delegator:
        run = await delegator.run(Task.model_validate({"goal": "Try.", "acceptance_criteria": [criterion]}))
    (result,) = run.results
    expect_typed(result)
    if not (tool == "delegate_task" and result.status != "completed"):  # its child shares the script
        assert result.receipts.total == len(arguments)


def judge_replies(text: str) -> Iterator[str]:
    answer = '{{"answers": [{{"id": "c1", "source": {}, "evidence": {}, "reason": {}, "verdict": "met"}}]}}'
    yield text
    yield f'{{"answers": {text}}}'
    for place in range(3):
        values = ['"output"', '"the output is good"', '"It is."']
        values[place] = text
        yield answer.format(*values)


@pytest.mark.parametrize("name", sampled(TEXTS, 4))
async def test_a_judges_odd_json_gives_a_verdict(name: str) -> None:
    for reply in judge_replies(TEXTS[name]):
        async with Delegator(client=Scripted(lambda _, reply=reply: reply)) as delegator:
            verdict = await delegator.judge(
                goal="Write.", acceptance_criteria=["the output is good"], report="I say that the output is good here."
            )
        expect_typed(verdict)


@pytest.mark.parametrize("name", sampled([*VALUES, "5000 digits", "deep"], 4))
async def test_odd_receipts_are_judged_or_refused(name: str) -> None:
    value = VALUES.get(name, 10**5000)
    if name == "deep":
        value = 1
        for _ in range(3_000):
            value = [value]
    criterion = {"kind": "receipt", "calls": [{"tool": "send", "args": {"x": 1}}]}
    async with Delegator() as delegator:
        for field in ("args", "output", "seconds", "n", "tool"):
            receipt = {"tool": "send", "args": {"x": value}, "status": "ok", "output": ""}
            receipt |= {field: value} if field != "args" else {}
            try:
                verdict = await delegator.judge(
                    goal="Send.", acceptance_criteria=[criterion], report="I sent it.", receipts=[receipt]
                )
            except CallError as error:
                assert error.field  # noqa: PT017 - some receipts are judged
            else:
                expect_typed(verdict)


USAGES = {
    "openai": ("usage", ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")),
    "anthropic": ("usage", ("input_tokens", "output_tokens", "cache_read_input_tokens")),
    "google": ("usageMetadata", ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount")),
}
COUNTS: tuple[Any, ...] = (2**64 + 1, 10**400, -5, 1.5, 1e308, "7", True, [], {}, None)


@pytest.mark.parametrize("provider", WAYS)
@pytest.mark.parametrize("count", sampled(COUNTS, 2, id=lambda count: repr(count)[:9]))
async def test_odd_numbers_of_tokens_never_break_a_child(
    provider: str, count: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(call: Call) -> Fault:
        place, names = USAGES[provider]
        body = FORMATS[call.api].render(Reply("I counted three."), "m", 1)
        return Fault(200, body={**body, place: {**body.get(place, {}), **dict.fromkeys(names, count)}})

    model, key, url = WAYS[provider]
    with ModelServer(script) as server:
        monkeypatch.setenv(key, "dummy-key")
        monkeypatch.setenv(url, getattr(server, f"{provider}_url"))
        async with Delegator(max_cost_usd=5.0, max_run_tokens=10**6) as delegator:
            result = await delegator.run(Task(goal="Count.", model=model))
    expect_typed(result.results[0])
