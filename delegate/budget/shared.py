"""Counts what all processes of a run use, by a file that each of them reads and writes under a lock."""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from delegate._util.file_lock import lock_file
from delegate._util.redaction import logger
from delegate.budget.ledger import Ledger
from delegate.types import JsonObject

_log = logger(__name__)
_LOCK_SECONDS = 1.0


class SharedAmounts:
    """The lock of a ledger whose run has several processes. Inside, the ledger has what the others use, and at the end
    they get what this one uses.
    """

    def __init__(self, ledger: Ledger, path: Path) -> None:
        self._ledger = ledger
        self._path: Path | None = path
        """None once it can't be used any more."""
        self._entered = 0
        self._fd: int | None = None
        self._state: JsonObject | None = None
        """What is in the file, while the lock is held."""
        self._posted: dict[str, float] = {}
        """What the file has of this process."""
        self._others: dict[str, float] = {}
        """What the ledger has of the others."""
        self._lock = ledger.take_lock(self)
        with self:
            pass

    def next_number(self) -> int:
        """The number of the run's next task."""
        with self:
            if self._state is None:
                return secrets.randbelow(2**40)
            self._state["tasks"] += 1
            return self._state["tasks"] - 1

    def __enter__(self) -> None:
        self._lock.__enter__()
        self._entered += 1
        if self._entered == 1:
            try:
                self._read()
            except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
                self._give_up(error)

    def __exit__(self, *error: Any) -> None:
        try:
            if self._entered == 1 and self._state is not None:
                self._write(self._state)
        except OSError as problem:
            self._give_up(problem)
        finally:
            self._entered -= 1
            if self._entered == 0 and self._fd is not None:
                os.close(self._fd)
                self._fd = None
            self._lock.__exit__(None, None, None)

    def _read(self) -> None:
        if self._path is None:
            return
        self._fd = os.open(self._path, os.O_RDWR)
        lock_file(self._fd, _LOCK_SECONDS)
        self._state = state = json.loads(os.pread(self._fd, 1 << 16, 0))
        for name, amount in state["amounts"].items():
            others = amount - self._posted.get(name, 0)
            if self._ledger.window:  # from now on it counts as used by this process, until the window has passed
                self._ledger.spend({name: others} if others else {})
                self._posted[name] = amount
                continue
            others = max(0.0, others)
            self._ledger.spent[name] = self._ledger.spent.get(name, 0) + others - self._others.get(name, 0)
            self._others[name] = others

    def _write(self, state: JsonObject) -> None:
        for name, used in self._ledger.used().items():
            own = used - self._others.get(name, 0)
            state["amounts"][name] = state["amounts"].get(name, 0) + own - self._posted.get(name, 0)
            self._posted[name] = own
        assert self._fd is not None
        os.pwrite(self._fd, json.dumps(state).ljust(os.fstat(self._fd).st_size).encode(), 0)

    def _give_up(self, error: Exception) -> None:
        """Count only what this process uses: a run must not end because of a file that its child can change."""
        _log.warning("what other processes of this run use can't be counted any more: %s: %s", self._path, error)
        self._path = self._state = None
