"""The address and key of a model API."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from delegate.errors import ConfigError

Protocol = Literal["openai", "anthropic", "google"]

OFFICIAL: dict[Protocol, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
"""Defined here because the SDKs would read their defaults from the environment."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model API at one address. The key is only sent there.

    `base_url` None is the provider's own address. `api` is used for `openai` only: `auto` means Responses at OpenAI
    itself and Chat Completions at any other address. Raises `ConfigError` if the base URL isn't valid.
    """

    protocol: Protocol
    base_url: str | None
    api_key: str = field(repr=False)
    api: Literal["auto", "chat", "responses"] = "auto"

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(f"{self.base_url!r} isn't a base URL; use one such as https://host/v1")

    @property
    def url(self) -> str:
        """The effective address, without a trailing slash."""
        return (self.base_url or OFFICIAL[self.protocol]).rstrip("/")

    @property
    def is_openai_itself(self) -> bool:
        """Whether this is OpenAI's own API: globally, or in one of its regions."""
        host = urlsplit(self.url).hostname or ""
        return host == "api.openai.com" or host.endswith(".api.openai.com")

    @property
    def speaks_responses(self) -> bool:
        """Whether OpenAI's Responses API is used here, rather than Chat Completions."""
        return self.api == "responses" or (self.api == "auto" and self.is_openai_itself)
