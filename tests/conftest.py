"""Fixtures for every test: no keys in the environment, no connections to other machines, a separate home folder, and a
check for leaks.
"""

import asyncio
import gc
import ipaddress
import os
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from pytest_asyncio import is_async_test

from tests.support import leaks
from tests.support.unsynced import leave_unsynced

# How long an example takes says nothing on a machine that others use as well.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
_OURS = re.compile(r"(API_KEY|BASE_URL|_TOKEN)$|^(DELEGATE|OPENAI|ANTHROPIC|GEMINI|GOOGLE)_|_PROXY$", re.IGNORECASE)


def _refuse_remote_connections(event: str, args: tuple[object, ...]) -> None:
    """An audit hook: a test that connects to another machine fails, regardless of the library it uses."""
    leaks.note(event)
    if event != "socket.connect" or not isinstance(address := args[1], tuple):
        return
    host = str(address[0])  # pyright: ignore[reportUnknownArgumentType]
    if host != "localhost" and not ipaddress.ip_address(host.split("%")[0]).is_loopback:
        raise RuntimeError(f"a test tried to connect to {host}")


sys.addaudithook(_refuse_remote_connections)
# The Python that commands find. A launcher of several versions, like pyenv's, is a script that starts others before it.
os.environ["PATH"] = os.pathsep.join([str(sysconfig.get_config_var("BINDIR")), os.environ["PATH"]])
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with SIGINT ignored
leaks.adopt_orphans()
leave_unsynced()
_OF_CI = frozenset({"CI", "GITHUB_ACTIONS", "BUILDKITE", "TF_BUILD", "TEAMCITY_VERSION", "GITLAB_CI"})
"""What says that output is a log of CI, in which it is escaped."""
_MEMORY = "/dev/shm"
_MEMORY_BYTES = 1 << 30
if os.access(_MEMORY, os.W_OK) and (_there := os.statvfs(_MEMORY)).f_bavail * _there.f_frsize > _MEMORY_BYTES:
    # pytest's folders in memory: on a disk, a fifth of the time is for making and removing files.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)
gc.disable()  # until everything is collected: what is loaded by then stays


class _Users:
    """Folders of users, one per test. What a test left as it was is given to the next: making folders takes longer than
    most tests do.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._made = 0

    def next(self) -> Path:
        """A folder with nothing but an empty `cwd` in it."""
        around = self._place / str(self._made)
        if os.path.isdir(around):
            if os.listdir(around) == ["cwd"] and not os.listdir(around / "cwd"):
                return around
            shutil.rmtree(around, ignore_errors=True)
            self._made += 1
            around = self._place / str(self._made)
        (around / "cwd").mkdir(parents=True)
        return around


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> _Users:
    return _Users(tmp_path_factory.mktemp("user"))


@pytest.fixture(autouse=True)
def home(users: _Users, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test its own DELEGATE_HOME, configuration and working folder, without the developer's keys.

    They are outside of `tmp_path`, which many tests use as the workspace: records that are written there would be work.
    """
    for name in list(os.environ):
        if _OURS.search(name) or name in _OF_CI:
            monkeypatch.delenv(name)
    os.chdir(tempfile.gettempdir())  # the system frees a folder when nobody is in it
    around = users.next()
    monkeypatch.setenv("DELEGATE_HOME", str(around / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(around / "config"))
    os.chdir(around / "cwd")
    return around / "home"


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of garbage collections: with thousands of tests, each full one takes a second."""
    gc.freeze()
    gc.enable()


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check the event loop of every async test. The fixture set up first is torn down last."""
    for item in items:
        if is_async_test(item):
            item.fixturenames.insert(0, "no_task_is_left")


@pytest.fixture(scope="session")
def scratch() -> Generator[Path]:
    """A folder for temporary files. Its path is short because paths of sockets can have only 107 characters."""
    with tempfile.TemporaryDirectory(prefix="dlg") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, home: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """Fail if a process, thread, open file, socket or temporary folder outlives its test."""
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    watch = leaks.Watch(home, scratch)
    yield
    left = watch.left()
    leaks.end_children()
    _fail_if_left(left, request)


@pytest.fixture
def no_task_is_left(
    request: pytest.FixtureRequest, nothing_is_left: None, _function_scoped_runner: asyncio.Runner
) -> Generator[None]:
    """Fail if a task is still running on the test's event loop, which pytest-asyncio's own fixture runs."""
    yield
    _fail_if_left(_function_scoped_runner.run(leaks.left_tasks()), request)


def _fail_if_left(left: list[str], request: pytest.FixtureRequest) -> None:
    if left and not request.node.stash.get(_FAILED, False):  # one failure is enough
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)
