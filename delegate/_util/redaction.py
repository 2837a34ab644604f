"""Redacts secrets in all text that leaves the process: keys of known formats, what is assigned to the name of a secret,
and this process's own secrets, which are its secret variables and the keys that it sends.

`key_formats`, `assignments` and `decoded` find them. Own secrets are also found where they are broken across lines or
interspersed with hidden characters.

Everything goes through `redactor`. What a child or a tool writes is redacted before it becomes an output, a receipt, an
event, a log line, evidence for a judge or a row in the store. Quotes are therefore verified against the same redacted
text that the judge saw. The child itself reads its files unredacted, since it may have to edit them.
"""

import base64
import html
import json
import logging
import os
import re
import string
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

from delegate._util.secret_names import is_secret_name, may_hold_url

M = TypeVar("M", bound=BaseModel)

MARK = "[redacted]"
SHORTEST = 8
"""Shorter values of variables aren't redacted, since they also occur in ordinary words."""
_KEYS = 32
LONGEST_WORD = 12
"""Values of letters alone that are shorter aren't redacted if they are written like a word."""


# ------------------------------------------------------------------------------------------- the values of variables

_HIDDEN_CHARACTERS = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
_HIDDEN = re.compile(f"[{_HIDDEN_CHARACTERS}]")
_LONGEST = 8_000
"""More characters than the longest secret has."""
_EDGE = string.whitespace + "\\"
"""What a line break is surrounded by: indentation, and the backslash of a shell or of JSON in JSON."""
_PASSWORD_IN_URL = re.compile(r"://[^\s/?#@:]*:([^\s/?#]+)@")


@lru_cache(maxsize=256)
def _forms_of(secret: str) -> frozenset[str]:
    """The secret as it is, and as JSON, URLs, HTML, base64 and hexadecimal digits write it, without line breaks."""
    data = secret.encode("utf-8", "surrogateescape")
    forms = {secret, html.escape(secret), data.hex(), data.hex().upper(), *_base64(data)}
    forms |= {json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
    in_urls = {quote(data, safe=safe) for safe in ("", "/", "!'()*", "!$&'()*+,;=:@/")} | {quote_plus(data)}
    forms |= in_urls | {re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url) for url in in_urls}
    return frozenset(map(_joined, forms))


def _base64(data: bytes) -> set[str]:
    """What base64 of `data` has, alone or after other bytes: only the digits that are all its own."""
    forms: set[str] = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).decode()
        own = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        forms |= {own, own.replace("+", "-").replace("/", "_")}
    return forms


def _lines(text: str) -> list[str]:
    """The lines of a text, also those that JSON breaks. All characters stay where they are."""
    if "\\" in text:
        text = text.replace("\\r", "  ") if "\\r" in text else text
        text = text.replace("\\n", " \n") if "\\n" in text else text
    return text.split("\n")


def _stripped(lines: Sequence[str]) -> Sequence[str]:
    """The lines without what a line break is surrounded by."""
    if len(lines) == 1:
        return lines
    return [line if line[-1:] != "\\" != line[:1] else line.strip(_EDGE) for line in map(str.strip, lines)]


def _joined(text: str) -> str:
    return "".join(_stripped(_lines(text)))


def _replace_broken(text: str, joined_form: str) -> str:
    """Replace what is `joined_form` in the joined text, with the line breaks in it."""
    positions: list[int] = []
    start = 0
    lines = _lines(text)
    stripped = _stripped(lines)
    for line, part in zip(lines, stripped, strict=True):
        first = start + line.find(part)
        positions.extend(range(first, first + len(part)))
        start += len(line) + 1
    pieces: list[str] = []
    end = 0
    for match in re.finditer(re.escape(joined_form), "".join(stripped)):
        pieces += [text[end : positions[match.start()]], MARK]
        end = positions[match.end() - 1] + 1
    return "".join([*pieces, text[end:]])


def _secrets_of(environ: Mapping[str, str], secret_variables: Collection[str]) -> set[str]:
    values: set[str] = set()
    for name, value in environ.items():
        if name in secret_variables or is_secret_name(name):
            values.add(value)
        if may_hold_url(name) and (match := _PASSWORD_IN_URL.search(value)):
            values.add(match[1])
    return values


def _is_secret(value: str) -> bool:
    """Whether a value would give something away: not words, paths and addresses, which occur in ordinary text."""
    if len(value) < SHORTEST:
        return False
    if value.isalpha():
        return len(value) >= LONGEST_WORD or not (value.islower() or value.isupper() or value.istitle())
    if value.startswith(("/", "~/", "./", "http://", "https://")):
        from delegate._util.assignments import is_random

        parts = re.split(r"[^A-Za-z0-9]", value)
        long = (part for part in parts if len(part) >= 2 * SHORTEST and any(map(str.isdigit, part)))
        return any(not (part.islower() or part.isupper()) for part in long) or is_random("".join(parts))
    return True


