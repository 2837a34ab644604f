"""Takes secrets out of what is recorded: keys of known shapes, and the values of this process's own keys.

What a child or a tool wrote is redacted before it becomes a receipt, an output, an event or a line in the store.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, cast

MARK = "[redacted]"
SHORTEST = 8
"""Shorter values of variables aren't looked for: they would be found in ordinary words."""

_NAMES = re.compile(r"(?:^|_)(?:API_?KEY|TOKEN|SECRET|SECRET_ACCESS_KEY|PASSWORD)$", re.IGNORECASE)
_SHAPES = (
    r"sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}",
    r"glpat-[A-Za-z0-9_-]{20,}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    r"hf_[A-Za-z0-9]{30,}",
    r"npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}",
    r"(?:sk|rk)_live_[A-Za-z0-9]{20,}",  # Stripe
    r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",  # JSON Web Tokens
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----[\s\S]{0,8192}?-----END (?:[A-Z]+ )*PRIVATE KEY-----",
    r"(?i:(?<=bearer )[A-Za-z0-9._~+/-]{20,}=*)",
)
_KNOWN = re.compile("|".join(f"(?:{shape})" for shape in _SHAPES))
_HINTS = (
    "sk-", "AIza", "ya29.", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA",
    "hf_", "npm_", "pypi-", "k_live_", "eyJ", "PRIVATE KEY", "earer ", "EARER ",
)  # fmt: skip
"""Every shape holds one of these: most texts hold none, and need no closer look."""


class Redactor:
    """Knows the shapes, and the secrets of an environment as it is now."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        given = (os.environ if environ is None else environ).items()
        secrets = {value for name, value in given if len(value) >= SHORTEST and _NAMES.search(name)}
        # Longest first, so that a secret which contains another goes as a whole.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text, with `[redacted]` in the place of each secret."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MARK)
        return _KNOWN.sub(MARK, text) if any(hint in text for hint in _HINTS) else text

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
