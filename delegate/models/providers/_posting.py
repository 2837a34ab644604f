"""Sends requests through the SDKs of OpenAI and Anthropic, which are generated and have the same structure.

`create(messages=…)` validates every message against every possible type, so calls get slower with every turn. The SDKs'
public `client.post` sends a body unchanged and still provides authentication and error classes. Both use their aiohttp
backend. Their own retries and read timeouts are off: the rate limiter retries, and each call has a timeout here.
"""

import os
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any, get_type_hints
from weakref import ref

import aiohttp

from delegate._util.redaction import redactor
from delegate.models.providers._client import SdkClient
from delegate.models.providers._endpoint import OFFICIAL, Endpoint
from delegate.models.providers._faults import status_error, transport_error
from delegate.models.providers._http import (
    SUCCESS,
    Answer,
    RepeatingClient,
    causes,
    http_client,
    receiving,
)
from delegate.models.providers._profile import ProfileStore
from delegate.models.providers._shared import ReadReply, parse_object, untraced
from delegate.models.providers._stream import Assembly, Receiver, Stream
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest

CONNECT_SECONDS = 5.0


def _response_class(sdk: ModuleType) -> Any:
    """The class of an SDK's HTTP responses, which differs between its versions; this annotation refers to it."""
    return get_type_hints(sdk.APIResponseValidationError.__init__)["response"]


def http_library(sdk: ModuleType) -> str:
    """The HTTP library of an SDK: `httpx`, or `httpx2` in newer versions."""
    return _response_class(sdk).__module__.partition(".")[0]


_MACHINE_HEADERS = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
"""The headers with which the SDKs describe this machine, after `X-Stainless-`. They cost 5 % of a call's CPU time."""


class PostingClient(SdkClient):
    """A client over an SDK that posts.

    `sdk` is the module `openai` or `anthropic`. `options` are passed to the SDK's client. On a platform, the SDK finds
    the address and the credentials itself.
    """

    def __init__(
        self,
        sdk: ModuleType,
        client_class: Any,
        endpoint: Endpoint,
        profiles: ProfileStore,
        timeout_seconds: float | None,
        **options: Any,
    ) -> None:
        super().__init__(endpoint, profiles, timeout_seconds)
        self._response_class = _response_class(sdk)
        is_plain = endpoint.platform is None
        if is_plain:
            options |= {"base_url": endpoint.url, "api_key": self.key.text}
        elif endpoint.base_url is not None:
            options |= {"base_url": endpoint.url}
        client = http_client(sdk, http_library(sdk), is_plain=is_plain)
        foreign = _foreign_headers(sdk, endpoint)
        self._bearers = [name for name in foreign if is_plain and name.lower() == "authorization"]
        """The headers with the key that would have another from the environment."""
        self._repeating = client if isinstance(client, RepeatingClient) else None
        unwanted = [*(f"X-Stainless-{name}" for name in _MACHINE_HEADERS), *foreign]
        self.sdk_client: Any = client_class(
            max_retries=0,
            timeout=sdk.Timeout(None, connect=CONNECT_SECONDS),
            default_headers=dict.fromkeys(unwanted, sdk.Omit()),
            http_client=client,
            **options,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self.sdk_client.close()

    async def _post(
        self,
        receiver: Receiver,
        key: str,
        request: ChatRequest,
        path: str,
        content: bytes,
        assembly: Assembly,
        read: ReadReply,
        headers: Mapping[str, str] | None = None,
    ) -> ChatReply:
        """Send a body, and `read` the reply, which `assembly` puts together if the server streams it.

        All requests to a path have the same `headers` besides the SDK's own, since they are remembered by their path.
        """
        if self.endpoint.platform is None and self.sdk_client.api_key != key:
            self.sdk_client.api_key = key
            if self._repeating is not None:  # what was remembered of requests has the key before
                self._repeating.forget()
        stream = Stream(assembly, read, receiver, self.provider)
        receiving.set(ref(stream))
        with untraced(self.sdk_client.post, self.sdk_client.request):
            answer = await self._sent(partial(self._exchange, path, content, headers))
        return self._reply(request, stream, read, answer.content, answer.headers)

    async def _exchange(self, path: str, content: bytes, headers: Mapping[str, str] | None) -> Answer:
        """Send a body, or let the SDK do it, and return a successful answer."""
        if self._repeating is None:
            # On a platform, the SDK moves parts of the body to the URL, and signs the request.
            body = {"content": content} if self.endpoint.platform is None else {"body": parse_object(content)}
            return await self._build_and_send(path, headers, **body)
        url = f"{self.endpoint.url}{path}"
        answer = await self._repeating.repeat(url, content)
        if answer is not None and answer.status == SUCCESS:
            return answer
        with self._repeating.asking(url, answer):
            return await self._build_and_send(url, headers, content=content)

    async def _build_and_send(self, path: str, headers: Mapping[str, str] | None, **body: Any) -> Answer:
        sent = {**(headers or {}), **dict.fromkeys(self._bearers, f"Bearer {self.key.text}")}
        options = {"headers": sent} if sent else {}
        response = await self.sdk_client.post(path, cast_to=self._response_class, options=options, **body)
        return Answer(response.status_code, response.headers, response.content)


def _foreign_headers(sdk: ModuleType, endpoint: Endpoint) -> list[str]:
    """The names of headers that the SDK reads from the environment, unless they are meant for this endpoint."""
    name = sdk.__name__.upper()
    meant_for = os.environ.get(f"{name}_BASE_URL") or OFFICIAL[endpoint.protocol]
    if meant_for.rstrip("/") == endpoint.url:
        return []
    lines = os.environ.get(f"{name}_CUSTOM_HEADERS", "").split("\n")
    return [line.partition(":")[0].strip() for line in lines if ":" in line]


def translate(sdk: ModuleType, error: Any, provider: str) -> ProviderError:
    """Convert an error of the SDK or its transport to a `ProviderError`."""
    for cause in causes(error):
        if isinstance(cause, ProviderError):  # from reading a stream, which the SDK takes for a broken connection
            return cause
    if isinstance(error, sdk.APIStatusError):
        return status_error(provider, error.status_code, error.body, error.response.headers)
    if isinstance(error, (sdk.APIConnectionError, aiohttp.ClientError, OSError)):
        return transport_error(provider, error, slow=isinstance(error, sdk.APITimeoutError))
    # Those that aren't about a reply are about credentials, and are raised before anything is sent.
    fault = "bad_reply" if isinstance(error, sdk.APIError) else "auth"
    return ProviderError(fault, f"{provider}: {redactor.beginning(str(error), 200)}", provider=provider)
