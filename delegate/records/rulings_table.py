"""The table of rulings. They outlive the records of their tasks, since a judge is measured over months."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from pydantic import ValidationError

from delegate.records.aside import Statement
from delegate.types import Ruling

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS rulings (
    {", ".join(f"{name} {'REAL' if name == 'at' else 'TEXT'} NOT NULL" for name in Ruling.model_fields)},
    PRIMARY KEY (task, criterion, worker, judge, ruled_by)
);
CREATE INDEX IF NOT EXISTS rulings_by_time ON rulings (at);
CREATE VIEW IF NOT EXISTS rulings_in_force AS
    SELECT
        task, criterion, ruling, judged, ruled_by, decided_by, judge, judge_version, rubric_version, worker, kind,
        reason_code,
        CASE WHEN EXISTS (
            SELECT 1 FROM rulings AS other WHERE other.task = rulings.task AND other.criterion = rulings.criterion
            AND other.worker = rulings.worker AND other.judge = rulings.judge AND other.sampling = 'random'
        ) THEN 'random' ELSE 'chosen' END AS sampling,
        because, MAX(at) AS at
    FROM rulings GROUP BY task, criterion, worker, judge;
"""  # noqa: S608
"""`rulings_in_force` has the latest ruling where several people ruled on the same criterion. A criterion that was drawn
at random stays so when somebody else rules on it."""

_COLUMNS = tuple(Ruling.model_fields)
_NAMES = ", ".join(_COLUMNS)
# One that was drawn at random stays so when somebody changes their mind.
_INSERT = f"""
INSERT INTO rulings ({_NAMES}) VALUES ({", ".join("?" * len(_COLUMNS))})
ON CONFLICT (task, criterion, worker, judge, ruled_by) DO UPDATE SET
    ruling = excluded.ruling, judged = excluded.judged, judge_version = excluded.judge_version,
    reason_code = excluded.reason_code,
    sampling = CASE WHEN rulings.sampling = 'random' THEN 'random' ELSE excluded.sampling END,
    because = excluded.because, at = excluded.at
"""  # noqa: S608
_SELECT = f"SELECT {_NAMES} FROM rulings_in_force ORDER BY at, task, criterion"  # noqa: S608
_SELECT_OF = f"""
SELECT {_NAMES} FROM rulings
WHERE (?1 IS NULL OR task = ?1) AND (?2 IS NULL OR task IN (SELECT handle FROM tasks WHERE run_id = ?2)) ORDER BY at
"""  # noqa: S608
_SELECT_DISAGREEMENTS = """
SELECT COUNT(*), COALESCE(SUM(words > 1), 0) FROM (
    SELECT COUNT(DISTINCT ruled_by) AS rulers, COUNT(DISTINCT ruling) AS words FROM rulings GROUP BY task, criterion
) WHERE rulers > 1
"""
_SELECT_FALSE_PASSES = """
SELECT judge, judge_version, worker, COUNT(*), SUM(found_met), MAX(at) FROM (
    SELECT
        judge, judge_version, worker, MAX(judged IN ('met', 'trusted')) AS found_met, MAX(ruling = 'met') AS good,
        MAX(ruling = 'not_met') AS bad, MAX(at) AS at
    FROM rulings
    WHERE typeof(at) IN ('real', 'integer') AND decided_by = 'judge'
        AND judge <> '' AND judged NOT IN ('skipped', 'error')
    GROUP BY task, criterion, worker, judge, judge_version HAVING MAX(sampling = 'random')
) WHERE bad AND (found_met OR NOT good) GROUP BY judge, judge_version, worker
"""
# Where people disagree, what counts is what is worse for the judge: else who wants to clear one would rule anew on its
# false passes only.


class FalsePasses(NamedTuple):
    """How often one judge found met what was ruled not met, on the work of one model."""

    judge: str
    judge_version: str
    worker: str
    bad: int
    """The number of criteria that were ruled not met."""
    false_passes: int
    latest: float
    """When the latest of these rulings was made, in seconds since the epoch."""


def inserts(rulings: Sequence[Ruling]) -> list[Statement]:
    """The statements that store rulings. A second ruling by the same person replaces the first."""
    return [(_INSERT, tuple(getattr(ruling, name) for name in _COLUMNS)) for ruling in rulings]


def rulings(connection: sqlite3.Connection, task: str | None, run_id: str | None) -> list[Ruling]:
    """All rulings on a task, or on those of a run, by everybody, oldest first; or else the latest on each criterion.
    Those that are damaged are left out.
    """
    is_some = task is not None or run_id is not None
    rows = connection.execute(_SELECT_OF, (task, run_id)) if is_some else connection.execute(_SELECT)
    found: list[Ruling] = []
    for row in rows:
        with suppress(ValidationError):
            found.append(Ruling.model_validate(dict(zip(_COLUMNS, row, strict=True))))
    return found


def disagreements(connection: sqlite3.Connection) -> tuple[int, int]:
    """The number of criteria that several people ruled on, and on how many of these they disagree."""
    return connection.execute(_SELECT_DISAGREEMENTS).fetchone()


def false_passes(connection: sqlite3.Connection) -> list[FalsePasses]:
    """The false passes of all judges, by version and worker, over rulings on criteria drawn at random."""
    return [FalsePasses(*row) for row in connection.execute(_SELECT_FALSE_PASSES)]
