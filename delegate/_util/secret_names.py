"""Tells from the name of an environment variable whether its value is a secret, or may contain one."""

import re
from functools import lru_cache
from itertools import pairwise

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
_SURE = frozenset({"SECRET", "SECRETS", "PASS", "PWD", "PAT"})
_SURE_ENDS = (
    "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "AUTHTOKEN", "SECRETKEY",
)  # fmt: skip
_QUALIFIERS = frozenset({
    "API", "ACCESS", "SECRET", "PRIVATE", "AUTH", "BEARER", "SIGNING", "ENCRYPTION", "MASTER", "ADMIN", "ACCOUNT",
    "BOT", "SERVICE", "REFRESH", "SHARED", "SESSION", "DEPLOY", "HMAC", "STORAGE", "LICENSE", "APP",
    "APPLICATION", "PERSONAL", "ID", "SECURITY",
})  # fmt: skip
"""Before `key` or `token`, these say that it is a secret."""
_ORDINARY = frozenset({"PRIMARY", "FOREIGN", "SORT", "CACHE", "PARTITION", "PAD", "HKEY"})
_NOT_SECRET = frozenset({
    "PUBLIC", "PUB", "PUBKEY", "FINGERPRINT", "NEXT", "PAGE", "PAGINATION", "STARTING", "CONTINUATION", "IDEMPOTENCY",
})  # fmt: skip
"""Keys and tokens with these words are made to be shown."""


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of a variable of this name is a secret."""
    if name.upper() in _HARMLESS:
        return False
    words = words_of(name)
    if not words or words[-1] in _HARMLESS_LAST:
        return False
    return any(word.endswith(_SECRET) or word in _SECRET_WORDS for word in words)


@lru_cache(maxsize=4096)
def is_about_a_secret(name: str) -> int:
    """How surely a name in any text is that of a secret: 0 for not at all, 2 for surely.

    It is 1 for words that also mean much else: `key`, `sort_key`, `token`, `next_page_token`.
    """
    words = words_of(name)
    if any(word in _NOT_SECRET for word in words):
        return 0
    if words and words[-1] == "AUTHORIZATION":
        return 2
    if not is_secret_name(name):
        return 0
    if name.isupper() and len(words) > 1 and not any(word in _ORDINARY for word in words):
        return 2
    if any(word in _SURE or word.endswith(_SURE_ENDS) for word in words):
        return 2
    kinds = {"TOKEN", "TOKENS", "KEY", "KEYS"}
    return 2 if any(word in _QUALIFIERS and after in kinds for word, after in pairwise(words)) else 1


def words_of(name: str) -> list[str]:
    """The words of a name, in capitals."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return [word for part in re.split(r"[^A-Za-z]+", text) if (word := part.upper())]


@lru_cache(maxsize=4096)
def may_hold_url(name: str) -> bool:
    """Whether the value of a variable of this name may be an address, which may contain a password."""
    return name.upper().endswith(("URL", "URI", "DSN", "PROXY", "INDEX", "CONNECTION", "REMOTE", "REGISTRY"))
