"""Batches for tests: scripted children, and what came of each task by its id."""

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
from delegate.ports import ChatReply, ChatRequest
from tests.support.words import goal_of

DONE = "did my part as asked"


def tasks(*goals: str) -> list[Task]:
    """Each passes when its child says that it did its part."""
    return [Task.model_validate({"goal": goal, "acceptance_criteria": [_DID]}) for goal in goals]


_DID = {"kind": "regex", "pattern": "did my part"}


class Children(Scripted):
    """Children that do as their goal says: `fail …` misses its criterion, `hang …` never ends. `starts` counts them."""

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
    """Run it to its end. No id comes twice."""
    found: dict[str, ItemOutcome] = {}
    async for outcome in batch:
        assert outcome.id not in found
        found[outcome.id] = outcome
    return found


def words(found: dict[str, ItemOutcome]) -> dict[str, str]:
    """The verdict of each, or else its state."""
    return {id: _word(outcome) for id, outcome in sorted(found.items())}


def _word(outcome: ItemOutcome) -> str:
    verdict = outcome.result.verdict if outcome.result else None
    return verdict.verdict if verdict else outcome.state


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a results file, all of which are whole."""
    text = path.read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def ids(rows: Iterable[dict[str, Any]]) -> list[str]:
    """In order, so that a double one shows."""
    return sorted(row["id"] for row in rows)
