"""Counts the tokens of children and judges in Hermes's own usage tables, under the session that delegated."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from delegate.hosts.hermes.borrowed import borrow
from delegate.types import Report, TaskResult, Usage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where the running turn's side calls are counted. `database` is None where Hermes keeps no such table."""

    database: Any
    session_id: str
    judges: bool
    """Whether judges are counted too: those that Hermes calls for us, it counts itself."""

    @classmethod
    def of_this_turn(cls, *, judges: bool) -> "Accounts":
        """Those of the turn that is running on this thread."""
        known = (borrow("agent.aux_accounting", "get_accounting_context") or (lambda: None))()
        database, session_id = known or (None, "")
        return cls(database if hasattr(database, "record_auxiliary_usage") else None, session_id, judges)

    def book(self, report: Report) -> None:
        """Count what a report's tasks used. A failure costs the count, not the call."""
        if self.database is None:
            return
        try:
            for result in report.results:
                for task, model, usage, cost in self._spent(result):
                    self._record(task, model, usage, cost)
        except Exception:
            _log.warning("Hermes did not take the tokens of a delegated task", exc_info=True)

    def _spent(self, result: TaskResult) -> Iterator[tuple[str, str | None, Usage, float | None]]:
        judge = result.verdict.judge if result.verdict else None
        judged = judge.cost_usd if judge else 0
        child_cost = None if result.cost_usd is None or judged is None else max(0.0, result.cost_usd - judged)
        yield "delegate", result.model, result.usage, child_cost
        if result.delegated:
            yield "delegate", None, result.delegated.child_usage + result.delegated.judge_usage, None
        if judge and self.judges:
            yield "judge", judge.model, judge.usage, judge.cost_usd

    def _record(self, task: str, model: str | None, usage: Usage, cost: float | None) -> None:
        if not usage.total_tokens:
            return
        self.database.record_auxiliary_usage(
            self.session_id,
            task,
            model=model or "unknown",
            input_tokens=usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            estimated_cost_usd=cost,
        )
