"""Batches for tests: scripted children, and outcomes by id."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from delegate import Task
from delegate.batch.batch import Batch
from delegate.batch.item import ItemOutcome
from delegate.models.providers.scripted import Scripted
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.words import goal_of

DONE = "did my part as asked"


def tasks(*goals: str) -> list[Task]:
    """Tasks that pass if their child reports that it did its part."""
    return [Task.model_validate({"goal": goal, "acceptance_criteria": [_DID]}) for goal in goals]


_DID = {"kind": "regex", "pattern": "did my part"}


class Children(Scripted):
    """Children that act as their goal says: `fail …` misses its criterion, `hang …` never ends.

    `starts` counts the starts of each goal.
    """

    def __init__(self) -> None:
        self.starts = Counter[str]()
        self.hanging = asyncio.Event()
        super().__init__(self._reply)

    async def _reply(self, request: ChatRequest) -> ChatReply | str:
        goal = goal_of(request).split("\n")[0]
        self.starts[goal] += 1
        if goal.startswith("hang"):
            self.hanging.set()
            await asyncio.Event().wait()
        return "did nothing" if goal.startswith("fail") else DONE


async def outcomes(batch: Batch) -> dict[str, ItemOutcome]:
    """Run a batch to its end and assert that no id comes twice."""
    found: dict[str, ItemOutcome] = {}
    async for outcome in batch:
        assert outcome.id not in found
        found[outcome.id] = outcome
    return found


def words(found: dict[str, ItemOutcome]) -> dict[str, str]:
    """The verdict of each item, or its state if it has none."""
    return {id: _word(outcome) for id, outcome in sorted(found.items())}


def _word(outcome: ItemOutcome) -> str:
    verdict = outcome.result.verdict if outcome.result else None
    return verdict.verdict if verdict else outcome.state


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a results file, all of which must be complete."""
    text = path.read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def ids(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The sorted ids, duplicates included."""
    return sorted(row["id"] for row in rows)
