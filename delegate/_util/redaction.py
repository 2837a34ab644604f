"""Redacts secrets in recorded text: keys of known formats, and the values of this process's secret variables.

The formats are data (`secret_formats.toml`). Values of variables are also found where they are encoded, broken across
lines or interspersed with hidden characters.

What a child or a tool writes is redacted before it becomes an output, a receipt, an event, a log line, evidence for a
judge or a row in the store. Quotes are therefore verified against the same redacted text that the judge saw. The child
itself reads its files unredacted, since it may have to edit them.
"""

import base64
import html
import json
import logging
import os
import re
import string
import tomllib
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

from delegate._util.secret_names import is_secret_name, may_hold_url

M = TypeVar("M", bound=BaseModel)

MARK = "[redacted]"
SHORTEST = 8
"""Shorter values of variables aren't redacted, since they also occur in ordinary words."""
LONGEST_WORD = 12
"""Values of letters alone that are shorter aren't redacted if they are written like a word."""


class _Format(NamedTuple):
    """One key format: its prefixes, and the regular expression of the rest."""

    prefixes: tuple[str, ...]
    rest: str
    in_words: bool = False
    """Whether it also matches inside a word. Other formats match only at the start of a word or after a JSON escape."""

    @cache  # noqa: B019  # of which there are some dozens; compiled where a text may have such a key
    def pattern(self) -> re.Pattern[str]:
        """The regular expression of the whole key.

        The literal prefix comes first, because `re` finds a literal quickly; a lookbehind then checks what precedes it.
        That way a long run of word characters is scanned only once.
        """
        prefixes = [f"{prefix}{self._boundary(prefix)}" for prefix in map(re.escape, self.prefixes)]
        return re.compile(f"(?:{'|'.join(prefixes)}){self.rest}")

    def pattern_after(self, prefix: str, rare: str) -> str:
        """The regular expression of the whole key, for use right after the last `rare` character of the prefix."""
        before, _, after = prefix.rpartition(rare)
        seen = re.escape(before + rare)
        return f"(?<={seen}){self._boundary(seen)}{re.escape(after)}{self.rest}"

    def _boundary(self, seen: str) -> str:
        if self.in_words:
            return ""
        return rf"(?:(?<![A-Za-z0-9_-]{seen})|(?<=\\[bfnrt]{seen})|(?<=\\u00[01][0-9a-f]{seen}))"


class _Shape(NamedTuple):
    """One kind of secret without a prefix. Texts without `needs` and `literal` don't contain it."""

    needs: str
    literal: str
    pattern: re.Pattern[str]


def _redact(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(_mark_group if pattern.groups else MARK, text)


def _mark_group(match: re.Match[str]) -> str:
    start, end = (at - match.start() for at in match.span(1))
    return match[0][:start] + MARK + match[0][end:]


_SHORTEST_KEY = 12
"""Shorter texts contain no key of these formats."""
_RARE_CHARACTERS = "JK_-.AG"
"""Characters of which each prefix has one. The search starts from the first of these."""
_RARE_IN_SHAPES = "@=_:-K/"
_RUN = "(?=[A-Za-z0-9_+/=-]{10})"
"""What follows every prefix; this rules out most positions."""


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("secret_formats.toml").read_text(encoding="utf-8"))


@cache
def _formats() -> tuple[_Format, ...]:
    return tuple(_Format(tuple(one["prefixes"]), one["rest"], one.get("in_words", False)) for one in _data()["formats"])


@cache
def _shapes() -> tuple[_Shape, ...]:
    return tuple(
        _Shape(
            one.get("needs") or next(filter(one["literal"].__contains__, _RARE_IN_SHAPES), one["literal"][0]),
            one["literal"],
            re.compile(one["pattern"]),
        )
        for one in _data()["shapes"]
    )


@cache
def _prefixes() -> Mapping[str, Sequence[tuple[_Format, str]]]:
    """The prefixes of all formats, by the first rare character in each."""
    prefixes: defaultdict[str, list[tuple[_Format, str]]] = defaultdict(list)
    for one in _formats():
        for prefix in one.prefixes:
            prefixes[next(filter(prefix.__contains__, _RARE_CHARACTERS))].append((one, prefix))
    return dict(prefixes)


