"""Tells from the name of an environment variable whether its value is a secret, or may contain one."""

import re
from functools import lru_cache

_SECRET = (
    "KEY", "KEYS", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE",
    "CREDENTIAL", "CREDENTIALS",
)  # fmt: skip
"""A word of the name that ends like this is a secret's, also in PGPASSWORD."""
_SECRET_WORDS = frozenset({"AUTH", "PASS", "PAT", "PWD"})
"""These words, too, but not as the end of another."""
_HARMLESS_LAST = frozenset({
    "FILE", "PATH", "DIR", "FOLDER", "NAME", "ID", "LIMIT", "LIMITS", "TYPE", "URL", "URI", "HOST", "PORT", "SOCK",
    "SOCKET", "TTL", "EXPIRY", "LENGTH", "SIZE", "COUNT", "MAX", "MIN", "ENABLED", "DISABLED", "MODE", "METHOD",
    "ALGORITHM", "VERSION", "PARALLELISM", "HEADER", "PREFIX", "LAYOUT", "STORE", "PROVIDER", "COMMAND",
})  # fmt: skip
"""A name that ends with one of these is about a secret, but its value isn't one: SSH_AUTH_SOCK, TOKEN_LIMIT."""
_HARMLESS = frozenset({"PWD", "OLDPWD"})


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of a variable of this name is a secret."""
    if name.upper() in _HARMLESS:
        return False
    words = [word for part in re.split(r"[^A-Za-z]+", _split_camel_case(name)) if (word := part.upper())]
    if not words or words[-1] in _HARMLESS_LAST:
        return False
    return any(word.endswith(_SECRET) or word in _SECRET_WORDS for word in words)


def _split_camel_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)


@lru_cache(maxsize=4096)
def may_hold_url(name: str) -> bool:
    """Whether the value of a variable of this name may be an address, which may contain a password."""
    return name.upper().endswith(("URL", "URI", "DSN", "PROXY", "INDEX", "CONNECTION", "REMOTE", "REGISTRY"))
