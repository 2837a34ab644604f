"""Whatever a model server does, each task gets exactly one result, in time, and it says what happened."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.failure_modes.children import SITUATIONS, Situation
from tests.failure_modes.document import document
from tests.failure_modes.failures import Row, Scene, WireName
from tests.failure_modes.measure import measure, on_one_api, once_by_another_judge
from tests.support.samples import MORE_CASES, sampled

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "failure-modes.md"


@pytest.mark.parametrize("scenes_of", [on_one_api, pytest.param(once_by_another_judge, marks=MORE_CASES)])
@pytest.mark.timeout(240)
async def test_every_failure_ends_as_it_should_and_only_where_it_happened(
    scenes_of: Callable[[int, WireName], Sequence[Scene]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = await measure(tmp_path, scenes_of=scenes_of)

    assert [problem for one in found for problem in one.problems()] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_the_page_is_the_one_that_the_suite_expects() -> None:
    expected = document(Row.expected, lambda one: one.expected)
    assert DOCUMENT.read_text(encoding="utf-8") == expected, "run `make pages`"


@pytest.mark.parametrize("situation", sampled(SITUATIONS, 5, id=lambda one: one.words))
async def test_a_child_deals_with_a_situation_as_the_page_says(situation: Situation, tmp_path: Path) -> None:
    assert await situation.play(tmp_path) == situation.expected
