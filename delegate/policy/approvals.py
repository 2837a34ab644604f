"""What a person is asked before a child does something, and what counts as a yes; and what a child wants to know.

An approval is bound to the digest of exactly one call: its tool, its arguments, its workspace, and the files in it that
the call runs, with their content. Everything but a clear yes is a no: silence, an error, an answer about another call,
no way to ask.
"""

import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from os.path import join, normpath
from typing import Any

from delegate._util.fencing import clean, one_line
from delegate.policy import commands, paths
from delegate.policy.decide import Action, PolicyCode, command_line, strings
from delegate.policy.scripts import named_by
from delegate.types import ParentQuestion

SHOWN_CHARS = 4_000
"""How much of a command or of arguments a person is shown: half of it from the end."""
_NAMED_CHARS = 5
_MOST_HASHED = 100
_LARGEST_BYTES = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call of a child, or of a parent (`expensive`), that waits for an approval."""

    tool: str
    arguments: Mapping[str, Any]
    """The exact arguments. They can't be changed."""
    sha256: str
    """The digest of tool, arguments, workspace and files, to which an approval is bound."""
    workspace: str
    code: PolicyCode
    reason: str
    """Why it isn't simply done."""
    expected: str = ""
    """What is to come of it, in the words of the child."""
    run_id: str = ""
    handle: str = ""
    task_index: int = 0
    goal: str = ""
    answer_seconds: float = 600
    """After this time, the answer is no."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """By name: the SHA-256 of each file of the workspace that the call runs, and where links lead that it names."""

    @property
    def command(self) -> str | None:
        """The exact command line, if the call runs one."""
        command = self.arguments.get("command")
        return command if isinstance(command, str) else None

    def describe(self) -> str:
        """The request as text for a person. Nothing that a child wrote can hide in it or add a line to it."""
        what = self.command
        text = what if what is not None else json.dumps(_plain(self.arguments), ensure_ascii=False, default=str)
        noun = "command" if what is not None else "arguments"
        who = f"Task {self.task_index + 1} ({one_line(self.goal, 100)})" if self.code != "expensive" else "A model"
        lines = [
            f"{who} wants to call {one_line(self.tool, 80)}:",
            *(f"  | {line}" for line in shown(text).split("\n")),
            *(f"  ! {note}" for note in notes(text, noun)),
            f"  why it asks: {one_line(self.reason, 300)} ({self.code})",
            *([f"  it expects:  {one_line(self.expected, 300)}"] if self.expected else []),
            *([f"  in:          {one_line(self.workspace, 300)}"] if self.workspace else []),
            *(f"  file:        {one_line(name, 200)} ({one_line(real, 200)})" for name, real in self.files.items()),
            f"  sha256:      {self.sha256}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """The answer to one request."""

    approved: bool
    by: str = ""
    """Who answered, for the record."""
    same_again: bool = False
    """Whether the same call, with the same digest, needs no further approval in this task."""
    note: str = ""
    """What the child is told besides."""
    sha256: str | None = None
    """The digest that was approved, where the answer comes from elsewhere. Another one than the request's is a no."""


OnApproval = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | bool | None]]
"""Asks a person about a call. The child waits meanwhile, and none of that time is its own. None means that it wasn't
possible to ask."""
OnQuestion = Callable[[ParentQuestion], Awaitable[str | None]]
"""Answers a question. The child waits meanwhile, and none of that time is its own. None means that there is no answer:
the child decides itself, or, in a call in the background, anyone with its handle may answer."""


def digest_of(tool: str, arguments: Mapping[str, Any], workspace: str, files: Mapping[str, str] | None = None) -> str:
    """The digest to which an approval is bound. `files` are in it if there are any."""
    parts = [tool, arguments, workspace, *([files] if files else [])]
    exact = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(exact.encode()).hexdigest()


