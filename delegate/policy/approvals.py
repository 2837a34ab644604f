"""What a person is asked before a child does something, and what counts as a yes.

An approval is bound to the digest of exactly one call: its tool, its arguments and its workspace. Everything but a
clear yes is a no: silence, an error, an answer about another call, nobody to ask.
"""

import hashlib
import json
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from delegate._util.fencing import clean, one_line
from delegate.policy.decide import PolicyCode

SHOWN_CHARS = 4_000
"""How much of a command or of arguments a person is shown: half of it from the end."""
_NAMED_CHARS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call of a child that waits for an approval."""

    tool: str
    arguments: Mapping[str, Any]
    """The exact arguments. They can't be changed."""
    sha256: str
    """The digest of tool, arguments and workspace, to which an approval is bound."""
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
        lines = [
            f"Task {self.task_index + 1} ({one_line(self.goal, 100)}) wants to call {one_line(self.tool, 80)}:",
            *(f"  | {line}" for line in shown(text).split("\n")),
            *(f"  ! {note}" for note in notes(text, noun)),
            f"  why it asks: {one_line(self.reason, 300)} ({self.code})",
            *([f"  it expects:  {one_line(self.expected, 300)}"] if self.expected else []),
            f"  in:          {one_line(self.workspace, 300)}",
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
"""Asks a person about a call. The child waits meanwhile, and none of that time is its own. None means that nobody could
be asked."""


def digest_of(tool: str, arguments: Mapping[str, Any], workspace: str) -> str:
    """The digest to which an approval is bound."""
    exact = json.dumps([tool, arguments, workspace], sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(exact.encode()).hexdigest()


def shown(text: str, limit: int = SHOWN_CHARS) -> str:
    """A text for a person to decide on: what can't be seen is shown as escapes, and of a long one both ends."""
    if len(text) <= limit:
        return _escaped(text)
    half = limit // 2
    left_out = f"\n[… {len(text) - 2 * half:,} of {len(text):,} characters left out …]\n"
    return f"{_escaped(text[:half])}{left_out}{_escaped(text[-half:])}"


def notes(text: str, noun: str) -> list[str]:
    """What a person should know about what they are shown of a text before they approve it."""
    found: list[str] = []
    if len(text) > SHOWN_CHARS:
        found.append(f"the {noun} has {len(text):,} characters, and you don't see all of them")
        text = text[: SHOWN_CHARS // 2] + text[-SHOWN_CHARS // 2 :]
    if any(char != "\n" and _is_hidden(char) for char in set(text)):
        found.append("characters that can't be seen are shown as escapes, such as \\u200b")
    if others := sorted(char for char in set(text) if not char.isascii() and not _is_hidden(char)):
        names = ", ".join(f"{char} ({unicodedata.name(char, hex(ord(char)))})" for char in others[:_NAMED_CHARS])
        more = f" and {len(others) - _NAMED_CHARS} more" if len(others) > _NAMED_CHARS else ""
        found.append(f"not all characters are ASCII, so some may look like others: {names}{more}")
    return found


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
