"""Frameworks are guests: what they warn of and what threads they keep is theirs; processes and workspaces are ours.

With `DELEGATE_HOSTS_TABLE` set, what the scenarios came to is written into that folder, for docs/hosts.md.
"""

import json
import os
import platform
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from tests.hosts import table
from tests.hosts.driving import driver_of
from tests.hosts.world import World
from tests.support import leaks

_HERE = Path(__file__).parent
_TABLE = os.environ.get("DELEGATE_HOSTS_TABLE")
_NAME = "conformance"
_FOUND: dict[tuple[str, str], dict[str, str]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _TABLE and call.when == "call" and isinstance(item, pytest.Function) and "scenario" in item.fixturenames:
        host, scenario = (str(item.callspec.params[name]) for name in ("host", "scenario"))
        if "isn't installed" not in (outcome := _outcome(report)):
            report.user_properties.append((_NAME, json.dumps([*table.told_of(driver_of(host)), scenario, outcome])))
    return report


def _outcome(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # skipped, with (file, line, reason)
        return report.longrepr[2].removeprefix("Skipped: ")
    return table.PASSED if report.passed else "no"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Seen where all reports come together, however many processes run the tests."""
    for name, value in report.user_properties:
        if name == _NAME:
            host, version, scenario, outcome = json.loads(str(value))
            _FOUND.setdefault((host, version), {})[scenario] = outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        for (host, version), outcomes in _FOUND.items():
            table.Found(host, version, platform.python_version(), outcomes).save(Path(str(_TABLE)))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Points the models' SDKs at a world's server."""

    def use(world: World) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        monkeypatch.setenv("OPENAI_BASE_URL", world.server.openai_url)

    return use


@pytest.fixture
async def world(use: Callable[[World], None]) -> AsyncGenerator[World]:
    """A parent that makes one call, at a server that serves as long as the test lasts."""
    world = World([{"goal": "Find the answer."}])
    with world.server:
        use(world)
        yield world


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, home: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """No process and no workspace of ours outlives its test."""
    watch = leaks.Watch(home, scratch)
    yield
    left = watch.left_of_ours()
    leaks.end_children()
    if left:
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
async def no_task_is_left() -> None:
    """A framework's own tasks end when they end."""
