"""Stores each list of candidate judges once a day: it is longer than the rest of a result, and most verdicts of a day
have the same one.

A recorded result has the id of its list as `candidates`, instead of `verdict.judge.candidates`.
"""

import hashlib
import time
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from delegate.records.aside import Statement
from delegate.types import Candidate, TaskResult

SCHEMA = """
CREATE TABLE IF NOT EXISTS candidate_lists (id TEXT PRIMARY KEY, candidates TEXT NOT NULL);
"""
"""An id is a date (UTC) and a digest, such as `2026-11-23:4c6f…`, so that old lists can be found by their ids."""

OF_VERDICT: dict[str, Any] = {"judge": {"candidates"}}
OF_RESULT: dict[str, Any] = {"verdict": OF_VERDICT}
"""Where the list is in a verdict and in a result, in the form of pydantic's `exclude`."""

DELETE_UNUSED: Statement = (
    "DELETE FROM candidate_lists WHERE id < (SELECT date(MIN(began_at), 'unixepoch', '-1 day') FROM tasks)",
    (),
)
"""Deletes the lists that are older than every task. The day more is for clocks that were set back."""

JOINED = "LEFT JOIN candidate_lists ON id = CASE WHEN json_valid(result) THEN json_extract(result, '$.candidates') END"
"""Adds the column `candidates`: the list of each task, or NULL."""

RESULT = """CASE WHEN json_valid(result) THEN json_remove(
    CASE WHEN json_valid(candidates) THEN json_set(result, '$.verdict.judge.candidates', json(candidates))
        ELSE result END,
    '$.candidates'
) ELSE result END"""
"""The JSON of a task's result as it was before its list was `moved`. Those of earlier versions have it in them."""

# In the same transaction as the result; the number of changed rows is 0 if there is no such task.
_INSERT = """
INSERT OR IGNORE INTO candidate_lists SELECT ?, ? WHERE EXISTS (SELECT 1 FROM tasks WHERE handle = ?)
"""
_MOST = 64
"""How many lists are remembered."""


@cache
def _adapter() -> TypeAdapter[tuple[Candidate, ...]]:
    return TypeAdapter(tuple[Candidate, ...])


class _Encoded(NamedTuple):
    candidates: tuple[Candidate, ...]
    """Kept, so that no other object gets the identity of one of these."""
    text: str
    digest: str


class CandidateLists:
    """The lists that were encoded lately. Routing returns the same candidates for similar verdicts."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[int, ...], _Encoded] = {}

    def moved(self, result: TaskResult, text: str) -> tuple[str, list[Statement]]:
        """The recorded result, from its JSON without `OF_RESULT`, and the statements that store its list."""
        judge = result.verdict.judge if result.verdict else None
        if judge is None or not judge.candidates:
            return text, []
        encoded = self._encode(judge.candidates)
        id = f"{time.strftime('%Y-%m-%d', time.gmtime())}:{encoded.digest}"
        return f'{text[:-1]},"candidates":"{id}"}}', [(_INSERT, (id, encoded.text, result.handle))]

    def _encode(self, candidates: tuple[Candidate, ...]) -> _Encoded:
        identity = tuple(map(id, candidates))
        if (entry := self._encoded.get(identity)) is None:
            if len(self._encoded) >= _MOST:
                self._encoded.clear()
            data = _adapter().dump_json(candidates)
            entry = _Encoded(candidates, data.decode(), hashlib.sha256(data).hexdigest()[:32])
            self._encoded[identity] = entry
        return entry
