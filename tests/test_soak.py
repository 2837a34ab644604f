"""The soak of `scripts/bench/measures/soak.py`, short: many delegations among faults, and nothing is left."""

from pathlib import Path

import pytest

from scripts.bench.measures.soak import SEED, Script, environment, soak
from tests.support.model_server import ModelServer


def test_among_faults_and_cancels_every_delegation_has_one_result_and_nothing_is_left(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(SEED)
    with ModelServer(script, record=False) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        found = soak(home, script, delegations=150, warm_up=0)
    assert (found.without_one_result, found.run_twice, found.left) == (0, 0, [])
    assert found.ends.total() == 150
    assert min(found.ends["PASS"], found.ends["cancelled"], found.ends["failed"]) > 3, "all of it was tried"
    assert found.faults > 20