@cache
def _rare_search(rare: str) -> re.Pattern[str]:
    """A regular expression that matches exactly the texts that contain a key with this rare character.

    Searching for one rare character first is three times as fast as searching for each prefix, and six times as fast as
    searching for all prefixes at once. All of them take 10 ms to compile, so each is compiled when it is needed.
    """
    prefixes = _prefixes()[rare]
    before = {prefix.rpartition(rare)[0][-1:] for _, prefix in prefixes}
    first = re.escape(rare)
    one_of = "" if "" in before else f"(?<=[{re.escape(''.join(sorted(before)))}]{first})"
    every = (one.pattern_after(prefix, rare) for one, prefix in prefixes)
    return re.compile(f"{first}{_RUN}{one_of}(?:{'|'.join(every)})")


def load_formats() -> None:
    """Compile the regular expressions that most texts need, which takes 10 ms and is otherwise done on first use."""
    _contains_key(f"{_RARE_CHARACTERS}{_RARE_IN_SHAPES}")


def _contains_key(text: str) -> bool:
    if len(text) < _SHORTEST_KEY:
        return False
    for rare in _prefixes():
        if rare in text and _rare_search(rare).search(text):
            return True
    for needs, literal, pattern in _shapes():  # noqa: SIM110  # `any` would take three times as long
        if needs in text and literal in text and pattern.search(text):
            return True
    return False


def _replace_keys(text: str) -> str:
    for one in _formats():
        if any(prefix in text for prefix in one.prefixes):
            text = _redact(one.pattern(), text)
    for needs, literal, pattern in _shapes():
        if needs in text and literal in text:
            text = _redact(pattern, text)
    return text


# ------------------------------------------------------------------------------------------- the values of variables

_HIDDEN_CHARACTERS = "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
_HIDDEN = re.compile(f"[{_HIDDEN_CHARACTERS}]")
_EDGE = string.whitespace + "\x1c\x1d\x1e\x1f\x85\xa0\\"
"""What a line break is surrounded by: indentation, and the backslash of a shell or of JSON in JSON."""
_PASSWORD_IN_URL = re.compile(r"://[^\s/?#@:]*:([^\s/?#]+)@")


@lru_cache(maxsize=256)
def _forms_of(secret: str) -> frozenset[str]:
    """The secret as it is, and as JSON, URLs, HTML, base64 and hexadecimal digits write it, without line breaks."""
    data = secret.encode("utf-8", "surrogateescape")
    forms = {secret, html.escape(secret), data.hex(), data.hex().upper(), *_base64(data)}
    forms |= {json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
    in_urls = {quote(data, safe=safe) for safe in ("", "/", "!'()*", "!$&'()*+,;=:@/")} | {quote_plus(data)}
    forms |= in_urls | {re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), one) for one in in_urls}
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
        text = text.replace("\\r", "  ").replace("\\n", " \n")
    return text.split("\n")


def _joined(text: str) -> str:
    """The text without line breaks and their indentation."""
    lines = _lines(text)
    if len(lines) == 1:
        return lines[0]
    return "".join([line.strip(_EDGE) for line in lines] if "\\" in text else map(str.strip, lines))


def _replace_broken(text: str, joined_form: str) -> str:
    """Replace what is `joined_form` in the joined text, with the line breaks in it."""
    positions: list[int] = []
    start = 0
    lines = _lines(text)
    for line in lines:
        skipped = len(line) - len(line.lstrip(_EDGE)) if len(lines) > 1 else 0
        length = len(line.strip(_EDGE)) if len(lines) > 1 else len(line)
        positions.extend(range(start + skipped, start + skipped + length))
        start += len(line) + 1
    kept: list[str] = []
    end = 0
    for found in re.finditer(re.escape(joined_form), _joined(text)):
        kept += [text[end : positions[found.start()]], MARK]
        end = positions[found.end() - 1] + 1
    return "".join([*kept, text[end:]])


def _secrets_of(environ: Mapping[str, str], secret_variables: Collection[str]) -> set[str]:
    values: set[str] = set()
    for name in environ:  # once: reading the environment takes longer than all the rest
        if name in secret_variables or is_secret_name(name):
            values.add(environ[name])
        if may_hold_url(name) and (found := _PASSWORD_IN_URL.search(environ[name])):
            values.add(found[1])
    return {value for value in map(str.strip, values) if _is_secret(value)}