def files_of(action: Action) -> dict[str, str]:
    """What else an approval of a call is bound to: see `ApprovalRequest.files`."""
    files: dict[str, str] = {}
    run: list[str] = []
    root = action.workspace.rstrip("/")
    names, folders = _names(action) if root else ({}, set[str]())
    for name, is_run in names.items():
        if not paths.is_path(name):
            continue
        at, real = normpath(join(root, name)), paths.real_path(root, name)
        inside = [paths.below(root, path) for path in (at, real) if path.startswith(f"{root}/")]
        if inside and is_run and (digest := _digest(real, _LARGEST_BYTES if len(files) < _MOST_HASHED else 0)):
            files[inside[0]] = digest
            run.append(real)
        elif inside and real != at:
            files.setdefault(inside[0], f"leads to {paths.below(root, real)}")
    for path in named_by(run, root, folders) if run else ():
        name, limit = paths.below(root, path), _LARGEST_BYTES if len(files) < _MOST_HASHED else 0
        if path.startswith(f"{root}/") and name not in files and (digest := _digest(path, limit)):
            files[name] = digest
    return files


def _names(action: Action) -> tuple[dict[str, bool], set[str]]:
    """The paths that a call may name, and whether it may run what is there; and the folders where commands may run.

    Tools that only write files run nothing.
    """
    runs = action.effects is None or bool(action.effects - {"files"})
    names, folders = dict[str, bool](), set[str]()
    for name, value in action.arguments.items():
        if action.is_command(name) and (text := command_line(value)):
            line = commands.read(text, action.workspace)
            names |= {path: is_run or names.get(path, False) for path, is_run in line.names().items()}
            folders |= line.folders
        else:
            names |= {text: runs or names.get(text, False) for text in strings(value)}
    return names, folders


def _digest(path: str, largest: int) -> str:
    """The SHA-256 of a regular file, or of the status of a larger one, which changes with its content. Empty: none."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_size > largest:
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            return f"status {hashlib.sha256(repr(seen).encode()).hexdigest()}"
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # no pipe may take its place and block
            return hashlib.sha256(file.read(largest)).hexdigest()
    except (OSError, ValueError):
        return ""


def shown(text: str, limit: int = SHOWN_CHARS) -> str:
    """A text for a person to decide on: what can't be seen is shown as escapes, and of a long one both ends."""
    if len(text) <= limit:
        return _escaped(text)
    half = limit // 2
    left_out = f"\n[… {len(text) - 2 * half:,} of {len(text):,} characters left out …]\n"
    return f"{_escaped(text[:half])}{left_out}{_escaped(text[-half:])}"


def describe(question: ParentQuestion) -> str:
    """A question as text for a person. No line that a child wrote can be mistaken for another one."""
    lines = [f"Task {question.task_index + 1} ({one_line(question.goal, 100)}) asks:"]
    lines += [f"  | {line}" for line in shown(question.text).split("\n")]
    lines += [f"  {n}. {one_line(option, 300)}" for n, option in enumerate(question.options, 1)]
    return "\n".join(lines)


def notes(text: str, noun: str) -> list[str]:
    """What a person should know about what they are shown of a text before they approve it."""
    lines: list[str] = []
    if len(text) > SHOWN_CHARS:
        lines.append(f"the {noun} has {len(text):,} characters, and you don't see all of them")
        text = text[: SHOWN_CHARS // 2] + text[-SHOWN_CHARS // 2 :]
    if any(char != "\n" and _is_hidden(char) for char in set(text)):
        lines.append("characters that can't be seen are shown as escapes, such as \\u200b")
    if others := sorted(char for char in set(text) if not char.isascii() and not _is_hidden(char)):
        names = ", ".join(f"{char} ({unicodedata.name(char, hex(ord(char)))})" for char in others[:_NAMED_CHARS])
        more = f" and {len(others) - _NAMED_CHARS} more" if len(others) > _NAMED_CHARS else ""
        lines.append(f"not all characters are ASCII, so some may look like others: {names}{more}")
    return lines


def _escaped(text: str) -> str:
    hidden = {char for char in set(text) if char != "\n" and _is_hidden(char)}
    if not hidden:
        return text
    return text.translate({ord(char): char.encode("unicode_escape").decode() for char in hidden})


def _is_hidden(char: str) -> bool:
    return not char.isprintable() or clean(f"a{char}a").text != f"a{char}a"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, tuple):
        return [_plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value
