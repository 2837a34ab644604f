"""Where contenders meet: one server process, one worker process per contender, rounds that take turns.

Taking turns matters more than repeating: on a shared machine a slow minute then slows all contenders alike.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import IO, Any, Self

PATIENCE = 120
"""Seconds that a worker may take for one figure."""


@dataclass(frozen=True)
class Row:
    """One line of the table: lower is better, and `limit` is the most that is fine."""

    what: str
    value: float
    limit: float
    beside: str
    """The other contenders' figures, for reference."""

    @property
    def ok(self) -> bool:
        return self.value <= self.limit


class Arena:
    """Use as a context manager. `quick` makes one short round of everything instead of several."""

    def __init__(self, workload: str, *, quick: bool) -> None:
        self._workload = workload
        self.quick = quick
        self.url = ""
        """The server's, while it serves. A path that begins with `/50ms` makes the model take 50 ms."""
        self._stack = ExitStack()
        self._workers: dict[tuple[str, int], _Worker] = {}

    def __enter__(self) -> Self:
        server = self._stack.enter_context(_Process("scripts.bench.server"))
        self.url = server.read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def rounds(
        self, names: Sequence[str], measure: str, *, rounds: int, delay_ms: int = 0, fresh: bool = False, **asked: Any
    ) -> dict[str, float]:
        """The median of each contender's figures, measured in turns."""
        figures: dict[str, list[float]] = {name: [] for name in names}
        if self.quick:
            rounds, asked = 1, {key: max(1, value // 4) if key == "repeat" else value for key, value in asked.items()}
        for _ in range(rounds):
            for name in names:
                figures[name].append(self._figure(name, delay_ms, fresh, {"measure": measure, **asked}))
        return {name: median(values) for name, values in figures.items()}

    def _figure(self, name: str, delay_ms: int, fresh: bool, asked: dict[str, Any]) -> float:
        url = f"{self.url}/{delay_ms}ms"
        if fresh:
            with _Worker(name, url, self._workload) as worker:
                return worker.ask(asked)
        worker = self._workers.get((name, delay_ms))
        if worker is None:
            worker = self._stack.enter_context(_Worker(name, url, self._workload))
            self._workers[name, delay_ms] = worker
        return worker.ask(asked)


class _Process:
    """A Python module as a process that is spoken to in lines."""

    def __init__(self, *args: str) -> None:
        self._args = args

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", *self._args]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
        """The next line. A process that stays silent too long is ended."""
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            line = self._stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise RuntimeError(f"{' '.join(self._args)} ended early; its words are above")
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
    def __init__(self, contender: str, url: str, workload: str) -> None:
        super().__init__("scripts.bench.worker", contender, url)
        self._workload = workload

    def __enter__(self) -> Self:
        super().__enter__()
        self.write(self._workload)
        return self

    def ask(self, asked: dict[str, Any]) -> float:
        self.write(json.dumps(asked))
        return float(self.read())
