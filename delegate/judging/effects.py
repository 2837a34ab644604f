"""What a recorded tool call can change, as far as its name and its arguments tell."""

import json
import re
import shlex
from functools import lru_cache

from delegate.judging.words import word_lists
from delegate.types import Receipt

_COMMAND_KEYS = ("command", "cmd", "code", "script", "source")
_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_FAILURES = ("error", "failed", "failure", "rejected", "denied", "declined", "timeout")
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_GIT_LOOKUPS = ("status", "log", "diff", "show", "branch", "remote", "rev-parse", "ls-files", "blame")
_INLINE_CODE = re.compile(
    r"(?P<start>\b(?:python[\d.]*|node|perl|ruby|php|deno|bun)\b[^;|&]*?\s-(?:c|e|r|p|-eval)\s+(?P<mark>['\"]))(?P<code>.*?)"
    r"(?P<end>(?<!\\)(?P=mark)(?=\s|$|[;|&)]))",
    re.DOTALL,
)
_WORD_BREAK = re.compile(r"[_.\-/:]+|(?<=[a-z0-9])(?=[A-Z])")


def words_of(name: str) -> str:
    """A tool's name or an argument as separate words: `calendar.createEvent` as `calendar create Event`."""
    return _WORD_BREAK.sub(" ", name)


@lru_cache(maxsize=1024)
def is_named_like_a_lookup(tool: str) -> bool:
    """Whether a tool's name says that it only looks something up: `get_weather`, but not `get_or_create`."""
    words, lists = set(words_of(tool).lower().split()), word_lists()
    return not words.isdisjoint(lists["lookup_tools"]) and words.isdisjoint(lists["acting_tools"])


def writes_files(receipt: Receipt) -> bool:
    """Whether the tool only writes a file, as `write_file` and `Edit` do."""
    words = set(words_of(receipt.tool).lower().split())
    writes = words & {"write", "edit", "append", "patch", "replace", "create", "save"}
    return bool(writes) and (bool(words & {"file", "files", "text", "notebook"}) or words <= {"write", "edit", "multi"})


def failed(receipt: Receipt) -> bool:
    """Whether the call did not succeed: by its status, or because its JSON result says so, as `{"exit_code": 1}`."""
    if receipt.status != "ok":
        return True
    if not receipt.output.lstrip().startswith("{"):
        return False
    try:
        result = json.loads(receipt.output)
    except (ValueError, RecursionError):
        return False
    return (
        any(result.get(key) not in (None, 0, "0") for key in _EXIT_CODES)
        or any(result.get(key) is False for key in ("ok", "success"))
        or any(bool(result.get(key)) for key in ("error", "errors", "isError"))
        or str(result.get("status")).lower() in _FAILURES
    )


def command_of(receipt: Receipt) -> str:
    """The command or the code that the call ran; empty if it ran none."""
    return "\n".join(str(receipt.args[key]) for key in _COMMAND_KEYS if isinstance(receipt.args.get(key), str))


def acting_part(command: str) -> str:
    """The parts of a shell command that do more than print or look something up; empty if there are none."""
    parts = re.split(r"\|\||&&|[;|\n&]", _INLINE_CODE.sub(_without_texts, command))
    return "; ".join(part for part in parts if _acts(part))


def _without_texts(code: re.Match[str]) -> str:
    """Code given to an interpreter, without its string literals, which it may only print."""
    return code["start"] + re.sub(r"'[^']*'|\"[^\"]*\"", "''", code["code"]) + code["end"]


def _acts(part: str) -> bool:
    if re.search(r"\$\(|`|<\(", part):
        return True
    try:
        words = shlex.split(part.strip(" (){}!"), comments=True)
    except ValueError:  # a quoted separator: the part can't be read alone
        words = part.split()
    words = [word for word in words if not re.fullmatch(r"\w+=.*", word)]
    if not words:
        return False
    program = words[0].rpartition("/")[2]
    if program in _SHELLS and "-c" in words[:-1]:
        return bool(acting_part(words[words.index("-c") + 1]))
    if program == "git" and len(words) > 1:
        return words[1] not in _GIT_LOOKUPS
    return program not in word_lists()["printing_programs"]
