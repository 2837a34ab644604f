"""Sends requests through the SDKs of OpenAI and Anthropic, which are generated and have the same structure.

`create(messages=…)` validates every message against every possible type, so calls get slower with every turn. The SDKs'
public `client.post` sends a body unchanged and still provides authentication, retries, timeouts and error classes. Both
use their aiohttp backend.
"""

import os
import ssl
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, get_type_hints

import aiohttp

from delegate.errors import ProviderError
from delegate.models.providers._endpoint import OFFICIAL, Endpoint, Protocol
from delegate.models.providers._quota import ReadQuota
from delegate.models.providers._shared import (
    MAX_RETRY_AFTER,
    REJECTION_STATUSES,
    dig,
    parse_body,
    retry_after,
    status_error,
    to_bytes,
    transport_error,
    within,
    without_key,
)
from delegate.ports import ChatReply, ChatRequest, Quota
from delegate.types import JsonObject

CONNECT_SECONDS = 5.0


class SdkTransport:
    """Sends and receives JSON through an SDK client, and raises `ProviderError`.

    `sdk` is the module `openai` or `anthropic`. `timeout_seconds` applies to one attempt. `read_quota` parses the
    provider's rate-limit headers. `options` are passed to the SDK's client.
    """

    def __init__(
        self,
        sdk: ModuleType,
        client_class: Any,
        endpoint: Endpoint,
        *,
        timeout_seconds: float,
        max_retries: int,
        read_quota: ReadQuota,
        **options: Any,
    ) -> None:
        self._sdk = sdk
        self._endpoint = endpoint
        self._read_quota = read_quota
        # The response class differs between SDK versions (httpx, httpx2); this annotation refers to it.
        self._response_class: Any = get_type_hints(sdk.APIResponseValidationError.__init__)["response"]
        key = endpoint.api_key or "none"  # with an empty key, the SDK would read the environment
        self.client: Any = client_class(
            base_url=endpoint.url,
            api_key=key,
            max_retries=max_retries,
            timeout=sdk.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            default_headers=_default_headers(sdk, endpoint, key),
            http_client=_http_client(sdk, _tls(self._response_class.__module__.partition(".")[0])),
            **options,
        )

    async def post(self, path: str, body: JsonObject) -> tuple[JsonObject, Quota | None]:
        """Send `body` and return the body of the reply, and the quota from its headers."""
        content = to_bytes(body)
        del body  # free the memory: it is as large as the conversation, and the call may take minutes
        try:
            # The complete URL, since the SDK takes 40 µs to join a path to its base URL.
            address = f"{self._endpoint.url}{path}"
            response = await self.client.post(address, content=content, cast_to=self._response_class)
        except (*sdk_errors(self._sdk), aiohttp.ClientError, OSError) as error:
            translated = translate(self._sdk, error, self._endpoint.protocol)
            raise without_key(translated, self._endpoint.api_key) from None
        return parse_body(response.content, self._endpoint.protocol), self._read_quota(response.headers)


class SdkClient:
    """A `ChatClient` over a transport. Subclasses implement `_complete`."""

    provider: ClassVar[Protocol]

    def __init__(self, transport: SdkTransport, timeout_seconds: float) -> None:
        self._transport = transport
        self._seconds = timeout_seconds

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        return await within(self._seconds, self.provider, self._complete(request))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.client.close()

    async def _complete(self, request: ChatRequest) -> ChatReply:
        raise NotImplementedError


@cache
def _tls(http: str) -> ssl.SSLContext:
    """The default TLS context of `httpx` or `httpx2`. Shared by all clients, since creating it takes 25 ms."""
    return import_module(http).create_ssl_context()


def _http_client(sdk: ModuleType, tls: ssl.SSLContext) -> Any:
    hooks = {"response": [_limit_retries]}
    try:
        return sdk.DefaultAioHttpClient(verify=tls, follow_redirects=False, event_hooks=hooks)
    except RuntimeError:  # the SDKs' error if their `aiohttp` extra isn't installed
        raise ModuleNotFoundError(name="the SDK's aiohttp extra") from None


async def _limit_retries(response: Any) -> None:
    """Prevent the SDK from retrying what the rate limiter handles, and from waiting for a long `Retry-After`."""
    if response.status_code < 400:
        return
    wait = retry_after(response.headers)
    if response.status_code in REJECTION_STATUSES or (wait is not None and wait > MAX_RETRY_AFTER):
        response.headers["x-should-retry"] = "false"


_MACHINE_HEADERS = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")


def _default_headers(sdk: ModuleType, endpoint: Endpoint, key: str) -> dict[str, Any]:
    """Omit the headers with which the SDK describes this machine. They also cost 5 % of a call's CPU time."""
    omitted = {f"X-Stainless-{name}": sdk.Omit() for name in _MACHINE_HEADERS}
    return omitted | _environment_overrides(sdk, endpoint, key)


def _environment_overrides(sdk: ModuleType, endpoint: Endpoint, key: str) -> dict[str, Any]:
    """Override headers that the SDK reads from the environment, unless they are meant for this endpoint."""
    name = sdk.__name__.upper()
    meant_for = os.environ.get(f"{name}_BASE_URL") or OFFICIAL[endpoint.protocol]
    if meant_for.rstrip("/") == endpoint.url:
        return {}
    lines = os.environ.get(f"{name}_CUSTOM_HEADERS", "").split("\n")
    named = [line.partition(":")[0].strip() for line in lines if ":" in line]
    return {one: f"Bearer {key}" if one.lower() == "authorization" else sdk.Omit() for one in named}


def sdk_errors(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """The base classes of the SDK's errors."""
    return (sdk.OpenAIError if sdk.__name__ == "openai" else sdk.AnthropicError,)


def _is_out_of_credit(body: object) -> bool:
    """Whether a response with status 429 means that the account has no credit, which waiting doesn't change."""
    anthropic_code = dig(body, "error", "details", "error_code")
    return dig(body, "code") == "insufficient_quota" or str(anthropic_code).endswith("spend_limit_reached")


def translate(sdk: ModuleType, error: Any, provider: str) -> ProviderError:
    """Convert an error of the SDK or its transport to a `ProviderError`."""
    if isinstance(error, sdk.APIStatusError):
        fault = "auth" if _is_out_of_credit(error.body) else None
        return status_error(provider, error.status_code, error.body, error.response.headers, fault=fault)
    if isinstance(error, (sdk.APIConnectionError, aiohttp.ClientError, OSError)):
        return transport_error(provider, error, slow=isinstance(error, sdk.APITimeoutError))
    if isinstance(error, sdk.APIError):
        return ProviderError("bad_reply", f"{provider}: {str(error)[:200]}", provider=provider)
    # The remaining errors are about credentials and are raised before anything is sent.
    return ProviderError("auth", f"{provider}: {str(error)[:200]}", provider=provider)
