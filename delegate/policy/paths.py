"""Follows the paths in arguments to what they are paths of: through links and `..`, out of a `file:` URL."""

import os
import re
from glob import escape, iglob
from itertools import islice
from os.path import expanduser, join, lexists, normpath, realpath
from urllib.parse import unquote

MAX_NAMES = 100
"""How many names a `*` may stand for. More aren't known."""
NOWHERE = "/\uffff"
"""A folder that no pattern is about."""
_MAX_CHARS = 4_096
_URL = re.compile(r"(?i)(?!file:)[a-z][a-z0-9+.-]*://")
_FILE_URL = re.compile(r"(?i)file:(//[^/]*(?=/))?")
_WORD = re.compile(r"(-{0,2}[\w.-]+=|@)?(.+)", re.DOTALL)


def is_path(text: str) -> bool:
    """Whether a text could be a path."""
    return 0 < len(text) <= _MAX_CHARS and not re.search(r"[\0\n]", text) and not _URL.match(text)


def real_path(folder: str, path: str) -> str:
    """The absolute path of `path` in `folder`, with links and `..` followed; it need not exist."""
    return realpath(join(folder, _plain(path)))


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
    return dict.fromkeys(below(root, one) for one in (normpath(join(root, _plain(path))), real_path(root, path)))


def is_followed(root: str, path: str) -> bool:
    """Whether a path leads elsewhere than it says: through a link or `..`, or as a URL."""
    if not root or (found := _WORD.fullmatch(path)) is None or not is_path(path := found[2]):
        return False
    plain = _plain(path)
    return plain != path or ".." in plain.split("/") or real_path(root, path) != normpath(join(root, plain))


def resolved_word(root: str, folder: str, word: str, place: str = "", *, sure: bool = False) -> str:
    """A word of a command that runs in `folder`, with its path as one in `root`, written from `place` on.

    Words that aren't the path of anything there stay as they are, unless it is `sure` that they are paths.
    """
    found = _WORD.fullmatch(word)
    if not root or found is None or not is_path(found[2]):
        return word
    before, path = found[1] or "", found[2]
    plain = _plain(path)
    if not (sure or "/" in plain or lexists(join(folder, plain))):
        return word
    inside = below(root, real_path(folder, path))
    return before + (join(place, inside) if inside != "." else place or inside)


def expanded(folder: str, word: str, active: dict[str, str]) -> list[str] | None:
    """The names that exist for a word with `*`, `?` or `[…]`, which `active` has as markers. None: it isn't known."""
    pattern = "".join(active.get(char) or escape(char) for char in word)
    if not folder or sum(any(marker in part for marker in active) for part in word.split("/")) > 2:
        return None
    found = list(islice(iglob(pattern, root_dir=folder), MAX_NAMES + 1))
    return sorted(found) if len(found) <= MAX_NAMES else None


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
    if found := _FILE_URL.match(path):
        path = unquote(path[found.end() :])
    return expanduser(path) if path.startswith("~") and "\0" not in path else path
