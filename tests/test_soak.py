"""A short run of the soak test in `scripts/bench/measures/soak.py`: many delegations with faults and no leaks."""

from pathlib import Path

import pytest

from scripts.bench.measures.soak import SEED, Script, environment, soak
from tests.support.model_server import ModelServer


@pytest.mark.slow
def test_with_faults_and_cancels_each_delegation_has_one_result(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(SEED)
    with ModelServer(script, record=False) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        found = soak(home, script, delegations=100, warm_up=0)
    assert (found.without_one_result, found.run_twice, found.left) == (0, 0, [])
    assert found.ends.total() == 100
    assert min(found.ends["PASS"], found.ends["cancelled"], found.ends["failed"]) > 1, "all of it was tried"
    assert found.faults > 10
