"""Adds the tokens of children and judges to Hermes's own usage tables, under the session that delegated."""

import logging
from dataclasses import dataclass
from typing import Any

from delegate.hosts.hermes.compat import hermes_attribute
from delegate.types import Report, TaskResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsageTable:
    """Hermes's table of auxiliary model calls. `database` is None if Hermes has no such table."""

    database: Any
    session_id: str
    include_judges: bool
    """False if Hermes makes the judges' calls: then it counts them itself."""

    @classmethod
    def of_current_turn(cls, *, include_judges: bool) -> "UsageTable":
        """The table for the turn that runs on this thread."""
        get_context = hermes_attribute("agent.aux_accounting", "get_accounting_context")
        database, session_id = (get_context() if get_context else None) or (None, "")
        supported = hasattr(database, "record_auxiliary_usage")
        return cls(database if supported else None, session_id, include_judges)

    def record(self, report: Report) -> None:
        """Add what a report's tasks used. An error is logged and doesn't fail the call."""
        if self.database is None:
            return
        try:
            for result in report.results:
                self._record(result)
        except Exception:
            _log.warning("Hermes could not record the token usage of a delegated task", exc_info=True)

    def _record(self, result: TaskResult) -> None:
        """Add what the child, what it delegated, and the judge used."""
        judge = result.verdict.judge if result.verdict else None
        judge_cost = judge.cost_usd if judge else 0
        child_cost = None if result.cost_usd is None or judge_cost is None else max(0.0, result.cost_usd - judge_cost)
        entries = [("delegate", result.model, result.usage, child_cost)]
        if result.delegated:
            entries.append(("delegate", None, result.delegated.child_usage + result.delegated.judge_usage, None))
        if judge and self.include_judges:
            entries.append(("judge", judge.model, judge.usage, judge.cost_usd))
        for task, model, usage, cost in entries:
            if usage.total_tokens:
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
