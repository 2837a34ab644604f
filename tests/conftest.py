"""What holds in every test: no key in the environment, no connection off this machine, a home of its own, and nothing
that is left behind.
"""

import ipaddress
import os
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from pytest_asyncio import is_async_test

from tests.support import leaks

_OURS = re.compile(r"(API_KEY|BASE_URL|_TOKEN)$|^(DELEGATE|OPENAI|ANTHROPIC|GEMINI|GOOGLE)_|_PROXY$", re.IGNORECASE)


def _refuse_the_world(event: str, args: tuple[object, ...]) -> None:
    """An audit hook: a test that reaches for an address off this machine fails, whatever library it uses."""
    leaks.note(event)
    if event != "socket.connect" or not isinstance(address := args[1], tuple):
        return
    host = str(address[0])  # pyright: ignore[reportUnknownArgumentType]
    if host != "localhost" and not ipaddress.ip_address(host.split("%")[0]).is_loopback:
        raise RuntimeError(f"a test tried to connect to {host}")


sys.addaudithook(_refuse_the_world)
leaks.adopt_orphans()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has its own DELEGATE_HOME and working directory, and none of the developer's keys."""
    for name in list(os.environ):
        if _OURS.search(name):
            monkeypatch.delenv(name)
    folder, work = tmp_path / "home", tmp_path / "cwd"
    work.mkdir()
    monkeypatch.setenv("DELEGATE_HOME", str(folder))
    monkeypatch.chdir(work)
    return folder


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Look at the loop of every test that has one. First set up is last torn down."""
    for item in items:
        if is_async_test(item):
            item.fixturenames.insert(0, "no_task_is_left")


@pytest.fixture(scope="session")
def scratch() -> Generator[Path]:
    """For temporary files. Its path is short, since those of sockets may have only 107 characters."""
    with tempfile.TemporaryDirectory(prefix="dlg") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, home: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """No process, thread, open file, socket or temporary folder outlives its test."""
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    watch = leaks.Watch(home, scratch)
    yield
    left = watch.left()
    leaks.end_children()
    _fail_where(left, request)


@pytest.fixture
async def no_task_is_left(request: pytest.FixtureRequest, nothing_is_left: None) -> AsyncGenerator[None]:
    """Nothing runs on the test's event loop any more."""
    yield
    _fail_where(await leaks.left_tasks(), request)


def _fail_where(left: list[str], request: pytest.FixtureRequest) -> None:
    if left and not request.node.stash.get(_FAILED, False):  # one failure is enough
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)
