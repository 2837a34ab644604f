"""The check for leaks after every test finds each kind of leak."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from tests.support import leaks

linux = pytest.mark.skipif(sys.platform != "linux", reason="found on Linux only")


@contextmanager
def a_thread(home: Path) -> Generator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="forgotten")
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def a_process(home: Path) -> Generator[None]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def an_orphan(home: Path) -> Generator[None]:
    shell = subprocess.run(["sh", "-c", "sleep 1000 >&- 2>&- & echo $!"], capture_output=True, text=True)
    yield
    os.kill(int(shell.stdout), 9)


@contextmanager
def a_socket(home: Path) -> Generator[None]:
    with socket.create_server(("127.0.0.1", 0)):
        yield


@contextmanager
def a_file(home: Path) -> Generator[None]:
    with (home.parent / "file.txt").open("w"):
        yield


@contextmanager
def a_temporary_folder(home: Path) -> Generator[None]:
    with tempfile.TemporaryDirectory(prefix="delegate-"):
        yield


@contextmanager
def a_workspace(home: Path) -> Generator[None]:
    folder = home / "workspaces" / "0123456789abcdef"
    folder.mkdir(parents=True)
    yield
    folder.rmdir()


@contextmanager
def a_delegator(home: Path) -> Generator[None]:
    with Delegator(client=Scripted(["done"])) as delegator:
        delegator.run_sync(Task(goal="a"))
        yield


LEAKS: dict[str, tuple[Callable[[Path], AbstractContextManager[None]], str]] = {
    "thread": (a_thread, "thread: forgotten"),
    "process": (a_process, "process: "),
    "orphan": (an_orphan, "process: "),
    "socket": (a_socket, "socket: ('127.0.0.1', "),
    "file": (a_file, "open file: "),
    "temporary folder": (a_temporary_folder, "temporary: delegate-"),
    "workspace": (a_workspace, "workspace: 0123456789abcdef"),
    "delegator": (a_delegator, "thread: delegate-loop"),
}


@linux
@pytest.mark.parametrize("kind", LEAKS)
def test_what_is_left_is_named_until_it_is_gone(kind: str, home: Path, scratch: Path) -> None:
    leave, name = LEAKS[kind]
    watch = leaks.Watch(home, scratch, patience_seconds=0.05)
    with leave(home):
        assert any(line.startswith(name) for line in watch.left()), watch.left()
    assert leaks.Watch(home, scratch).left() == watch.left() == []


async def test_a_task_that_is_left_is_named() -> None:
    forgotten = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
    (line,) = await leaks.left_tasks()
    assert line.startswith("task: forgotten, ")
    forgotten.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await forgotten
    assert await leaks.left_tasks() == []


def test_a_workspace_that_a_result_names_may_stay(home: Path, scratch: Path) -> None:
    watch = leaks.Watch(home, scratch)
    writes = [Scripted.call("write_file", path="a.txt", content="a"), "wrote a file"]
    with Delegator(client=Scripted(writes)) as delegator:
        delegator.run_sync(Task(goal="a"))
    assert os.listdir(home / "workspaces")
    assert watch.left() == []
