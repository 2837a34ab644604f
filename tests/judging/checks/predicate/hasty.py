"""Evaluation with a third of the time, so that tests of what needs too much of it don't wait for the real limits."""

import sys
from pathlib import Path

import pytest

from delegate.judging.checks.predicate.evaluate import evaluate
from delegate.judging.checks.worker import WorkerPool

_POOL = WorkerPool(str(Path(__file__).with_name("hasty_engine.py")))


def make_hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `evaluate` workers that serve `hasty_engine`, and half the time until they are killed."""
    module = sys.modules[evaluate.__module__]
    monkeypatch.setattr(module, "_workers", _POOL)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.35)