def _marked(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with `[redacted]` instead of each span. Spans that overlap become one."""
    if not spans:
        return text
    pieces: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start >= end:
            pieces += [text[end:start], MARK]
        end = max(end, stop)
    return "".join([*pieces, text[end:]])


class _Own(NamedTuple):
    """Own secrets, longest first, so that one that contains another one is replaced as a whole."""

    secrets: Sequence[str]
    forms: Sequence[str]
    """Each as JSON, URLs and the like write it."""


def _own(values: Iterable[str]) -> _Own:
    secrets = {value for value in map(str.strip, values) if _is_secret(value)}
    forms = {form for secret in secrets for form in _forms_of(secret)}
    return _Own(sorted(secrets, key=len, reverse=True), sorted(forms, key=len, reverse=True))


class Redactor:
    """Redacts keys of known formats, what is assigned to the name of a secret, and the secrets of an environment, by
    default this process's, as they are whenever a text is redacted.

    A variable is secret if its name says so (`secret_names.py`) or is in `secret_variables`, and a password in a URL
    is. Values that are plain words, paths or addresses aren't secrets.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, secret_variables: Collection[str] = frozenset()
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._seen: object = None
        """A copy of what the environment was when it was last read."""
        self._variables, self._keys = frozenset(secret_variables), dict[str, None]()
        self._own = _own([])
        self._lock = threading.Lock()

    def add_variables(self, names: Collection[str]) -> None:
        """Take variables of these names for secret, whatever their names say."""
        with self._lock:
            if not self._variables.issuperset(names):
                self._variables, self._seen = self._variables | set(names), None

    def add_key(self, key: str) -> None:
        """Take a key that this process sends for secret. The last 32 are: those that expire are replaced often."""
        with self._lock:
            if key not in self._keys:
                self._keys[key] = None
                self._keys = dict.fromkeys([*self._keys][-_KEYS:])
                self._seen = None

    def _current(self) -> _Own:
        now = getattr(self._environ, "_data", self._environ)
        if now != self._seen:
            with self._lock:
                current = dict(now)
                variables = {name: self._environ.get(name, "") for name in self._environ}
                self._own = _own([*_secrets_of(variables, self._variables), *self._keys])
                self._seen = current
        return self._own

    def text(self, text: str) -> str:
        """The text with each secret replaced by `[redacted]`."""
        return _text(text, self._current())

    def beginning(self, text: str, limit: int) -> str:
        """The first characters, for a message. Redacted before the cut, which would make a secret unrecognizable."""
        return self.text(text[: limit + _LONGEST])[:limit]

    def json(self, text: str) -> str:
        """The same for JSON, which stays valid JSON. Returns `text` itself if it contains no secret."""
        return text if self.text(text) == text else json.dumps(self.value(json.loads(text)), ensure_ascii=False)

    def model(self, model: M, *, apart: Mapping[str, Any] | None = None) -> M:
        """The same for every string in a model. Returns `model` itself if it contains no secret.

        `apart` names fields that hold no text from outside, in the form of pydantic's `exclude`. They aren't searched,
        and neither are defaults.
        """
        searched = model.model_dump_json(exclude=dict(apart) if apart else None, exclude_defaults=True)
        if self.json(searched) is searched:
            return model
        return type(model).model_validate_json(self.json(model.model_dump_json()))

    def value(self, value: Any) -> Any:
        """The same for every string in a JSON value, including keys."""
        return _value(value, self._current())


redactor = Redactor()
"""What all text passes on its way out of the process: onto a stream, into a file or a page, to a judge."""


def _text(text: str, own: _Own) -> str:
    if not text.isascii() and any(char in text for char in _HIDDEN_CHARACTERS):
        # They are part of many honest texts, so they stay unless they hide a secret or a part of one.
        from delegate._util.decoded import surroundings

        places = (match.start() for match in _HIDDEN.finditer(text))
        around = (text[start:end] for start, end in surroundings(places, _LONGEST, len(text)))
        if any(_HIDDEN.sub("", _redacted(part, own)) != _redacted(_HIDDEN.sub("", part), own) for part in around):
            return _redacted(_HIDDEN.sub("", text), own)
    return _redacted(text, own)


def _redacted(text: str, own: _Own) -> str:
    from delegate._util.decoded import secret_spans

    text = _without_values(text, own) if own.secrets else text
    return text if len(text) < SHORTEST else _marked(text, secret_spans(text, own.secrets))


def _without_values(text: str, own: _Own) -> str:
    joined = _joined(text)
    for form in own.forms:
        if form in joined:
            text = _replace_broken(text, form)
            joined = _joined(text)
    for secret in own.secrets:  # what precedes one may have been taken for a part of a line break
        text = text.replace(secret, MARK)
    return text


def _value(value: Any, own: _Own) -> Any:
    if isinstance(value, str):
        return _text(value, own)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {_text(name, own): _field(fields, name, part, own) for name, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_value(part, own) for part in cast("list[Any]", value)]
    return value


def _field(fields: Mapping[str, Any], name: str, part: Any, own: _Own) -> Any:
    if not isinstance(part, str):
        return _value(part, own)
    if name in ("value", "val"):  # of what another field names
        name = next((str(fields[key]) for key in ("name", "key") if key in fields), name)
    from delegate._util.assignments import is_secret_value

    return MARK if is_secret_value(name, part) else _text(part, own)


# --------------------------------------------------------------------------------------------------------------- logs


class RedactingFilter(logging.Filter):
    """A filter for the loggers of modules that log exceptions or text from outside."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record's message and exception. Never drops the record."""
        message = record.getMessage()
        if (text := redactor.text(message)) != message:
            record.msg, record.args = text, ()
        if record.exc_info and record.exc_info[1] is not None:
            formatted = logging.Formatter().formatException(record.exc_info)
            if (text := redactor.text(formatted)) != formatted:
                record.msg, record.args, record.exc_info = f"{record.getMessage()}\n{text}", (), None
        return True


def logger(name: str) -> logging.Logger:
    """A module's logger, with `RedactingFilter` installed."""
    log = logging.getLogger(name)
    if not any(isinstance(log_filter, RedactingFilter) for log_filter in log.filters):
        log.addFilter(RedactingFilter())
    return log
