"""Creates the client for an endpoint, and imports its SDK on first use."""

import asyncio
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from delegate.models.providers._endpoint import Endpoint, Platform, Protocol
from delegate.types.errors import ConfigError
from delegate.types.ports import ChatClient

if TYPE_CHECKING:
    from delegate.models.providers._profile import ProfileStore

PACKAGES: dict[tuple[Protocol, Platform | None], str] = {
    ("openai", None): "openai[aiohttp]>=2.24,<4",
    ("anthropic", None): "anthropic[aiohttp]>=0.87,<3",
    ("anthropic", "bedrock"): "anthropic[aiohttp,bedrock]>=0.87,<3",
    ("anthropic", "vertex"): "anthropic[aiohttp,vertex]>=0.87,<3",
    ("google", None): "google-genai[aiohttp]>=2,<4",
    ("google", "vertex"): "google-genai[aiohttp]>=2,<4",
}


async def load(protocol: Protocol) -> None:
    """Do what the first client of a provider needs: import its SDK, and read the trusted certificates.

    In a thread, since that would block the event loop for 0.3 to 1.6 s. `connect` reports an SDK that isn't installed.
    """

    def prepare() -> None:
        with suppress(ModuleNotFoundError):
            import_module(f"delegate.models.providers.{protocol}").prepare()

    if protocol not in _loaded:
        await asyncio.to_thread(prepare)
        _loaded.add(protocol)


_loaded: set[Protocol] = set()


def connect(
    endpoint: Endpoint, *, timeout_seconds: float | None = None, profiles: "ProfileStore | None" = None
) -> ChatClient:
    """Create a client for `endpoint`, for use on one event loop. The provider's SDK is imported on first use.

    The client doesn't retry. `timeout_seconds` limits one model call. None: 180 s until the first text of the reply, or
    the time that the request's output limit takes at 30 tokens per second if that is longer, and then 120 s for each
    pause of a reply that is streamed. What it learns of the endpoint's models goes to `profiles`; without them, it is
    known to this client only. Raises `ConfigError` if the SDK isn't installed.
    """
    try:
        module = import_module(f"delegate.models.providers.{endpoint.protocol}")
        return module.connect(endpoint, timeout_seconds=timeout_seconds, profiles=profiles or profile_store())
    except ModuleNotFoundError as error:
        models = f"{endpoint.protocol} models" + (f" on {endpoint.platform}" if endpoint.platform else "")
        command = f"pip install '{PACKAGES[endpoint.protocol, endpoint.platform]}'"
        raise ConfigError(f"{models} need {error.name}, which isn't installed: {command}") from None


def profile_store(home: Path | None = None) -> "ProfileStore":
    """What is known of the models at all endpoints, kept in the folder `home` or, without one, in memory."""
    from delegate.models.providers._profile import FILE, ProfileStore  # loaded with the first client

    return ProfileStore(home / FILE if home else None)
