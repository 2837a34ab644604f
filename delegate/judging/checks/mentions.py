"""Tells whether the task itself allows its child to change a file: by naming it, and not forbidding it.

What is allowed so is no tampering. It proves nothing either, so a check that rests on it is not verified.
"""

import re
from collections.abc import Iterator

from delegate.types import Task

_CHANGE = r"(?:chang|edit|modif|touch|alter|rewrit|tamper|adapt|adjust|delet|remov|weaken|replac|overwrit|mov|renam)\w*"
_FORBIDDEN = re.compile(
    rf"\b(?:do\s*n[o'’]t|don[’']t|never|must\s*n[o'’]t|mustn[’']t|should\s*n[o'’]t|shouldn[’']t|may\s+not|cannot|can[’']t"
    rf"|without|not|no)\s+(?!forget|hesitate|only|just)(?:\w+\s+){{0,2}}?{_CHANGE}(?P<what>[^;!?\n]*?)(?=[.](?:\s|$)|[;!?\n]|$)"
    r"|\b(?:leav|keep)\w*\s+(?P<kept>[^;!?\n]{1,120}?)\s+(?:unchanged|alone|untouched|intact|as\s+(?:it|they)\s+(?:is|are))\b"
    r"|(?P<subject>[^;!?\n]{1,120}?)\s+(?:must|should|may|can|shall)\s+(?:not|n[o'’]t)\s+be\s+" + _CHANGE,
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\s*(?:them|it|this|these|those|that)\b", re.IGNORECASE)
_ANYTHING = re.compile(r"\s*(?:any\s*thing|any\s+files?|the\s+files?)\b(?!\s+else)", re.IGNORECASE)
_TESTS = re.compile(r"\btests?\b", re.IGNORECASE)
_TESTS_TO_CHANGE = re.compile(
    r"\b(?:updat|adapt|adjust|rewrit|renam|migrat|port|convert|edit|chang|modif|refactor|includ)\w*\s+"
    r"(?:(?:the|its|all|any|our|their|existing|unit|old|affected|corresponding|related|of|in)\s+){0,4}tests?\b(?!/|\.\w)",
    re.IGNORECASE,
)


class Mentions:
    """What the goal and the context of a task say about files."""

    def __init__(self, task: Task) -> None:
        text = f"{task.goal}\n{task.context or ''}"
        forbidden = list(_FORBIDDEN.finditer(text))
        self._forbidden = [found["what"] or found["kept"] or found["subject"] or "" for found in forbidden]
        # What stands in a prohibition names a file, but doesn't ask to change it.
        self._allowed = "".join(_outside([found.span() for found in forbidden], text))

    def allow(self, path: str, *, is_test: bool) -> bool:
        """Whether the task names the file by its path, its name or its package, or asks to change the tests."""
        names = [path, path.rpartition("/")[2], *_package(path)]
        if any(_has(name, what) for name in names for what in self._forbidden):
            return False
        if any(_PRONOUN.match(what) or _ANYTHING.match(what) for what in self._forbidden):
            return False
        if is_test and any(_TESTS.search(what) for what in self._forbidden):
            return False
        return any(_has(name, self._allowed) for name in names) or (
            is_test and _TESTS_TO_CHANGE.search(self._allowed) is not None
        )


def named_in(command: str, path: str) -> bool:
    """Whether a command names a file, or a module by its name."""
    name = path.rpartition("/")[2]
    return _has(path, command) or _has(name, command) or _has(name.partition(".")[0], command)


def _outside(spans: list[tuple[int, int]], text: str) -> Iterator[str]:
    at = 0
    for start, end in spans:
        yield text[at:start]
        at = max(at, end)
    yield text[at:]


def _has(name: str, text: str) -> bool:
    """Whether `name` stands in the text as a whole word."""
    return bool(name) and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None


def _package(path: str) -> Iterator[str]:
    """The name of the installed package that a file belongs to."""
    parts = path.split("/")
    for n, part in enumerate(parts[:-2]):
        if part in ("node_modules", "site-packages"):
            scoped = parts[n + 1].startswith("@") and n + 3 < len(parts)
            yield "/".join(parts[n + 1 : n + (3 if scoped else 2)])
