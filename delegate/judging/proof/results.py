"""Reads the results of tools in the formats that machines write: JSON, also inside of text, XML, `key: value` lines,
and the short answers of databases, servers and programs. Sentences are not read.
"""

import ast
import json
import re
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, cast

from delegate.judging.proof.vocabulary import formats

_MAX_LITERAL = 20_000
"""Length of a Python literal that is parsed, which takes much longer than JSON."""
_MAX_LINES = 60
_MAX_LINE = 1_000
"""Length of a line in which fields are looked for. Some patterns take long on longer ones, which are text anyway."""
_BEGINNING = 800
"""How much is read of JSON that was cut."""
_PAIR = re.compile(r'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|true|false|null|-?\d+(?:\.\d+)?)')
_LINE = re.compile(r"[\s*_`>#-]*([^\W\d][\w ./-]{0,40}?)[*_`]*\s*[:=]\s*[*_`]*\s*(.*?)[\s*_`]*")
_ASSIGNED = re.compile(r"""(?<![\w.-])([\w.-]+)=("[^"]*"|'[^']*'|[^\s;,&"']+)[\s;,&]*""")
_NUMBERED = re.compile(r"(?<!\S)(\w+)=(\d+)(?!\S)")
_OPENED = re.compile(r"<([\w:.-]+)")
_ELEMENT = re.compile(r"<([\w:.-]+)(?:\s[^<>]*)?>([^<>]{0,200})</\1>")
_FAULT = re.compile(r"Fault|Error|Errors|Exception", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\s([\w:.-]+)=(?:"([^"]*)"|'([^']*)')""")


class Value(NamedTuple):
    """A result with fields, or a list of them."""

    value: Any
    is_whole: bool = True
    """False where it was found in a text that has more than it."""


Answer = Literal["yes", "no"]


def values_in(text: str) -> list[Value]:
    """The values that a result is, or contains. A text without any is no value."""
    text = text.strip().removeprefix("\ufeff")
    if not text:
        return []
    if text[0] in "{[\"'(":
        value = _parsed(text)
        if value is not None:
            return [Value(value)]
        if text[0] in "{[":
            pairs = _PAIR.findall(text[:_BEGINNING])
            fields = {key: part[1:-1] if part.startswith('"') else json.loads(part) for key, part in pairs}
            return _in_lines_of_json(text) or [Value(fields, is_whole=False)]
    if text[0] == "<":
        return [Value(_of_xml(text))] if not re.match(r"<!doctype html|<html", text, re.IGNORECASE) else []
    start = min((at for at in (text.find("{"), text.find("[{")) if at >= 0), default=-1)
    if start >= 0 and (inner := _parsed(text[start:].rstrip("`\n "))) is not None:
        return [Value(inner, is_whole=False), *_of_lines(text[:start])]
    return _of_lines(text)


def _parsed(text: str) -> Any:
    """The object, list or text that is written as JSON or as Python prints it; None if it isn't."""
    value: Any
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if len(text) > _MAX_LITERAL or text[0] not in "{[":
            return None
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        value = _parsed(value.strip())
    return cast("Any", value) if isinstance(value, (dict, list, str)) else None


def _in_lines_of_json(text: str) -> list[Value]:
    """One value for each line, where every line is one."""
    values = [_parsed(line.strip()) for line in text.splitlines() if line.strip()]
    return [Value(value) for value in values] if all(isinstance(value, (dict, list)) for value in values) else []


def _of_xml(text: str) -> dict[str, Any]:
    """The elements without others in them, and the attributes of the first."""
    attributes = _ATTRIBUTE.findall(text.partition(">")[0])
    fields: dict[str, Any] = {key.rpartition(":")[2]: double or single for key, double, single in attributes}
    for key in _OPENED.findall(text):
        if _FAULT.fullmatch(name := key.rpartition(":")[2]):
            fields[name] = "in it"
    for key, value in _ELEMENT.findall(text):
        fields[key.rpartition(":")[2]] = value.strip()
    return fields


