"""Where a model is served, and by which key."""

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
"""Named here rather than left to the SDKs, which would read the environment again."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model API at one address. The key is sent there and nowhere else.

    `base_url` None is the provider's own address. `api` concerns `openai` only: `auto` is Responses at OpenAI itself
    and Chat Completions at any other address. Raises `ConfigError` for a base URL that isn't one.
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
            raise ConfigError(f"{self.base_url!r} isn't a base URL; it should look like https://host/v1")

    @property
    def url(self) -> str:
        """The address that is used, without a slash at its end."""
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
