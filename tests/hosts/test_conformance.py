"""Plays every scenario in the agent loop of every host. Hosts that aren't installed are skipped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.driving import Scenario, driver_of
from tests.hosts.scenarios import SCENARIOS, Stage
from tests.hosts.world import World

HOSTS = sorted(path.stem for path in (Path(__file__).parent / "drivers").glob("[a-z]*.py"))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("host", HOSTS)
async def test_behaves_as_in_every_other_host(host: str, scenario: Scenario, use: Callable[[World], None]) -> None:
    driver = driver_of(host)
    if reason := driver.gaps.get(scenario):
        pytest.skip(f"gap: {reason}")
    await SCENARIOS[scenario](Stage(driver, use))