def _of_lines(text: str) -> list[Value]:
    """The fields of a text in lines such as `Status: sent`, or of pairs such as `status=sent`."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or len(lines) > _MAX_LINES:
        return []
    fields: dict[str, Any] = {}
    for line in lines:
        if len(line) > _MAX_LINE:
            continue
        pairs = _ASSIGNED.findall(line)
        numbers = dict(_NUMBERED.findall(line))
        if len(numbers) > 1:
            fields |= numbers
        elif pairs and not _ASSIGNED.sub("", line).strip():
            fields |= {key: value.strip("\"'") for key, value in pairs}
        elif match := _LINE.fullmatch(line):
            fields.setdefault(match[1].strip(), match[2])
    return [Value(fields, is_whole=False)] if fields else []


# ---------------------------------------------------------------------------------------------------- short answers

_REFUSED_LINE = re.compile(r"^(?:Traceback \(most recent call last\):| ! \[(?:remote )?rejected\].*|fatal: .*)$", re.M)
_DRY_RUN = re.compile(r"[(\[](?:server |client )?dry[- ]run[)\]]", re.IGNORECASE)
_REPLY = re.compile(r"^(\d{3})[ -]", re.M)
_HTTP = re.compile(r"HTTP/[\d.]+ (\d{3})\b.*|(?:HTTP )?(\d{3})(?:[ :,-]+(\D.*))?")
_SMTP = re.compile(r"([245])\d\d[ -]\d\.\d+\.\d+\b.*")
_EXIT = re.compile(
    r"\W*(?:\w+ )*?exit(?:ed)?(?: with)?[ _-]?(?:code|status)?\s*[:=]?\s*(\d+)\W*", re.IGNORECASE
)  # `[exit code: 1]`, `Process exited with code 0`


def short_answer(text: str) -> Answer | None:
    """What a text says in one of the fixed formats of databases, servers and programs; None if it is none of these."""
    if _REFUSED_LINE.search(text) or _DRY_RUN.search(text):
        return "no"
    if text.startswith("220 ") and len(replies := _REPLY.findall(text)) > 1:  # a conversation with a mail server
        return "no" if any(code >= "400" for code in replies) else "yes" if "354" in replies[:-1] else None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or max(map(len, (lines[0], lines[-1]))) > _MAX_LINE:
        return None
    if (answer := _first_line(lines[0])) is not None or len(lines) == 1:
        return answer
    return _last_line(lines[-1])


def _first_line(line: str) -> Answer | None:
    if any(pattern.fullmatch(line) for pattern in formats("refused")):
        return "no"
    if any(pattern.fullmatch(line) for pattern in formats("done")):
        return "yes"
    if match := _SMTP.fullmatch(line):
        return "yes" if match[1] == "2" else "no"
    if answer := _last_line(line):
        return answer
    status = http_status(line) or 0
    return "no" if status >= 400 else "yes" if status in (200, 201, 204) else None


def _last_line(line: str) -> Answer | None:
    """What the last line says: how much was affected, or with which code something ended."""
    line = line.strip("()") if line.startswith("(") and line.endswith("affected)") else line
    for pattern in formats("affected"):
        if match := pattern.fullmatch(line):
            return "yes" if int(match[1]) > 0 else "no"
    match = _EXIT.fullmatch(line)
    return None if match is None else "no" if int(match[1]) else "yes"


def http_status(text: str) -> int | None:
    """The code in an HTTP status line, or in one without the protocol, as `404 Not Found`."""
    match = _HTTP.fullmatch(text.strip())
    if match is None:
        return None
    status = int(match[1] or match[2])
    if match[1]:
        return status
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        return None
    own_phrase = (match[3] or "").casefold()
    return status if not own_phrase or own_phrase.startswith(phrase.casefold()) else None
