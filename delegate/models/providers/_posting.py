"""Sends requests through the SDKs of OpenAI and Anthropic, which are generated and have the same structure.

`create(messages=…)` validates every message against every possible type, so calls get slower with every turn. The SDKs'
public `client.post` sends a body unchanged and still provides authentication and error classes. Both use their aiohttp
backend. Their own retries and read timeouts are off: the rate limiter retries, and each call has a timeout here.
"""

import os
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, cast, get_type_hints

import aiohttp

from delegate._util.redaction import redactor
from delegate.errors import ProviderError
from delegate.models.providers._endpoint import OFFICIAL, Endpoint, Protocol
from delegate.models.providers._faults import (
    AnsweredError,
    advise,
    body_error,
    status_error,
    transport_error,
    without_key,
)
from delegate.models.providers._http import (
    SUCCESS,
    Answer,
    RepeatingClient,
    causes,
    http_client,
    prepare_client,
    receiving,
    sent,
)
from delegate.models.providers._keys import CurrentKey, with_key
from delegate.models.providers._quota import ReadQuota
from delegate.models.providers._shared import (
    BuiltInClient,
    dig,
    parse_object,
    untraced,
)
from delegate.models.providers._stream import Receiver, Stream, body_of, receiver
from delegate.ports import ChatReply, ChatRequest, Quota
from delegate.types import JsonObject, Usage

CONNECT_SECONDS = 5.0


def prepare_http(sdk: ModuleType) -> None:
    """Do what the first client of an SDK needs, which takes 50 ms."""
    prepare_client(http_library(sdk))


def _response_class(sdk: ModuleType) -> Any:
    """The class of an SDK's HTTP responses, which differs between its versions; this annotation refers to it."""
    return get_type_hints(sdk.APIResponseValidationError.__init__)["response"]


def http_library(sdk: ModuleType) -> str:
    """The HTTP library of an SDK: `httpx`, or `httpx2` in newer versions."""
    return _response_class(sdk).__module__.partition(".")[0]


class SdkTransport:
    """Sends and receives JSON through an SDK client, and raises `ProviderError`.

    `sdk` is the module `openai` or `anthropic`. `read_quota` parses the provider's rate-limit headers. `options` are
    passed to the SDK's client. On a platform, the SDK finds the address and the credentials itself.
    """

    def __init__(
        self, sdk: ModuleType, client_class: Any, endpoint: Endpoint, *, read_quota: ReadQuota, **options: Any
    ) -> None:
        self._sdk = sdk
        self.endpoint = endpoint
        self._read_quota = read_quota
        self._response_class = _response_class(sdk)
        self.key = CurrentKey(endpoint)
        if endpoint.platform is None:
            options |= {"base_url": endpoint.url, "api_key": self.key.text}
        elif endpoint.base_url is not None:
            options |= {"base_url": endpoint.url}
        client = http_client(sdk, http_library(sdk), is_plain=endpoint.platform is None)
        foreign = _foreign_headers(sdk, endpoint)
        is_plain = endpoint.platform is None
        self._bearers = [name for name in foreign if is_plain and name.lower() == "authorization"]
        """The headers with the key that would have another from the environment."""
        self._repeating = client if isinstance(client, RepeatingClient) else None
        self.client: Any = client_class(
            max_retries=0,
            timeout=sdk.Timeout(None, connect=CONNECT_SECONDS),
            default_headers={**_machine_headers(sdk), **dict.fromkeys(foreign, sdk.Omit())},
            http_client=client,
            **options,
        )

    def use_key(self, key: str) -> None:
        """Send this key from now on. What was remembered of requests has the one before, and is forgotten."""
        if self.endpoint.platform is None and self.client.api_key != key:
            self.client.api_key = key
            if self._repeating is not None:
                self._repeating.forget()

    async def post(
        self, path: str, content: bytes, stream: Stream, headers: Mapping[str, str] | None = None
    ) -> tuple[JsonObject, Quota | None]:
        """Send a body and return that of the reply, and the quota from its headers.

        `stream` receives the reply if the server sends it as events. All requests to a path have the same `headers`
        besides the SDK's own, since they are remembered by their path.
        """
        receiving.set(stream)
        try:
            with untraced(self.client.post, self.client.request):
                answer = await sent(partial(self._exchange, path, content, headers))
        except (*sdk_errors(self._sdk), aiohttp.ClientError, OSError) as error:
            translated = translate(self._sdk, error, self.endpoint.protocol)
            raise without_key(translated, self.key.text) from None
        except Exception as error:
            if self.endpoint.platform is None:
                raise
            # The libraries with which the SDK finds a platform's credentials have errors of their own.
            raise credentials_error(self.endpoint, error) from None
        return self._read(answer, stream)

    async def _exchange(self, path: str, content: bytes, headers: Mapping[str, str] | None) -> Answer:
        """Send a body, or let the SDK do it, and return a successful answer."""
        if self._repeating is None:
            # On a platform, the SDK moves parts of the body to the URL, and signs the request.
            body = {"content": content} if self.endpoint.platform is None else {"body": parse_object(content)}
            return await self._post(path, headers, **body)
        url = f"{self.endpoint.url}{path}"
        repeated = self._repeating.repeat(url, content)
        answer = None if repeated is None else await repeated
        if answer is not None and answer.status == SUCCESS:
            return answer
        with self._repeating.asking(url, answer):
            return await self._post(url, headers, content=content)

    async def _post(self, path: str, headers: Mapping[str, str] | None, **body: Any) -> Answer:
        sent = {**(headers or {}), **dict.fromkeys(self._bearers, f"Bearer {self.key.text}")}
        options = {"headers": sent} if sent else {}
        response = await self.client.post(path, cast_to=self._response_class, options=options, **body)
        return Answer(response.status_code, response.headers, response.content)

    def _read(self, answer: Answer, stream: Stream) -> tuple[JsonObject, Quota | None]:
        provider = self.endpoint.protocol
        body = body_of(answer.content, answer.headers.get("content-type", ""), stream, provider)
        if failed := _failure(body):
            had_begun = stream.has_begun or "choices" in body  # a gateway had begun to pass on a model's answer
            error = body_error(provider, failed, answer.headers, had_begun=had_begun)
            raise without_key(error, self.key.text)
        return body, self._read_quota(answer.headers)


