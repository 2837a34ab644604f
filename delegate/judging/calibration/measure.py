"""Measures judges: rates of false PASS and false FAIL with exact intervals, and kappa, by judge, version and worker.

Only rulings on criteria that were drawn at random say how often a judge is wrong. Those that somebody picked, such as
because a verdict looked odd, are measured apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from delegate.judging.calibration.statistics import (
    Interval,
    Table,
    clopper_pearson,
    kappa,
    kappa_interval,
    share,
    trials_until_below,
)
from delegate.types import PASSING, JsonObject, Ruling, Sampling

LIMITS = (0.10, 0.05, 0.02)
"""Rates of false PASS for which is said how many more rulings would show that a judge stays below."""
NOT_A_JUDGE = {"check": "(checks)", "trust": "(on trust)"}
"""Names for what decided a criterion without a judge."""
UNKNOWN = "(unknown)"
"""The name of a judge whose model isn't recorded."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The errors of one judge, on the work of one model or of all."""

    judge: str
    judge_version: str
    worker: str | None
    """None for all workers."""
    sampling: Sampling
    tasks: int
    table: Table
    false_pass: Interval | None
    """The exact 95 % interval of the false-PASS rate; None if nothing was ruled not met."""
    false_fail: Interval | None
    kappa: float | None
    kappa_interval: Interval | None
    more: dict[float, int | None]
    """How many more rulings would show that the false-PASS rate is below each of `LIMITS`, if errors go on as so far.
    None if it isn't, or if that isn't known yet."""
    latest: float
    """When the latest ruling was made, in seconds since the epoch."""

    @property
    def false_pass_rate(self) -> float | None:
        return share(self.table.false_pass, self.table.bad)

    @property
    def false_fail_rate(self) -> float | None:
        return share(self.table.false_fail, self.table.good)

    @property
    def accuracy(self) -> float | None:
        return share(self.table.true_pass + self.table.true_fail, self.table.n)

    @property
    def measured_on(self) -> date:
        return datetime.fromtimestamp(self.latest, UTC).date()

    def as_json(self) -> JsonObject:
        """All figures, with rates rounded to six digits."""
        return {
            "judge": self.judge,
            "judge_version": self.judge_version,
            "worker": self.worker,
            "sampling": self.sampling,
            "tasks": self.tasks,
            "n": self.table.n,
            **self.table._asdict(),
            "false_pass_rate": _rounded(self.false_pass_rate),
            "false_pass_interval": _limits(self.false_pass),
            "false_fail_rate": _rounded(self.false_fail_rate),
            "false_fail_interval": _limits(self.false_fail),
            "accuracy": _rounded(self.accuracy),
            "kappa": _rounded(self.kappa),
            "kappa_interval": _limits(self.kappa_interval),
            "rulings_until_below": {f"{limit:g}": more for limit, more in self.more.items()},
            "measured_on": self.measured_on.isoformat(),
        }


def measure(rulings: Sequence[Ruling]) -> list[Measured]:
    """One entry for each judge and version over all workers, followed by one for each worker. Random samples first."""
    groups = defaultdict[tuple[Sampling, str, str, str | None], list[Ruling]](list)
    for ruling in rulings:
        judge = (ruling.judge or UNKNOWN) if ruling.decided_by == "judge" else NOT_A_JUDGE.get(ruling.decided_by)
        if judge is None or ruling.judged in ("skipped", "error"):
            continue
        version = ruling.judge_version if ruling.decided_by == "judge" else ""
        groups[ruling.sampling, judge, version, None].append(ruling)
        groups[ruling.sampling, judge, version, ruling.worker].append(ruling)
    newest = {key[:3]: max(other.at for other in group) for key, group in groups.items() if key[3] is None}
    keys = sorted(
        groups, key=lambda key: (key[0] != "random", key[1], -newest[key[:3]], key[2], key[3] or "", key[3] is not None)
    )
    return [_measured(key, groups[key]) for key in keys]


def _measured(key: tuple[Sampling, str, str, str | None], rulings: Sequence[Ruling]) -> Measured:
    sampling, judge, version, worker = key
    # Two workers that did the same task did two pieces of work.
    by_task = defaultdict[tuple[str, str], list[tuple[bool, bool]]](list)
    for ruling in rulings:
        by_task[ruling.task, ruling.worker].append((ruling.ruling == "met", ruling.judged in PASSING))
    tasks = list(map(Table.of, by_task.values()))
    table = Table(*map(sum, zip(*tasks, strict=True)))
    return Measured(
        judge=judge,
        judge_version=version,
        worker=worker,
        sampling=sampling,
        tasks=len(tasks),
        table=table,
        false_pass=clopper_pearson(table.false_pass, table.bad) if table.bad else None,
        false_fail=clopper_pearson(table.false_fail, table.good) if table.good else None,
        kappa=kappa(table),
        kappa_interval=kappa_interval(tasks),
        more={limit: _more_rulings(table, limit) for limit in LIMITS},
        latest=max(ruling.at for ruling in rulings),
    )


def judge_name(judge: Measured, measured: Iterable[Measured]) -> str:
    """The judge, with its version if several are measured."""
    versions = {other.judge_version for other in measured if other.judge == judge.judge}
    version = judge.judge_version.removeprefix("sha256:")[:8]
    return f"{judge.judge} ({version or 'no version'})" if len(versions) > 1 else judge.judge


def _more_rulings(table: Table, limit: float) -> int | None:
    """Only criteria that are ruled not met tell, so as many more rulings are needed as there are others among them."""
    more = trials_until_below(limit, table.false_pass, table.bad)
    if not more:
        return more
    return -(-more * table.n // table.bad) if table.bad else None


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 6)


def _limits(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(interval.lower, 6), round(interval.upper, 6)]
