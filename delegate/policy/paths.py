"""Follows the paths in arguments to what they are paths of: through links and `..`, out of a `file:` URL."""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from glob import escape, iglob
from itertools import islice
from os.path import expanduser, join, lexists, normpath
from urllib.parse import unquote

MAX_NAMES = 100
"""How many names a `*` may stand for. More aren't known."""
NOWHERE = "/\uffff"
"""A folder that no pattern is about."""
_MAX_CHARS = 4_096
_MAX_LINKS = 40
"""Longer chains of links aren't followed; the system doesn't either."""
_MOST_LOOKED_AT = 20_000
"""Among so many files it is tried to find the other names of one."""
_CURRENT_FOLDER = re.compile(r"/proc/(self|thread-self|\d+)(/task/\d+)?/cwd")
"""The folder in which a command runs, under another name."""
_URL = re.compile(r"(?i)(?!file:)[a-z][a-z0-9+.-]*://")
_FILE_URL = re.compile(r"(?i)file:(//[^/]*(?=/))?")
_WORD = re.compile(r"(-{0,2}[\w.-]+=|@)?(.+)", re.DOTALL)


def is_path(text: str) -> bool:
    """Whether a text could be a path."""
    return 0 < len(text) <= _MAX_CHARS and not re.search(r"[\0\n]", text) and not _URL.match(text)


def real_path(folder: str, path: str, links: Mapping[str, str] | None = None) -> str:
    """The absolute path of `path` in `folder`, with links and `..` followed; it need not exist.

    `links` are paths that will be links to others, or copies of them.
    """
    waiting, at, followed = join(folder, _plain(path)).split("/")[::-1], "", 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        at = f"{at}/{part}"
        target = folder if _CURRENT_FOLDER.fullmatch(at) else (links or {}).get(at)
        if not target:
            with suppress(OSError, ValueError):  # it is no link
                target = os.readlink(at)
        if not target or followed >= _MAX_LINKS:
            continue
        followed += 1
        at = "" if target.startswith("/") else at.rpartition("/")[0]
        waiting += target.split("/")[::-1]
    return at or "/"


def other_names(root: str, path: str) -> tuple[list[str], bool]:
    """The other names that a file with hard links has in the folder `root`, and whether these are all it has."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return [], True
    if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2 or not root:
        return [], True
    key = root, status.st_dev, status.st_ino, status.st_nlink, status.st_ctime_ns  # a new name changes the last
    names = _names_of(*key)
    if not all(map(lexists, names)):  # a folder was renamed
        _names_of.cache_clear()
        names = _names_of(*key)
    return [name for name in names if name != path], len({*names, path}) >= status.st_nlink


@lru_cache(256)
def _names_of(root: str, device: int, inode: int, links: int, changed_ns: int) -> tuple[str, ...]:
    """The names of a file in a folder, as far as they are found soon."""
    names: list[str] = []
    waiting, remaining = [root], _MOST_LOOKED_AT
    while waiting and remaining > 0 and len(names) < links:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                remaining -= 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.inode() == inode and entry.stat(follow_symlinks=False).st_dev == device:
                    names.append(entry.path)
    return tuple(names)


def below(root: str, path: str) -> str:
    """An absolute path as one in the folder `root`, if it is there."""
    if root and path == root:
        return "."
    return path.removeprefix(f"{root.rstrip('/')}/") if root else path


def readings(root: str, path: str) -> dict[str, None]:
    """What else names the same file: the path without `..`, with links followed. Relative to `root` where it is there.

    In an ordered set.
    """
    if not root or not is_path(path):
        return {}
    return dict.fromkeys(below(root, real) for real in (normpath(join(root, _plain(path))), real_path(root, path)))


def is_followed(root: str, path: str) -> bool:
    """Whether a path leads elsewhere than it says: through a link or `..`, or as a URL."""
    if not root or (match := _WORD.fullmatch(path)) is None or not is_path(path := match[2]):
        return False
    plain = _plain(path)
    return plain != path or ".." in plain.split("/") or real_path(root, path) != normpath(join(root, plain))


def resolved_word(
    root: str, folder: str, word: str, place: str = "", *, sure: bool = False, links: Mapping[str, str] | None = None
) -> str:
    """A word of a command that runs in `folder`, with its path as one in `root`, written from `place` on.

    Words that aren't the path of anything there stay as they are, unless it is `sure` that they are paths.
    """
    match = _WORD.fullmatch(word)
    if not root or match is None or not is_path(match[2]):
        return word
    before, path = match[1] or "", match[2]
    plain = _plain(path)
    if not (sure or "/" in plain or lexists(join(folder, plain)) or (links and join(folder, plain) in links)):
        return word
    inside = below(root, real_path(folder, path, links))
    return before + (join(place, inside) if inside != "." else place or inside)


def expanded(folder: str, word: str, active: dict[str, str]) -> list[str] | None:
    """The names that exist for a word with `*`, `?` or `[…]`, which `active` has as markers. None: it isn't known."""
    pattern = "".join(active.get(char) or escape(char) for char in word)
    if not folder or sum(any(marker in part for marker in active) for part in word.split("/")) > 2:
        return None
    names = list(islice(iglob(pattern, root_dir=folder), MAX_NAMES + 1))
    return sorted(names) if len(names) <= MAX_NAMES else None


def ignores_case(folder: str) -> bool:
    """Whether the file system of `folder` takes a name in other letters for the same one."""
    at = folder
    while at.strip("/"):
        parent, _, name = at.rpartition("/")
        if (other := name.swapcase()) != name:
            try:
                return os.path.samefile(at, f"{parent}/{other}")
            except OSError:
                if lexists(at):
                    return False
        at = parent
    return False


def _plain(path: str) -> str:
    """A path without the scheme of a `file:` URL, and with the home folder in place of `~`."""
    if match := _FILE_URL.match(path):
        path = unquote(path[match.end() :])
    return expanduser(path) if path.startswith("~") and "\0" not in path else path
