"""Takes secrets out of what is recorded: keys of known shapes, and the values of this process's own keys.

What a child or a tool wrote is redacted before it becomes an output, a receipt, an event, a line of a log, evidence
for a judge or a row in the store. So a quote is looked for in the same redacted text that the judge saw. The child
itself reads its files as they are: it may have to edit them.
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
"""Shorter values of variables aren't looked for: they would be found in ordinary words."""

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")


class _Shape(NamedTuple):
    """A kind of key: what it begins with, and the pattern of the rest."""

    heads: tuple[str, ...]
    rest: str
    in_words: bool = False
    """Found inside a word too; others aren't, unless that word is the end of an escape in JSON."""
    head_stays: bool = False

    def pattern(self) -> re.Pattern[str]:
        """The whole of it.

        The literal stands first because that is found quickly, and what stands before it is looked at afterwards. A run
        of such characters is entered once, however long it is.
        """
        heads = [f"{head}{self._boundary(head)}" for head in map(re.escape, self.heads)]
        if self.head_stays:
            heads = [f"(?<={head})" for head in heads]
        return re.compile(f"(?:{'|'.join(heads)}){self.rest}")

    def behind(self, head: str, rare: str) -> str:
        """A pattern of the whole too, for where the head's first `rare` character was just read."""
        before, _, after = head.partition(rare)
        seen = re.escape(before + rare)
        return f"(?<={seen}){self._boundary(seen)}{re.escape(after)}{self.rest}"

    def _boundary(self, seen: str) -> str:
        if self.in_words:
            return ""
        return rf"(?:(?<![A-Za-z0-9_-]{seen})|(?<=\\[bfnrt]{seen})|(?<=\\u00[01][0-9a-f]{seen}))"


def _shape(heads: str, rest: str) -> _Shape:
    return _Shape(tuple(heads.split()), rest)


