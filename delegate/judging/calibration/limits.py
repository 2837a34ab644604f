"""Keeps the table of judges that may decide alone, and renews it when somebody has ruled.

Each verdict asks for the table, so it is kept, and rulings by other processes are looked for every few seconds.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime

from delegate._util.redaction import logger
from delegate.judging.calibration.statistics import clopper_pearson, trials_until_below
from delegate.models.catalog import Model
from delegate.models.false_pass import FalsePassTable
from delegate.records.history import Records
from delegate.records.rulings_table import FalsePasses
from delegate.types import FalsePassRate
from delegate.types.errors import DelegateError

REFRESH_SECONDS = 5.0
_log = logger(__name__)


class JudgeLimits:
    """The table for one value of `max_false_pass`.

    `version_of` returns the digest of how a model judges today. Rulings on what it judged otherwise don't count, since
    another prompt may err in another way. `catalog` has the models that may judge, and what was measured elsewhere of
    those without rulings here.
    """

    def __init__(
        self, records: Records, limit: float, version_of: Callable[[str], str], catalog: Iterable[Model]
    ) -> None:
        self._records = records
        self._limit = limit
        self._version_of = version_of
        self._models = {model.id: model for model in catalog}
        self._counts: list[FalsePasses] = []
        self._table: FalsePassTable | None = None
        self._checked = -REFRESH_SECONDS

    def refresh(self) -> None:
        """Look for new rulings before the next verdict."""
        self._checked = -REFRESH_SECONDS

    async def table(self) -> FalsePassTable:
        """The table as of at most `REFRESH_SECONDS` ago. If the records can't be read, no judge decides alone."""
        table, now = self._table, time.monotonic()
        if table is not None and now - self._checked < REFRESH_SECONDS:
            return table
        try:
            counts = sorted(await self._records.false_passes())
            if table is None or counts != self._counts:  # else the table stays, and with it the routing that is cached
                table = self._computed(counts)
                self._counts, self._table = counts, table
            self._checked = now
        except DelegateError as error:
            _log.warning("no judge decides alone: %s", error)
            return FalsePassTable(self._limit, {})
        return table

    def _computed(self, counts: Iterable[FalsePasses]) -> FalsePassTable:
        by_pair = defaultdict[tuple[str, str | None], list[tuple[int, int, date | None]]](list)
        for count in counts:
            if count.judge in self._models and count.judge_version == self._version_of(count.judge):
                ruled = count.bad, count.false_passes, datetime.fromtimestamp(count.latest, UTC).date()
                by_pair[count.judge, None].append(ruled)
                if count.worker:
                    by_pair[count.judge, count.worker].append(ruled)
        for id, model in self._models.items():
            accuracy = model.judge_accuracy
            if accuracy and (id, None) not in by_pair and accuracy.judge_version == self._version_of(id):
                by_pair[id, None] = [(accuracy.bad, accuracy.false_passes, accuracy.measured_on)]
        rates = {pair: self._rate(*pair, pair_counts) for pair, pair_counts in by_pair.items()}
        return FalsePassTable(self._limit, {pair: rate for pair, rate in rates.items() if rate is not None})

    def _rate(self, judge: str, worker: str | None, counts: list[tuple[int, int, date | None]]) -> FalsePassRate | None:
        """The rate; None for a pair with so few rulings that its own could neither clear the judge nor condemn it."""
        bad, errors = sum(bad for bad, _, _ in counts), sum(false_passes for _, false_passes, _ in counts)
        if not bad:
            return None
        interval = clopper_pearson(errors, bad)
        if worker is not None and bad < (trials_until_below(self._limit, 0, 0) or 1) and interval.lower < self._limit:
            return None
        return FalsePassRate(
            judge=judge,
            worker=worker,
            n=bad,
            false_passes=errors,
            upper=round(interval.upper, 6),
            limit=self._limit,
            measured_on=max((on for _, _, on in counts if on), default=None),
        )
