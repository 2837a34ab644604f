"""Stores each list of candidate judges once a day: it is longer than the rest of a result, and most verdicts of a day
have the same one.

A recorded result has the id of its list as `candidates`, instead of `verdict.judge.candidates`.
"""

import hashlib
import time
from typing import Any

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
"""The JSON of a task's result as it was before its list was `moved`."""

# In the same transaction as the result; the number of changed rows is 0 if there is no such task.
_INSERT = """
INSERT OR IGNORE INTO candidate_lists SELECT ?, ? WHERE EXISTS (SELECT 1 FROM tasks WHERE handle = ?)
"""
_MOST = 64
"""How many lists are remembered."""


class CandidateLists:
    """The lists that were encoded lately. Routing returns the same candidates for similar verdicts."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[int, ...], tuple[tuple[Candidate, ...], str, str]] = {}
        """By the identities of candidates: these, so that no other object gets one, their JSON, and its digest."""

    def moved(self, result: TaskResult, text: str) -> tuple[str, list[Statement]]:
        """The recorded result, from its JSON without `OF_RESULT`, and the statements that store its list."""
        judge = result.verdict.judge if result.verdict else None
        if judge is None or not judge.candidates:
            return text, []
        identity = tuple(map(id, judge.candidates))
        if identity not in self._encoded:
            if len(self._encoded) >= _MOST:
                self._encoded.clear()
            encoded = f"[{','.join(candidate.model_dump_json() for candidate in judge.candidates)}]"
            digest = hashlib.sha256(encoded.encode()).hexdigest()[:32]
            self._encoded[identity] = judge.candidates, encoded, digest
        _, encoded, digest = self._encoded[identity]
        list_id = f"{time.strftime('%Y-%m-%d', time.gmtime())}:{digest}"
        return f'{text[:-1]},"candidates":"{list_id}"}}', [(_INSERT, (list_id, encoded, result.handle))]
