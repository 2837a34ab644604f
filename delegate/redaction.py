"""Takes secrets out of what is recorded: keys of known shapes, and the values of this process's own keys.

What a child or a tool wrote is redacted before it becomes an output, a receipt, an event, a line of a log, evidence
for a judge or a row in the store. So a quote is looked for in the same redacted text that the judge saw. The child
itself reads its files as they are: it may have to edit them.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

MARK = "[redacted]"
SHORTEST = 8
"""Shorter values of variables aren't looked for: they would be found in ordinary words."""

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")


def _shape(prefix: str, rest: str) -> tuple[str, re.Pattern[str]]:
    """A kind of key, by how it begins: not inside a word, unless that is the end of an escape in JSON.

    The literal stands first because that is found quickly, and what stands before it is looked at afterwards. A run of
    such characters is entered once, however long it is.
    """
    start = re.escape(prefix)
    return prefix, re.compile(rf"{start}(?:(?<![A-Za-z0-9_-]{start})|(?<=\\[bfnrt]{start})){rest}")


_PRIVATE = r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_SHAPES = (
    _shape("sk-", r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
    _shape("AIza", r"[A-Za-z0-9_-]{35}"),  # Google
    _shape("AQ.", r"[A-Za-z0-9_-]{40,}"),
    _shape("ya29.", r"[A-Za-z0-9_-]{20,}"),
    _shape("xai-", r"[A-Za-z0-9]{40,}"),
    _shape("gsk_", r"[A-Za-z0-9]{40,}"),  # Groq
    _shape("hf_", r"[A-Za-z0-9]{30,}"),
    _shape("gh", r"[opsur]_[A-Za-z0-9]{36,}"),
    _shape("github_pat_", r"[A-Za-z0-9_]{40,}"),
    _shape("glpat-", r"[A-Za-z0-9_-]{20,}"),
    _shape("npm_", r"[A-Za-z0-9]{36}"),
    _shape("pypi-", r"[A-Za-z0-9_-]{50,}"),
    _shape("xox", r"[abeprs]-[A-Za-z0-9-]{10,}"),  # Slack
    _shape("AKIA", r"[A-Z0-9]{16}"),  # AWS
    _shape("ASIA", r"[A-Z0-9]{16}"),
    ("k_live_", re.compile(r"[rs]k_live_[A-Za-z0-9]{20,}")),  # Stripe
    _shape("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),  # SendGrid
    _shape("eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),  # JSON Web Tokens
    ("earer ", re.compile(r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{20,}=*")),
    (
        "PRIVATE KEY",
        # Whole; or, where the end is cut off, as far as its lines go.
        re.compile(
            rf"-----BEGIN {_PRIVATE}"
            rf'(?:(?:[^"-]|-(?!----)){{0,20000}}+-----END {_PRIVATE}|(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{{16,}})*+)'
        ),
    ),
)
"""The shapes, each behind what every text holds that it fits: most texts hold none, and need no closer look."""

_declared: set[str] = set()


def declare(variables: Iterable[str]) -> None:
    """Say that these variables hold secrets, whatever their names are. For all redactors made from now on."""
    _declared.update(variables)


class Redactor:
    """Knows the shapes, and the secrets of an environment as it is now.

    A variable is a secret where its name ends like one, or was declared. Words and paths as values are none.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        names = {name for name in environ if name.rstrip("_0123456789").upper().endswith(_SECRET_NAMES)}
        values = {environ[name] for name in names.union(_declared) if name in environ}
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
        for hint, shape in _SHAPES:
            if hint in text:
                text = shape.sub(MARK, text)
        return text

    def json(self, text: str) -> str:
        """The same for JSON, which stays JSON; `text` itself where there is nothing in it."""
        return text if self.text(text) == text else json.dumps(self.value(json.loads(text)), ensure_ascii=False)

    def model(self, model: M) -> M:
        """The same for every text in a model; the one that was given where there is nothing in it."""
        as_given = model.model_dump_json()
        text = self.json(as_given)
        return model if text is as_given else type(model).model_validate_json(text)

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


class RedactingFilter(logging.Filter):
    """For the loggers of modules that log what others raised or wrote."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record, without the secrets in its message and in its exception."""
        redactor, said = Redactor(), record.getMessage()
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


def _is_secret(value: str) -> bool:
    return len(value) >= SHORTEST and not value.isalpha() and not value.startswith(("/", "~", "./"))
