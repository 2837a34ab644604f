"""The ledger: reserve, settle, refuse; a child's limits lie under its run's."""

import pytest

from delegate.errors import BudgetExceeded
from delegate.ledger import Ledger


def test_a_refusal_says_which_limit_and_what_is_left_and_costs_nothing() -> None:
    ledger = Ledger({"cost_usd": 1.0})
    ledger.reserve({"cost_usd": 0.6}).settle({"cost_usd": 0.5})
    pending = ledger.reserve({"cost_usd": 0.3})
    with pytest.raises(BudgetExceeded, match=r"cost_usd.*0\.5 of 1 spent, 0\.3 reserved, 0\.2 left"):
        ledger.reserve({"cost_usd": 0.25})
    pending.settle()
    ledger.reserve({"cost_usd": 0.5}).settle({"cost_usd": 0.5})
    assert ledger.spent["cost_usd"] == 1.0


def test_a_limit_of_the_run_stops_every_child_of_it() -> None:
    run = Ledger({"tokens": 100})
    first, second = Ledger({}, parent=run), Ledger({"tokens": 1_000}, parent=run)
    first.reserve({"tokens": 60}).settle({"tokens": 60})
    with pytest.raises(BudgetExceeded):
        second.reserve({"tokens": 50})
    second.reserve({"tokens": 40}).settle({"tokens": 40})
    assert run.spent["tokens"] == 100


def test_settling_twice_counts_once() -> None:
    ledger = Ledger({"model_calls": 2})
    reservation = ledger.reserve({"model_calls": 1})
    reservation.settle({"model_calls": 1})
    reservation.settle({"model_calls": 1})
    assert ledger.spent["model_calls"] == 1