def _is_secret(value: str) -> bool:
    """Whether a value would give something away: not words, paths and addresses, which occur in ordinary text."""
    if len(value) < SHORTEST:
        return False
    if value.isalpha():
        return len(value) >= LONGEST_WORD or not (value.islower() or value.isupper() or value.istitle())
    if value.startswith(("/", "~/", "./", "http://", "https://")):
        return any(map(_looks_random, re.split(r"[^A-Za-z0-9]", value)))
    return True


def _looks_random(part: str) -> bool:
    return len(part) >= 2 * SHORTEST and any(map(str.isdigit, part)) and not (part.islower() or part.isupper())


class Redactor:
    """Redacts keys of known formats, and the secrets that an environment holds when the redactor is created.

    A variable is secret if its name says so (`secret_names.py`) or is in `secret_variables`, and a password in a URL
    is. Values that are plain words, paths or addresses aren't secrets.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, secret_variables: Collection[str] = frozenset()
    ) -> None:
        secrets = _secrets_of(os.environ if environ is None else environ, secret_variables)
        # Longest first, so that a secret that contains another one is replaced as a whole.
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._forms = sorted({form for secret in secrets for form in _forms_of(secret)}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text with each secret replaced by `[redacted]`."""
        text = self._redacted(text)
        if not text.isascii() and any(char in text for char in _HIDDEN_CHARACTERS):
            # They are part of many honest texts, so they stay unless they hide a secret.
            plain = _HIDDEN.sub("", text)
            if (redacted := self._redacted(plain)) != plain:
                return redacted
        return text

    def _redacted(self, text: str) -> str:
        if self._secrets:
            text = self._without_values(text)
        return _replace_keys(text) if _contains_key(text) else text

    def _without_values(self, text: str) -> str:
        joined = _joined(text)
        for form in self._forms:
            if form in joined:
                text = _replace_broken(text, form)
                joined = _joined(text)
        for secret in self._secrets:  # what precedes one may have been taken for a part of a line break
            text = text.replace(secret, MARK)
        return text

    def json(self, text: str) -> str:
        """The same for JSON, which stays valid JSON. Returns `text` itself if it contains no secret."""
        return text if self.text(text) == text else json.dumps(self.value(json.loads(text)), ensure_ascii=False)

    def model(self, model: M, *, apart: Mapping[str, Any] | None = None) -> M:
        """The same for every string in a model. Returns `model` itself if it contains no secret.

        `apart` names fields that hold no text from outside, in the form of pydantic's `exclude`. They aren't searched.
        """
        searched = model.model_dump_json(exclude=dict(apart) if apart else None)
        if self.json(searched) is searched:
            return model
        return type(model).model_validate_json(self.json(model.model_dump_json()))

    def value(self, value: Any) -> Any:
        """The same for every string in a JSON value, including keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {self.text(name): self.value(part) for name, part in fields.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(part) for part in cast("list[Any]", value)]
        return value

    @contextmanager
    def for_logs(self) -> Generator[None]:
        """Use this redactor for everything that this task, and the tasks it starts, log inside the block."""
        token = _for_logs.set(self)
        try:
            yield
        finally:
            _for_logs.reset(token)


_for_logs: ContextVar[Redactor | None] = ContextVar("delegate_redactor", default=None)


class RedactingFilter(logging.Filter):
    """A filter for the loggers of modules that log exceptions or text from outside."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record's message and exception. Never drops the record."""
        redactor, message = _for_logs.get() or Redactor(), record.getMessage()
        if (kept := redactor.text(message)) != message:
            record.msg, record.args = kept, ()
        if record.exc_info and record.exc_info[1] is not None:
            formatted = logging.Formatter().formatException(record.exc_info)
            if (kept := redactor.text(formatted)) != formatted:
                record.msg, record.args, record.exc_info = f"{record.getMessage()}\n{kept}", (), None
        return True


def logger(name: str) -> logging.Logger:
    """A module's logger, with `RedactingFilter` installed."""
    found = logging.getLogger(name)
    if not any(isinstance(one, RedactingFilter) for one in found.filters):
        found.addFilter(RedactingFilter())
    return found
