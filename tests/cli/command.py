"""Runs the real command: with the environment of the test, and in this process where that is enough."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from delegate.cli import main, terminations
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

COMMAND = [sys.executable, "-m", "delegate"]
"""For tests of start-up, of signals and of what the interpreter does."""
_READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ")
"""The beginnings of variables that an interpreter heeds only when it starts."""


def delegate(*arguments: str, stdin: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `delegate …` to its end, in this process, and assert that it shows no traceback.

    Its streams are pipes, also for the processes that it starts, and COLUMNS is not set unless it is passed in
    `environment`. It takes a fifth of the time of `delegate_process`, which is for several at once (in threads), and
    for what depends on a process.
    """
    beside_others = threading.current_thread() is not threading.main_thread()
    if beside_others or any(name.startswith(_READ_AT_START) for name in environment):
        return delegate_process(*arguments, stdin=stdin, **environment)
    with patch.dict(os.environ, environment), _Streams(stdin) as streams:
        if "COLUMNS" not in environment:
            os.environ.pop("COLUMNS", None)
        status = _main(arguments)
    return _without_traceback(subprocess.CompletedProcess(["delegate", *arguments], status, *streams.printed))


def delegate_process(
    *arguments: str, stdin: str | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Like `delegate`, in a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [*warm.delegate(), *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,  # of a test that hangs; trying all attacks takes long where much else runs
        env={**inherited, **environment},
    )
    return _without_traceback(done)


def _without_traceback(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def _main(arguments: Sequence[str]) -> int:
    """The exit code. What the command changes in its process is as before afterwards."""
    terminations.clear()
    handlers, on_sigterm = list(logging.getLogger().handlers), signal.getsignal(signal.SIGTERM)
    run = _beside_the_loop if _is_in_a_loop() else main
    try:
        with patch.object(sys, "argv", ["delegate", *arguments]), pytest.raises(SystemExit) as end:
            run()
    finally:
        logging.getLogger().handlers[:] = handlers
        signal.signal(signal.SIGTERM, on_sigterm)
    assert isinstance(end.value.code, int)
    return end.value.code


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _beside_the_loop() -> None:
    """In a thread, since a thread can't run a loop of its own inside of another one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(main).result()


class _Streams:
    """Inside of a `with` block, pipes in place of stdin, stdout and stderr."""

    def __init__(self, stdin: str | None) -> None:
        self._stdin = stdin
        self.printed: list[str] = []

    def __enter__(self) -> "_Streams":
        self._stack = ExitStack()
        self._threads = ThreadPoolExecutor(3)
        self._reading: list[Future[str]] = []
        sys.stdout.flush()
        sys.stderr.flush()
        for fd in (1, 2):
            ours, theirs = os.pipe()
            self._reading.append(self._threads.submit(_read, ours))
            self._replace(fd, theirs)
        if self._stdin is None:
            self._replace(0, os.open(os.devnull, os.O_RDONLY))
        else:
            theirs, ours = os.pipe()
            self._threads.submit(_write, ours, self._stdin)
            self._replace(0, theirs)
        streams = {
            "stdin": open(0, encoding="utf-8", closefd=False),
            "stdout": open(1, "w", encoding="utf-8", closefd=False),
            "stderr": open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False),
        }
        self._stack.enter_context(patch.dict(vars(sys), {**streams, **{f"__{n}__": s for n, s in streams.items()}}))
        return self

    def _replace(self, fd: int, by: int) -> None:
        before = os.dup(fd)
        os.dup2(by, fd)
        os.close(by)

        def restore() -> None:
            os.dup2(before, fd)
            os.close(before)

        self._stack.callback(restore)

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._stack.close()
        self.printed = [one.result() for one in self._reading]
        self._threads.shutdown()


def _read(fd: int) -> str:
    with open(fd, encoding="utf-8", newline=None) as pipe:
        return pipe.read()


def _write(fd: int, text: str) -> None:
    with open(fd, "w", encoding="utf-8") as pipe:
        pipe.write(text)


def openai_at(server: ModelServer) -> dict[str, str]:
    """The environment variables that direct calls of OpenAI models to `server`."""
    return {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "sk-dummy-1234"}


def worker(report: str = "I wrote `note.md`, which greets the reader.", judged: Sequence[str] = ("met",)) -> Any:
    """A script in which every child writes note.md and the judge quotes the note for its criteria c1, c2, …"""

    def script(call: Call) -> Reply:
        if call.wants_json:
            answers = [
                {"id": f"c{n}", "evidence": "hello reader", "reason": "It is there.", "verdict": verdict}
                for n, verdict in enumerate(judged, start=1)
            ]
            return Reply(json.dumps({"answers": answers}), input_tokens=900, output_tokens=60)
        if not call.tool_results:
            return Reply(tool_calls=(("write_file", {"path": "note.md", "content": "hello reader\n"}),))
        return Reply(report, input_tokens=400, output_tokens=30)

    return script


def output_of(terminal: int) -> str:
    """All output to the terminal until its other side is closed."""
    found = bytearray()
    try:
        while chunk := os.read(terminal, 65_536):
            found += chunk
    except OSError:  # raised on Linux when the other side is closed
        pass
    return found.decode(errors="replace")
