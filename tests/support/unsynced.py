"""Leaves it to the system when the files of tests reach the disk, as no test cuts the power.

Each sync takes some milliseconds, and far longer while other programs use the disk.
"""

import os
import sqlite3
from functools import partial
from typing import Any


class _Connection(sqlite3.Connection):
    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous=NORMAL", "synchronous=OFF"), parameters)


def leave_unsynced() -> None:
    """From now on in this process."""
    sqlite3.connect = partial(sqlite3.connect, factory=_Connection)
    os.fsync = os.fdatasync = lambda fd: None
