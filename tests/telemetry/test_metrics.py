"""Verdicts by code, verification's share of the cost, and how long judges take."""

from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import is_judge, met_by, words
from tests.telemetry.spans import sdk, set_for_the_program

Points = Mapping[str, list[tuple[Mapping[str, Any], Any]]]
TASK = Task.model_validate({"goal": "Greet.", "acceptance_criteria": ["The report greets the reader."]})


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[], Points]]:
    """What has been measured: the attributes and the value of each point, by the name of the metric."""
    reader = sdk("metrics.export").InMemoryMetricReader()
    meters = sdk("metrics").MeterProvider([reader], shutdown_on_exit=False)

    def read() -> Points:
        data: Any = reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else ()
        return {one.name: [(dict(point.attributes), point) for point in one.data.data_points] for one in metrics}

    with set_for_the_program(monkeypatch, meter=meters):
        yield read
    meters.shutdown()


async def run(client: Scripted, *tasks: Task) -> None:
    async with Delegator(client=client, model="gpt-6.1-terra", judge_model="gpt-6-luna") as delegator:
        await delegator.run(*tasks)


async def test_verdicts_are_counted_by_their_codes(points: Callable[[], Points]) -> None:
    await run(words(["hello reader"], met_by("hello reader")), TASK, TASK)
    await run(words(["hello reader"], met_by("never said")), TASK)
    await run(Scripted(["done as asked"]), Task(goal="Do it."))  # without criteria, there is no verdict
    counted = {
        (found["delegate.verdict"], found["delegate.code"]): point.value
        for found, point in points()["delegate.verdicts"]
    }
    assert counted == {("PASS", "met"): 2, ("FAIL", "evidence_not_found"): 1}


async def test_verification_s_share_is_measured_per_task(points: Callable[[], Points]) -> None:
    await run(words(["hello reader"], met_by("hello reader")), TASK)
    ((attributes, share),) = points()["delegate.verification.share"]
    assert (attributes, share.count) == ({}, 1)
    assert 0 < share.sum < 1


async def test_a_judge_s_calls_are_timed_by_model_and_error(points: Callable[[], Points]) -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            raise ProviderError("auth", "the key is wrong", provider="openai")
        return "hello reader"

    await run(words(["hello reader"], met_by("hello reader")), TASK)
    await run(Scripted(answer), TASK)
    model = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-6-luna"}
    timed = points()["delegate.judge.duration"]
    assert [found for found, _ in timed] == [model, model | {"error.type": "auth"}]
    assert [point.count for _, point in timed] == [1, 1]
