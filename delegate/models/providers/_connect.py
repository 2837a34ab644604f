"""Creates the client for an endpoint, and imports its SDK on first use."""

import asyncio
import sys
from contextlib import suppress
from importlib import import_module

from delegate.errors import ConfigError
from delegate.models.providers._endpoint import Endpoint, Protocol
from delegate.ports import ChatClient

PACKAGES: dict[Protocol, str] = {
    "openai": "openai[aiohttp]>=2.24,<4",
    "anthropic": "anthropic[aiohttp]>=0.87,<3",
    "google": "google-genai[aiohttp]>=2,<4",
}


async def load(protocol: Protocol) -> None:
    """Import the provider's SDK in a thread, since that would block the event loop for 0.3 to 1.6 s.

    `connect` reports an SDK that isn't installed.
    """
    name = f"delegate.models.providers.{protocol}"
    if name not in sys.modules:
        with suppress(ModuleNotFoundError):
            await asyncio.to_thread(import_module, name)


def connect(endpoint: Endpoint, *, timeout_seconds: float = 120, max_retries: int = 2) -> ChatClient:
    """Create a client for `endpoint`, for use on one event loop. The provider's SDK is imported on first use.

    `timeout_seconds` limits one model call with all its retries. Raises `ConfigError` if the SDK isn't installed.
    """
    try:
        module = import_module(f"delegate.models.providers.{endpoint.protocol}")
        return module.connect(endpoint, timeout_seconds=timeout_seconds, max_retries=max_retries)
    except ModuleNotFoundError as error:
        command = f"pip install '{PACKAGES[endpoint.protocol]}'"
        raise ConfigError(f"{endpoint.protocol} models need {error.name}, which isn't installed: {command}") from None