_PRIVATE = r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_SHAPES = (
    _shape("sk-", r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
    _shape("AIza", r"[A-Za-z0-9_-]{35}"),  # Google
    _shape("AQ.", r"[A-Za-z0-9_-]{40,}"),
    _shape("ya29.", r"[A-Za-z0-9_-]{20,}"),
    _shape("xai-", r"[A-Za-z0-9]{40,}"),
    _shape("gsk_", r"[A-Za-z0-9]{40,}"),  # Groq
    _shape("hf_", r"[A-Za-z0-9]{30,}"),
    _shape("gho_ ghp_ ghr_ ghs_ ghu_", r"[A-Za-z0-9]{36,}"),
    _shape("github_pat_", r"[A-Za-z0-9_]{40,}"),
    _shape("glpat-", r"[A-Za-z0-9_-]{20,}"),
    _shape("npm_", r"[A-Za-z0-9]{36}"),
    _shape("pypi-", r"[A-Za-z0-9_-]{50,}"),
    _shape("xoxa- xoxb- xoxe- xoxp- xoxr- xoxs-", r"[A-Za-z0-9-]{10,}"),  # Slack
    _shape("AKIA", r"[A-Z0-9]{16}"),  # AWS
    _shape("ASIA", r"[A-Z0-9]{16}"),
    _Shape(("rk_live_", "sk_live_"), r"[A-Za-z0-9]{20,}", in_words=True),  # Stripe
    _shape("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),  # SendGrid
    _shape("eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),  # JSON Web Tokens
    _Shape(("Bearer ", "bearer "), r"[A-Za-z0-9._~+/-]{20,}=*", in_words=True, head_stays=True),
    _Shape(
        ("-----BEGIN ",),
        # Whole; or, where the end is cut off, as far as its lines go.
        # (No possessive repeats of groups: `re` of Python before 3.11.5 gets them wrong.)
        rf'{_PRIVATE}(?:(?:[^"-]|-(?!----)){{0,20000}}-----END {_PRIVATE}|(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{{16,}})*)',
        in_words=True,
    ),
)
_SHORTEST_KEY = 15
"""Shorter texts hold no key of these shapes."""
_RARE = "JGB9A_-b"
"""Characters that most texts hold few of. Each head has one: it is looked for by the first in this order."""


@cache
def _looks() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Patterns that together find something in just those texts that some shape fits: most texts need no closer look.

    Each comes with the one character that it begins with, to which the search leaps. To search for each head takes
    three times as long, and for all heads at once six times.
    """
    heads: defaultdict[str, list[tuple[_Shape, str]]] = defaultdict(list)
    for shape in _SHAPES:
        for head in shape.heads:
            heads[next(filter(head.__contains__, _RARE))].append((shape, head))
    return tuple((rare, _look(rare, found)) for rare, found in heads.items())


def _look(rare: str, heads: Sequence[tuple[_Shape, str]]) -> re.Pattern[str]:
    before = {head.partition(rare)[0][-1:] for _, head in heads}
    one_of = "" if "" in before else f"(?<=[{re.escape(''.join(sorted(before)))}]{rare})"  # rules most places out
    return re.compile(f"{rare}{one_of}(?:{'|'.join(shape.behind(head, rare) for shape, head in heads)})")


@cache
def _patterns() -> tuple[tuple[_Shape, re.Pattern[str]], ...]:
    return tuple((shape, shape.pattern()) for shape in _SHAPES)


class Redactor:
    """Knows the shapes of keys, and the secrets of an environment as it is now.

    A variable is a secret where its name ends like one, or is in `secret_variables`. Words and paths are no secrets.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, secret_variables: Collection[str] = frozenset()
    ) -> None:
        environ = os.environ if environ is None else environ
        names = set(filter(_names_a_secret, environ))
        values = {environ[name] for name in names.union(secret_variables) if name in environ}
        secrets = {value for value in map(str.strip, values) if _is_secret(value)}
        # And as they stand in JSON.
        secrets |= {json.dumps(value, ensure_ascii=ascii)[1:-1] for value in secrets for ascii in (True, False)}
        # Longest first, so that a secret which contains another goes as a whole.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text, with `[redacted]` in the place of each secret."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MARK)
        return _without_keys(text) if _holds_a_key(text) else text

    def json(self, text: str) -> str:
        """The same for JSON, which stays JSON; `text` itself where there is nothing in it."""
        return text if self.text(text) == text else json.dumps(self.value(json.loads(text)), ensure_ascii=False)

    def model(self, model: M, *, apart: Mapping[str, Any] | None = None) -> M:
        """The same for every text in a model; the one that was given where there is nothing in it.

        `apart` are fields without foreign text, as pydantic's `exclude`: they alone are no reason to look closely.
        """
        looked_at = model.model_dump_json(exclude=dict(apart) if apart else None)
        if self.json(looked_at) is looked_at:
            return model
        return type(model).model_validate_json(self.json(model.model_dump_json()))

    def value(self, value: Any) -> Any:
        """The same for every text in a JSON value, keys included."""
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
        """Redact with this one whatever is logged inside, by this task and those that it starts."""
        token = _for_logs.set(self)
        try:
            yield
        finally:
            _for_logs.reset(token)


_for_logs: ContextVar[Redactor | None] = ContextVar("delegate_redactor", default=None)


class RedactingFilter(logging.Filter):
    """For the loggers of modules that log what others raised or wrote."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record, without the secrets in its message and in its exception."""
        redactor, said = _for_logs.get() or Redactor(), record.getMessage()
        if (kept := redactor.text(said)) != said:
            record.msg, record.args = kept, ()
        if record.exc_info and record.exc_info[1] is not None:
            told = logging.Formatter().formatException(record.exc_info)
            if (kept := redactor.text(told)) != told:
                record.msg, record.args, record.exc_info = f"{record.getMessage()}\n{kept}", (), None
        return True


def logger(name: str) -> logging.Logger:
    """The logger of a module, with the filter on it."""
    found = logging.getLogger(name)
    if not any(isinstance(one, RedactingFilter) for one in found.filters):
        found.addFilter(RedactingFilter())
    return found


@lru_cache(maxsize=1024)
def _names_a_secret(name: str) -> bool:
    return name.rstrip("_0123456789").upper().endswith(_SECRET_NAMES)


def _holds_a_key(text: str) -> bool:
    return len(text) >= _SHORTEST_KEY and any(rare in text and look.search(text) for rare, look in _looks())


def _without_keys(text: str) -> str:
    for shape, pattern in _patterns():
        if any(head in text for head in shape.heads):
            text = pattern.sub(MARK, text)
    return text


def _is_secret(value: str) -> bool:
    return len(value) >= SHORTEST and not value.isalpha() and not value.startswith(("/", "~", "./"))
