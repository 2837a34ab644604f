"""The address and key of a model API."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from delegate.types.errors import ConfigError

Protocol = Literal["openai", "anthropic", "google"]
Platform = Literal["bedrock", "vertex"]

OFFICIAL: dict[Protocol, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
"""Defined here because the SDKs would read their defaults from the environment."""
AZURE = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
"""The ends of the hosts of Azure's resources. Their base URLs end in `/openai/v1`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model API at one address. The key is only sent there.

    `base_url` None is the provider's own address. `api` is used for `openai` only: `auto` means Responses at OpenAI
    itself and on Azure and Chat Completions at any other address, until a model is found to need the other one.
    With a `platform`, the models are called through Amazon Bedrock or Google Vertex AI in `region`, with the
    credentials that the SDK finds there, and `api_key` isn't used. Raises `ConfigError` if the base URL isn't valid.
    """

    protocol: Protocol
    base_url: str | None
    api_key: str = field(repr=False)
    api: Literal["auto", "chat", "responses"] = "auto"
    platform: Platform | None = None
    region: str = ""
    project: str = ""
    ask_key: Callable[[], Any] | None = field(default=None, repr=False, hash=False)
    """Asked for the key in place of `api_key`, and again when it expires or is refused: `DeclaredEndpoint.api_key`."""
    key_from: str = field(default="", compare=False)
    """Where the key came from, for messages: a variable, or another setting."""
    url_from: str = field(default="", compare=False)
    """Where the base URL was set, for messages."""

    def __post_init__(self) -> None:
        where = f" (in {self.url_from})" if self.url_from else ""
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(f"{self.base_url!r}{where} isn't a base URL; use one such as https://host/v1")
        if self.protocol == "openai" and "@" in urlsplit(self.url).netloc:  # there can be only one Authorization header
            raise ConfigError(f"the base URL of {self.host}{where} has a user or a password; leave only the address")

    @property
    def url(self) -> str:
        """The effective address, without a trailing slash."""
        url = self.base_url or OFFICIAL[self.protocol]
        # Where a platform is, for messages: its SDK knows that itself.
        if self.base_url is None and self.platform == "bedrock":
            url = f"https://bedrock-runtime.{self.region}.amazonaws.com"
        elif self.base_url is None and self.platform == "vertex":
            url = f"https://{'' if self.region == 'global' else f'{self.region}-'}aiplatform.googleapis.com"
        return url.rstrip("/")

    @property
    def shown_url(self) -> str:
        """The address for messages that a model may read, without a password or a query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def missing_path(self) -> str:
        """What the address probably lacks: `/v1`, for a server with OpenAI's API and no path at all."""
        return "/v1" if self.protocol == "openai" and not urlsplit(self.url).path else ""

    @property
    def host(self) -> str:
        """The host of the address."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_openai_itself(self) -> bool:
        """Whether this is OpenAI's own API: globally, or in one of its regions."""
        return self.host == "api.openai.com" or self.host.endswith(".api.openai.com")

    @property
    def serves_openai(self) -> bool:
        """Whether OpenAI's models are served here as OpenAI serves them: by itself or by Azure."""
        return self.is_openai_itself or self.host.endswith(AZURE)

    @property
    def speaks_responses(self) -> bool:
        """Whether OpenAI's Responses API is used here first, rather than Chat Completions."""
        return self.api == "responses" or (self.api == "auto" and self.serves_openai)


NO_ROUTE = re.compile(r"invalid url|page not found|unexpected endpoint|no such endpoint", re.IGNORECASE)
"""What servers write about a path that they don't have, whatever the status is."""
_NAMES_MODEL = re.compile(r"\bmodels?\b", re.IGNORECASE)


def names_model(text: str) -> bool:
    """Whether the text of a 404 is about the model, rather than about the path."""
    return _NAMES_MODEL.search(text) is not None and not NO_ROUTE.search(text)
