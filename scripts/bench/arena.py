"""Measures the contenders in alternating rounds, with one server process and one worker process per contender.

Alternating matters more than repeating: on a shared machine, a slow minute then affects all contenders equally.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import IO, Any, Self

TIMEOUT_SECONDS = 120
"""Maximum time of a worker for one figure."""


@dataclass(frozen=True)
class Row:
    """One line of the table. Lower is better; `limit` is the maximum allowed value."""

    what: str
    value: float
    limit: float
    note: str
    """Additional figures, such as those of the other contenders."""

    @property
    def ok(self) -> bool:
        return self.value <= self.limit


class Arena:
    """Runs the server and the workers; use it as a context manager. `quick` runs one short round instead of several.

    A contender whose name starts with `before:` is the one of the checkout `before`.
    """

    def __init__(self, workload: str, *, quick: bool, before: Path | None = None) -> None:
        self._workload = workload
        self._before = before
        self.quick = quick
        self.url = ""
        """The server's address while it runs. With a path that starts with `/50ms`, the model takes 50 ms per call."""
        self._stack = ExitStack()
        self._workers: dict[tuple[str, int], _Worker] = {}

    def __enter__(self) -> Self:
        server = self._stack.enter_context(_Process("scripts.bench.server"))
        self.url = server.read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def rounds(self, names: Sequence[str], measure: str, **options: Any) -> dict[str, float]:
        """Return the median of each contender's `figures`."""
        return {name: median(values) for name, values in self.figures(names, measure, **options).items()}

    def figures(
        self,
        names: Sequence[str],
        measure: str,
        *,
        rounds: int,
        delay_ms: int = 0,
        fresh: bool = False,
        cold: bool = False,
        **options: Any,
    ) -> dict[str, list[float]]:
        """Return each contender's figures, measured in alternating rounds.

        With `fresh`, each figure comes from a new process; with `cold`, also from one that has made no call yet.
        """
        figures: dict[str, list[float]] = {name: [] for name in names}
        if self.quick:
            rounds = 1
            options = {key: max(1, value // 4) if key == "repeat" else value for key, value in options.items()}
        for _ in range(rounds):
            for name in names:
                request = {"measure": measure, **options}
                figures[name].append(
                    self._cold_figure(name, delay_ms, request) if cold else self._figure(name, delay_ms, fresh, request)
                )
        return figures

    def _cold_figure(self, name: str, delay_ms: int, request: dict[str, Any]) -> float:
        started = time.monotonic()
        with self._worker(name, delay_ms, "cold") as worker:
            return worker.measure(request | {"process_started": started})

    def _figure(self, name: str, delay_ms: int, fresh: bool, request: dict[str, Any]) -> float:
        if fresh:
            with self._worker(name, delay_ms) as worker:
                return worker.measure(request)
        worker = self._workers.get((name, delay_ms))
        if worker is None:
            worker = self._stack.enter_context(self._worker(name, delay_ms))
            self._workers[name, delay_ms] = worker
        return worker.measure(request)

    def _worker(self, name: str, delay_ms: int, *options: str) -> "_Worker":
        folder = self._before if name.startswith("before:") else None
        url = f"{self.url}/{delay_ms}ms"
        return _Worker(name.removeprefix("before:"), url, *options, workload=self._workload, folder=folder)


class _Process:
    """A Python module run as a process, with which lines are exchanged."""

    def __init__(self, *args: str, folder: Path | None = None) -> None:
        self._args = args
        self._folder = folder

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", *self._args]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self._folder
        )
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in (self._stdin, self._stdout):
            pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def write(self, line: str) -> None:
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def read(self) -> str:
        """Return the next line. A process that takes too long is killed."""
        watchdog = threading.Timer(TIMEOUT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            line = self._stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise RuntimeError(f"{' '.join(self._args)} ended early; see its output above")
        return line.strip()

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


class _Worker(_Process):
    def __init__(self, contender: str, url: str, *options: str, workload: str, folder: Path | None) -> None:
        super().__init__("scripts.bench.worker", contender, url, *options, folder=folder)
        self._workload = workload

    def __enter__(self) -> Self:
        super().__enter__()
        self.write(self._workload)
        return self

    def measure(self, request: dict[str, Any]) -> float:
        self.write(json.dumps(request))
        return float(self.read())
