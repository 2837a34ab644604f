"""Plays every scenario in the agent loop of every host. Hosts that aren't installed are skipped."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.driving import Scenario, driver_of, is_installed
from tests.hosts.scenarios import SCENARIOS, Stage
from tests.hosts.world import World

HOSTS = sorted(path.stem for path in (Path(__file__).parent / "drivers").glob("[a-z]*.py"))
SYNC = "anthropic_runner_sync"
"""It differs from `anthropic_runner` only in how it is called: a few scenarios show what could break in it alone."""
OF_SYNC = ("batch", "bad_arguments", "cancel_in_flight", "usage_counted", "four_calls_in_one_turn", "parent_tools_used")


def plays() -> list[tuple[str, str]]:
    """Each host with each scenario; a host that isn't installed once, to say so."""
    every = [(host, scenario) for host in HOSTS for scenario in SCENARIOS if is_installed(host) or scenario == "single"]
    wanted = SCENARIOS if os.environ.get("DELEGATE_HOSTS_TABLE") else OF_SYNC
    return [(host, scenario) for host, scenario in every if host != SYNC or scenario in wanted]


@pytest.mark.parametrize(("host", "scenario"), plays())
async def test_behaves_as_in_every_other_host(host: str, scenario: Scenario, use: Callable[[World], None]) -> None:
    driver = driver_of(host)
    if reason := driver.gaps.get(scenario):
        pytest.skip(f"gap: {reason}")
    await SCENARIOS[scenario](Stage(driver, use))
