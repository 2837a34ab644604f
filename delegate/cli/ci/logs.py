"""Keeps what is printed from commanding the system for continuous integration whose log it ends up in.

Such systems read commands out of the log of a step, and the words of a child, a judge or a file name must not be any:

* GitHub, Gitea and Forgejo: lines that begin with `::`, and `##[` anywhere in a line
* Azure Pipelines and TeamCity: `##vso[`, `##[` and `##teamcity[`
* GitLab: `section_start:` and `section_end:`
* Buildkite: lines that begin with `---`, `+++`, `~~~` or `^^^`

In text, a space ends the resemblance: `: :error`, `## [group]`. In documents for programs it is an escape of their
format, so that they say the same as before. On GitHub, text is also printed between `::stop-commands::` and its token.
"""

import io
import os
import re
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, cast

SYSTEMS = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION", "GITLAB_CI", "BUILDKITE")
"""Variables of the environment, one of which such a system sets."""

_BREAKS = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_START = f"(?<![^{_BREAKS}])"
_UNSEEN = (
    r"(?:\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    r"\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff])*+"
)
"""Colors, and characters that a comparison of texts by .NET ignores."""
_BLANK = rf"(?:{_UNSEEN}[^\S{_BREAKS}])*+{_UNSEEN}"
_COLON, _HASH, _BRACKET = "[:\ufe13\ufe55\uff1a]", "[#\ufe5f\uff03]", r"[\[\uff3b]"
_WORD = r"[\w.-]{0,40}"
_COMMAND = (
    f"{_START}{_BLANK}{_COLON}(?={_UNSEEN}{_COLON})"
    f"|{_HASH}{_UNSEEN}{_HASH}(?={_UNSEEN}{_WORD}{_UNSEEN}{_BRACKET})"
    r"|section_(?:start|end):(?=\d)"
)
_COMMANDS = re.compile(_COMMAND)
"""What could be a command, up to the character whose escape ends the resemblance."""
_BUILDKITE = re.compile(rf"{_COMMAND}|{_START}{_UNSEEN}(?:-(?=--)|\+(?=\+\+)|~(?=~~)|\^(?=\^\^))")
_UNDECIDED = re.compile(
    rf"(?:{_START}{_BLANK}(?:{_COLON}{_UNSEEN})?|{_HASH}{_UNSEEN}(?:{_HASH}{_UNSEEN}{_WORD}{_UNSEEN})?"
    r"|section_[a-z]*:?)(?:(?<=\x1b)\[[0-?]*[ -/]*)?\Z"
)
"""The end of an unfinished line that the text after it could make a command."""


def inert(text: str, escape: Callable[[str], str] = lambda char: f"{char} ", *, starts_line: bool = True) -> str:
    """The text without what could be a command. `escape` is what stands for one of its characters."""
    pattern = _BUILDKITE if os.environ.get("BUILDKITE") else _COMMANDS
    before = "" if starts_line else "."
    return pattern.sub(lambda match: match[0][:-1] + escape(match[0][-1]), before + text)[len(before) :]


def inert_json(document: str) -> str:
    """A JSON document of the same value without what could be a command."""
    return inert(document, lambda char: f"\\u{ord(char):04x}")


def inert_markup(document: str) -> str:
    """An XML or HTML document of the same content without what could be a command."""
    return inert(document, lambda char: f"&#{ord(char)};")


def print_as_is(text: str, end: str = "\n", *, on_stderr: bool = False) -> None:
    """Print, outside of GitHub's marks, a document for programs, commands of our own, or what has no text of others."""
    stream = sys.stderr if on_stderr else sys.stdout
    if isinstance(stream, LogStream):
        stream.write_as_is(text + end)
    else:
        print(text, end=end, file=stream, flush=on_stderr)


def guard() -> None:
    """Let no text that is printed from now on be a command, except on a terminal that no such system reads."""
    sys.stdout = _guarded(sys.stdout, brief=False)
    sys.stderr = _guarded(sys.stderr, brief=True)


def finish() -> None:
    """Print what is left. Call it when nothing more is printed."""
    for stream in (sys.stderr, sys.stdout):
        if isinstance(stream, LogStream):
            stream.finish()


def _guarded(stream: TextIO, *, brief: bool) -> TextIO:
    wrapper = cast("object", stream)
    if not isinstance(wrapper, io.TextIOWrapper) or isinstance(wrapper, LogStream):
        return stream
    if stream.isatty() and not any(map(os.environ.get, SYSTEMS)):
        return stream
    stream.flush()
    is_file = False
    with suppress(OSError):
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    marked = bool(os.environ.get("GITHUB_ACTIONS")) and not is_file
    return LogStream(cast("io.TextIOWrapper", stream), marked=marked, brief=brief)


class LogStream(io.TextIOWrapper):
    """A stream in which no text is a command or a secret.

    `marked`: it also tells GitHub's runner to look for none in what is between two marks. Its state is that of both
    streams of a step, so stderr's marks are `brief`: they are closed at the end of each line, before commands of our
    own follow on stdout.
    """

    def __init__(self, stream: io.TextIOWrapper, *, marked: bool, brief: bool) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._wrapped = stream
        """Kept, since its end would close the buffer."""
        self._marked, self._brief = marked, brief
        self._token = ""
        """That of the open mark; empty if none is open."""
        self._held = ""
        """The end of the text, which isn't printed yet."""
        self._starts_line = True
        self._lock = threading.RLock()

    def write(self, text: str, /) -> int:
        """Print whole lines; the rest is held until its line is whole."""
        with self._lock:
            self._held += text
            if end := text.rfind("\n") + 1:
                end += len(self._held) - len(text)
                whole, self._held = self._held[:end], self._held[end:]
                self._print(whole)
        return len(text)

    def flush(self) -> None:
        """On a terminal, print the unfinished line too, but for an end that could become a command."""
        with self._lock:
            if self._held and self.isatty():
                before = "" if self._starts_line else "."
                match = _UNDECIDED.search(before + self._held)
                end = match.start() - len(before) if match else len(self._held)
                part, self._held = self._held[:end], self._held[end:]
                self._print(part)
            super().flush()

    def write_as_is(self, text: str) -> None:
        """Print commands of our own, or a document in which there are none, outside of the marks."""
        with self._lock:
            self.finish()
            super().write(text)
            self._starts_line = text.endswith("\n")

    def finish(self) -> None:
        """Print all that is held, and close the mark."""
        with self._lock:
            rest, self._held = self._held, ""
            self._print(rest)
            if self._token and not self._starts_line:
                super().write("\n")
                self._starts_line = True
            self._close_mark()
            super().flush()

    def _print(self, text: str) -> None:
        if not text:
            return
        if self._marked and not self._token:
            self._token = os.urandom(16).hex()
            super().write(f"{'' if self._starts_line else chr(10)}::stop-commands::{self._token}\n")
            self._starts_line = True
        from delegate._util.redaction import redactor  # loads pydantic

        super().write(inert(redactor.text(text), starts_line=self._starts_line))
        self._starts_line = re.search(f"[{_BREAKS}]\\Z", text) is not None
        if self._brief and text.endswith("\n"):
            self._close_mark()

    def _close_mark(self) -> None:
        if self._token:
            super().write(f"::{self._token}::\n")
            self._token = ""