def _failure(body: JsonObject) -> object:
    """The error in the body of a response with status 200, if it has one: gateways report those of others there."""
    if body.get("object") == "error":
        return body
    choices: object = body.get("choices")
    return (
        dig(cast("list[object]", choices)[0], "error") if isinstance(choices, list) and choices else body.get("error")
    )


class SdkClient(BuiltInClient):
    """A `ChatClient` over a transport. Subclasses implement `_complete`.

    `timeout_seconds` limits one call; None depends on the length of the reply.
    """

    provider: ClassVar[Protocol]

    def __init__(self, transport: SdkTransport, timeout_seconds: float | None) -> None:
        self._transport = transport
        self._limit = timeout_seconds

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        return await with_key(self._transport.key, partial(self._attempt, request))

    async def _attempt(self, request: ChatRequest, key: str) -> ChatReply:
        self._transport.use_key(key)
        try:
            async with receiver(request, self._limit, self.provider) as incoming:
                return await self._complete(request, incoming)
        except AnsweredError as error:
            return ChatReply("", error.stop, Usage(model_calls=1), stop_detail=str(error))
        except ProviderError as error:
            advise(error, self._transport.endpoint)
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.client.close()

    async def _complete(self, request: ChatRequest, receiver: Receiver) -> ChatReply:
        raise NotImplementedError


def credentials_error(endpoint: Endpoint, error: Exception) -> ProviderError:
    """The error for credentials that a platform's libraries don't find or can't refresh."""
    text = f"{endpoint.protocol}: the credentials for {endpoint.platform} can't be used: {error}"
    return ProviderError("auth", " ".join(text.split())[:300], provider=endpoint.protocol)


_MACHINE_HEADERS = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")


def _machine_headers(sdk: ModuleType) -> dict[str, Any]:
    """Omit the headers with which the SDK describes this machine. They also cost 5 % of a call's CPU time."""
    return {f"X-Stainless-{name}": sdk.Omit() for name in _MACHINE_HEADERS}


def _foreign_headers(sdk: ModuleType, endpoint: Endpoint) -> list[str]:
    """The names of headers that the SDK reads from the environment, unless they are meant for this endpoint."""
    name = sdk.__name__.upper()
    meant_for = os.environ.get(f"{name}_BASE_URL") or OFFICIAL[endpoint.protocol]
    if meant_for.rstrip("/") == endpoint.url:
        return []
    lines = os.environ.get(f"{name}_CUSTOM_HEADERS", "").split("\n")
    return [line.partition(":")[0].strip() for line in lines if ":" in line]


def sdk_errors(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """The base classes of the SDK's errors."""
    return (sdk.OpenAIError if sdk.__name__ == "openai" else sdk.AnthropicError,)


def translate(sdk: ModuleType, error: Any, provider: str) -> ProviderError:
    """Convert an error of the SDK or its transport to a `ProviderError`."""
    for cause in causes(error):
        if isinstance(cause, ProviderError):  # from reading a stream, which the SDK takes for a broken connection
            return cause
    if isinstance(error, sdk.APIStatusError):
        return status_error(provider, error.status_code, error.body, error.response.headers)
    if isinstance(error, (sdk.APIConnectionError, aiohttp.ClientError, OSError)):
        return transport_error(provider, error, slow=isinstance(error, sdk.APITimeoutError))
    if isinstance(error, sdk.APIError):
        return ProviderError("bad_reply", f"{provider}: {redactor.beginning(str(error), 200)}", provider=provider)
    # The remaining errors are about credentials and are raised before anything is sent.
    return ProviderError("auth", f"{provider}: {redactor.beginning(str(error), 200)}", provider=provider)
