"""Calls through the SDKs of OpenAI and Anthropic, which come from one generator and so have the same shape.

`create(messages=…)` checks every message against every type that it might be, so a call costs more with every turn.
The SDKs' public `client.post` sends a body as it is and keeps what they are used for: authentication, retries,
timeouts, error classes. Both run on their aiohttp backend.
"""

import os
import ssl
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, get_type_hints

import aiohttp

from delegate.errors import ProviderError
from delegate.models.providers._endpoint import OFFICIAL, Endpoint
from delegate.models.providers._quota import ReadQuota
from delegate.models.providers._shared import (
    MAX_RETRY_AFTER,
    REFUSALS,
    dig,
    reply_object,
    retry_after,
    status_error,
    to_bytes,
    transport_error,
    without_key,
)
from delegate.ports import Quota
from delegate.types import JsonObject

CONNECT_SECONDS = 5.0


class Poster:
    """One SDK client: JSON out, JSON in, `ProviderError` when it fails. `sdk` is the `openai` or `anthropic` module.

    `timeout_seconds` is for one attempt. `read_quota` knows the provider's rate-limit headers. `options` are the SDK
    client's own.
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
        # The class of responses differs between the SDKs' generations (httpx, httpx2); each names its own here.
        self._response_class: Any = get_type_hints(sdk.APIResponseValidationError.__init__)["response"]
        key = endpoint.api_key or "none"  # servers without keys take any; an empty one sends the SDK to the environment
        self.client: Any = client_class(
            base_url=endpoint.url,
            api_key=key,
            max_retries=max_retries,
            timeout=sdk.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            default_headers=_own_headers(sdk, endpoint, key),
            http_client=_http_client(sdk, _tls(self._response_class.__module__.partition(".")[0])),
            **options,
        )

    async def post(self, path: str, body: JsonObject) -> tuple[JsonObject, Quota | None]:
        """Send `body` and give back the reply's body, and what its headers say is left."""
        content = to_bytes(body)
        del body  # as long as the conversation, and the call takes as long as the model thinks
        try:
            # The whole address, since the SDK takes 40 µs to join a path to its base URL.
            address = f"{self._endpoint.url}{path}"
            response = await self.client.post(address, content=content, cast_to=self._response_class)
        except (*sdk_errors(self._sdk), aiohttp.ClientError, OSError) as error:
            translated = translate(self._sdk, error, self._endpoint.protocol)
            raise without_key(translated, self._endpoint.api_key) from None
        return reply_object(response.content, self._endpoint.protocol), self._read_quota(response.headers)

    async def aclose(self) -> None:
        await self.client.close()


@cache
def _tls(http: str) -> ssl.SSLContext:
    """The TLS context that `httpx` or `httpx2` would make for each client: 25 ms, so all clients share one."""
    return import_module(http).create_ssl_context()


def _http_client(sdk: ModuleType, tls: ssl.SSLContext) -> Any:
    hooks = {"response": [_limit_retries]}
    try:
        return sdk.DefaultAioHttpClient(verify=tls, follow_redirects=False, event_hooks=hooks)
    except RuntimeError:  # how the SDKs say that their `aiohttp` extra isn't there
        raise ModuleNotFoundError(name="the SDK's aiohttp extra") from None


async def _limit_retries(response: Any) -> None:
    """Tell the SDK not to retry what the rate limiter waits out, nor where the server wants a long wait."""
    if response.status_code < 400:
        return
    wait = retry_after(response.headers)
    if response.status_code in REFUSALS or (wait is not None and wait > MAX_RETRY_AFTER):
        response.headers["x-should-retry"] = "false"


_ABOUT_THIS_MACHINE = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")


def _own_headers(sdk: ModuleType, endpoint: Endpoint, key: str) -> dict[str, Any]:
    """Leave out what the SDK says of this machine, to whomever the endpoint belongs: it also costs 5 % of a call."""
    silent = {f"X-Stainless-{name}": sdk.Omit() for name in _ABOUT_THIS_MACHINE}
    return silent | _not_from_the_environment(sdk, endpoint, key)


def _not_from_the_environment(sdk: ModuleType, endpoint: Endpoint, key: str) -> dict[str, Any]:
    """Take back headers that the SDK reads from the environment, unless they are meant for this endpoint."""
    name = sdk.__name__.upper()
    meant_for = os.environ.get(f"{name}_BASE_URL") or OFFICIAL[endpoint.protocol]
    if meant_for.rstrip("/") == endpoint.url:
        return {}
    lines = os.environ.get(f"{name}_CUSTOM_HEADERS", "").split("\n")
    named = [line.partition(":")[0].strip() for line in lines if ":" in line]
    return {one: f"Bearer {key}" if one.lower() == "authorization" else sdk.Omit() for one in named}


def sdk_errors(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """The roots of everything that the SDK raises about a call."""
    return (sdk.OpenAIError if sdk.__name__ == "openai" else sdk.AnthropicError,)


def _is_out_of_money(body: object) -> bool:
    """Whether a refusal is about the account, which no waiting mends. Its status is 429 like a rate limit's."""
    anthropics = dig(body, "error", "details", "error_code")
    return dig(body, "code") == "insufficient_quota" or str(anthropics).endswith("spend_limit_reached")


def translate(sdk: ModuleType, error: Any, provider: str) -> ProviderError:
    """One of the SDK's errors, or of the transport below it, as ours."""
    if isinstance(error, sdk.APIStatusError):
        fault = "auth" if _is_out_of_money(error.body) else None
        return status_error(provider, error.status_code, error.body, error.response.headers, fault=fault)
    if isinstance(error, (sdk.APIConnectionError, aiohttp.ClientError, OSError)):
        return transport_error(provider, error, slow=isinstance(error, sdk.APITimeoutError))
    if isinstance(error, sdk.APIError):
        return ProviderError("bad_reply", f"{provider}: {str(error)[:200]}", provider=provider)
    # What is left are the SDKs' own complaints about credentials, before anything is sent.
    return ProviderError("auth", f"{provider}: {str(error)[:200]}", provider=provider)
