"""Redacts secrets in recorded text: API keys of known formats, and the values of this process's secret variables.

What a child or a tool writes is redacted before it becomes an output, a receipt, an event, a log line, evidence for a
judge or a row in the store. Quotes are therefore verified against the same redacted text that the judge saw. The child
itself reads its files unredacted, since it may have to edit them.
"""

import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

MARK = "[redacted]"
SHORTEST = 8
"""Shorter values of variables aren't redacted, since they also occur in ordinary words."""

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")


class _KeyFormat(NamedTuple):
    """One key format: its prefixes, and the regular expression of the rest."""

    prefixes: tuple[str, ...]
    rest: str
    in_words: bool = False
    """Whether it also matches inside a word. Other formats match only at the start of a word or after a JSON escape."""
    keep_prefix: bool = False

    def pattern(self) -> re.Pattern[str]:
        """The regular expression of the whole key.

        The literal prefix comes first, because `re` finds a literal quickly; a lookbehind then checks what precedes it.
        That way a long run of word characters is scanned only once.
        """
        prefixes = [f"{prefix}{self._boundary(prefix)}" for prefix in map(re.escape, self.prefixes)]
        if self.keep_prefix:
            prefixes = [f"(?<={prefix})" for prefix in prefixes]
        return re.compile(f"(?:{'|'.join(prefixes)}){self.rest}")

    def pattern_after(self, prefix: str, rare: str) -> str:
        """The regular expression of the whole key, for use right after the first `rare` character of the prefix."""
        before, _, after = prefix.partition(rare)
        seen = re.escape(before + rare)
        return f"(?<={seen}){self._boundary(seen)}{re.escape(after)}{self.rest}"

    def _boundary(self, seen: str) -> str:
        if self.in_words:
            return ""
        return rf"(?:(?<![A-Za-z0-9_-]{seen})|(?<=\\[bfnrt]{seen})|(?<=\\u00[01][0-9a-f]{seen}))"


def _key_format(prefixes: str, rest: str) -> _KeyFormat:
    return _KeyFormat(tuple(prefixes.split()), rest)


_PRIVATE = r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_FORMATS = (
    _key_format("sk-", r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
    _key_format("AIza", r"[A-Za-z0-9_-]{35}"),  # Google
    _key_format("AQ.", r"[A-Za-z0-9_-]{40,}"),
    _key_format("ya29.", r"[A-Za-z0-9_-]{20,}"),
    _key_format("xai-", r"[A-Za-z0-9]{40,}"),
    _key_format("gsk_", r"[A-Za-z0-9]{40,}"),  # Groq
    _key_format("hf_", r"[A-Za-z0-9]{30,}"),
    _key_format("gho_ ghp_ ghr_ ghs_ ghu_", r"[A-Za-z0-9]{36,}"),
    _key_format("github_pat_", r"[A-Za-z0-9_]{40,}"),
    _key_format("glpat-", r"[A-Za-z0-9_-]{20,}"),
    _key_format("npm_", r"[A-Za-z0-9]{36}"),
    _key_format("pypi-", r"[A-Za-z0-9_-]{50,}"),
    _key_format("xoxa- xoxb- xoxe- xoxp- xoxr- xoxs-", r"[A-Za-z0-9-]{10,}"),  # Slack
    _key_format("AKIA", r"[A-Z0-9]{16}"),  # AWS
    _key_format("ASIA", r"[A-Z0-9]{16}"),
    _KeyFormat(("rk_live_", "sk_live_"), r"[A-Za-z0-9]{20,}", in_words=True),  # Stripe
    _key_format("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),  # SendGrid
    _key_format("eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),  # JSON Web Tokens
    _KeyFormat(("Bearer ", "bearer "), r"[A-Za-z0-9._~+/-]{20,}=*", in_words=True, keep_prefix=True),
    _KeyFormat(
        ("-----BEGIN ",),
        # The whole key; if its end is cut off, all lines that belong to it.
        # (No possessive repeats of groups: `re` of Python before 3.11.5 gets them wrong.)
        rf'{_PRIVATE}(?:(?:[^"-]|-(?!----)){{0,20000}}-----END {_PRIVATE}|(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{{16,}})*)',
        in_words=True,
    ),
)
_SHORTEST_KEY = 15
"""Shorter texts contain no key of these formats."""
_RARE_CHARACTERS = "JGB9A_-b"
"""Characters that are rare in most texts. Each prefix contains one; the search starts from the first of these."""


@cache
def _rare_searches() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Regular expressions that match exactly the texts that contain a key, each with its first character.

    Searching for one rare character first is three times as fast as searching for each prefix, and six times as fast as
    searching for all prefixes at once.
    """
    prefixes: defaultdict[str, list[tuple[_KeyFormat, str]]] = defaultdict(list)
    for key_format in _KEY_FORMATS:
        for prefix in key_format.prefixes:
            prefixes[next(filter(prefix.__contains__, _RARE_CHARACTERS))].append((key_format, prefix))
    return tuple((rare, _rare_search(rare, found)) for rare, found in prefixes.items())


def _rare_search(rare: str, prefixes: Sequence[tuple[_KeyFormat, str]]) -> re.Pattern[str]:
    before = {prefix.partition(rare)[0][-1:] for _, prefix in prefixes}
    one_of = "" if "" in before else f"(?<=[{re.escape(''.join(sorted(before)))}]{rare})"  # rules out most positions
    return re.compile(
        f"{rare}{one_of}(?:{'|'.join(key_format.pattern_after(prefix, rare) for key_format, prefix in prefixes)})"
    )


@cache
def _key_patterns() -> tuple[tuple[_KeyFormat, re.Pattern[str]], ...]:
    return tuple((key_format, key_format.pattern()) for key_format in _KEY_FORMATS)


class Redactor:
    """Redacts keys of known formats, and the secrets that an environment holds when the redactor is created.

    A variable is secret if its name ends in a word such as `KEY` or `TOKEN`, or is in `secret_variables`. Values that
    are plain words or paths aren't secrets.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, secret_variables: Collection[str] = frozenset()
    ) -> None:
        environ = os.environ if environ is None else environ
        names = set(filter(_is_secret_name, environ))
        values = {environ[name] for name in names.union(secret_variables) if name in environ}
        secrets = {value for value in map(str.strip, values) if _is_secret(value)}
        # Also in their JSON-escaped form.
        secrets |= {json.dumps(value, ensure_ascii=ascii)[1:-1] for value in secrets for ascii in (True, False)}
        # Longest first, so that a secret that contains another one is replaced as a whole.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text with each secret replaced by `[redacted]`."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MARK)
        return _replace_keys(text) if _contains_key(text) else text

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


@lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    return name.rstrip("_0123456789").upper().endswith(_SECRET_NAMES)


def _contains_key(text: str) -> bool:
    return len(text) >= _SHORTEST_KEY and any(
        rare in text and pattern.search(text) for rare, pattern in _rare_searches()
    )


def _replace_keys(text: str) -> str:
    for key_format, pattern in _key_patterns():
        if any(prefix in text for prefix in key_format.prefixes):
            text = pattern.sub(MARK, text)
    return text


def _is_secret(value: str) -> bool:
    return len(value) >= SHORTEST and not value.isalpha() and not value.startswith(("/", "~", "./"))
