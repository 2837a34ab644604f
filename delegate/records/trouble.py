"""What is wrong with a store that can't be written or read, and what helps."""

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from delegate.types.errors import DelegateError

Kind = Literal["full", "locked", "damaged", "not_writable", "failing", "other"]

_OF_SQLITE: dict[Kind, set[int]] = {
    "full": {sqlite3.SQLITE_FULL},
    "locked": {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL},
    "damaged": {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB},
    "not_writable": {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM},
    "failing": {sqlite3.SQLITE_IOERR},
}
_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
"""There can't be such a folder."""
_OF_SYSTEM: dict[Kind, set[int]] = {
    "full": {errno.ENOSPC, errno.EDQUOT},
    "not_writable": {errno.EROFS, errno.EACCES, errno.EPERM, *_NO_FOLDER},
    "failing": {errno.EIO, errno.EFBIG},
}
_FIXES: dict[Kind, str] = {
    "full": "free some space there, or set `home` (DELEGATE_HOME) to a folder on another disk",
    "locked": "another process keeps it locked: find it with `fuser -v {path}*`, and wait for its end or stop it",
    "damaged": "the file is damaged: `delegate runs --recover` saves what can be read of it",
    "not_writable": "set `home` (DELEGATE_HOME) to a writable folder",
    "failing": "its disk fails, or a limit on the size of files is reached: set `home` (DELEGATE_HOME) to another disk",
    "other": "set `home` (DELEGATE_HOME) to another folder",
}


class Trouble(NamedTuple):
    """An error of a store."""

    kind: Kind
    why: str
    """The error, in the words of SQLite or of the system."""
    fix: str

    def __str__(self) -> str:
        return f"{self.why}; {self.fix}"


def trouble_of(error: Exception, path: Path) -> Trouble:
    """What an error of the store in the file `path` means."""
    number = error.errno if isinstance(error, OSError) else (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    numbers = _OF_SYSTEM if isinstance(error, OSError) else _OF_SQLITE
    kinds: list[Kind] = [kind for kind, known in numbers.items() if number in known]
    kind = "locked" if isinstance(error, TimeoutError) else kinds[0] if kinds else "other"
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    why = "it is not a folder" if isinstance(error, FileExistsError) else why
    return Trouble(kind, why, _FIXES[kind].format(path=path))


@contextmanager
def explained(problem: str, path: Path) -> Generator[None]:
    """Raise what goes wrong with the store in the file `path` as a DelegateError that begins with the problem."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise DelegateError(f"{problem}: {trouble_of(error, path)}") from error
    except ValueError as error:  # text that isn't JSON, or can't be stored
        raise DelegateError(f"{problem}: {error}") from error
