"""What is wrong with a store that can't be written or read, and what helps."""

import errno
import sqlite3
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["full", "locked", "damaged", "not_writable", "failing", "other"]

_OF_SQLITE: dict[int, Kind] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_PROTOCOL: "locked",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_READONLY: "not_writable",
    sqlite3.SQLITE_PERM: "not_writable",
    sqlite3.SQLITE_IOERR: "failing",
}
_OF_SYSTEM: dict[int, Kind] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EIO: "failing",
    errno.EFBIG: "failing",
    errno.EROFS: "not_writable",
    errno.EACCES: "not_writable",
    errno.EPERM: "not_writable",
    # There can't be such a folder.
    errno.ENOENT: "not_writable",
    errno.ENOTDIR: "not_writable",
    errno.EEXIST: "not_writable",
    errno.ENAMETOOLONG: "not_writable",
    errno.ELOOP: "not_writable",
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
    kind: Kind = "other"
    if isinstance(error, sqlite3.Error):
        kind = _OF_SQLITE.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, "other")
    elif isinstance(error, TimeoutError):
        kind = "locked"
    elif isinstance(error, OSError):
        kind = _OF_SYSTEM.get(error.errno or 0, "other")
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    why = "it is not a folder" if isinstance(error, FileExistsError) else why
    return Trouble(kind, why, _FIXES[kind].format(path=path))
