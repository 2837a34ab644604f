"""Fixtures of the host tests. A framework may warn and keep threads; processes and workspaces must not remain.

If `DELEGATE_HOSTS_TABLE` is set, the results of the scenarios are written to that folder, for docs/hosts.md.
"""

import json
import os
import platform
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest

from delegate.policy.settings import Settings, load_settings
from tests.hosts import table
from tests.hosts.driving import driver_of
from tests.hosts.world import JUDGE, WORKER, World
from tests.support import leaks

_HERE = Path(__file__).parent
_TABLE = os.environ.get("DELEGATE_HOSTS_TABLE")
_NAME = "conformance"
_RESULTS: dict[tuple[str, str], dict[str, str]] = {}


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
            report.user_properties.append(
                (_NAME, json.dumps([*table.name_and_version(driver_of(host)), scenario, outcome]))
            )
    return report


def _outcome(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # skipped, with (file, line, reason)
        return report.longrepr[2].removeprefix("Skipped: ")
    return table.PASSED if report.passed else "no"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the results in the main process, which gets the reports of all workers."""
    for name, value in report.user_properties:
        if name == _NAME:
            host, version, scenario, outcome = json.loads(str(value))
            _RESULTS.setdefault((host, version), {})[scenario] = outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        for (host, version), outcomes in _RESULTS.items():
            table.HostResults(host, version, platform.python_version(), outcomes).save(Path(str(_TABLE)))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[World], None]:
    """Points the models' SDKs at a world's server."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)  # each client would take 20 ms to load its certificates
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))

    def use(world: World) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        monkeypatch.setenv("OPENAI_BASE_URL", world.server.openai_url)

    return use


@pytest.fixture
def settings() -> Settings:
    """Those of a delegator whose models are a world's."""
    return load_settings(model=WORKER, judge_model=JUDGE)


@pytest.fixture
async def world(use: Callable[[World], None]) -> AsyncGenerator[World]:
    """A parent that makes one call, with a model server that runs until the end of the test."""
    world = World([{"goal": "Find the answer."}])
    with world.server:
        use(world)
        yield world


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, home: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """Fails a test that leaves a process or a workspace of delegate behind."""
    watch = leaks.Watch(home, scratch)
    yield
    left = watch.left_of_ours()
    leaks.end_children()
    if left:
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
async def no_task_is_left() -> None:
    """Replaces the fixture that fails on unfinished tasks: a framework may leave its own."""
