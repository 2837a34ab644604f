"""What the clients of all providers do around a call: keys, time limits, lessons, streams and errors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import aiohttp

from delegate.models.providers._endpoint import Endpoint, Protocol
from delegate.models.providers._faults import AnsweredError, advise, body_error, without_key
from delegate.models.providers._http import sent
from delegate.models.providers._keys import CurrentKey, T, with_key
from delegate.models.providers._learning import Lesson, ask_as_known, within
from delegate.models.providers._profile import Profile, ProfileStore
from delegate.models.providers._shared import BuiltInClient, ReadReply, dig, read_reply
from delegate.models.providers._stops import cut_off_unsaid
from delegate.models.providers._stream import Receiver, Stream, body_of, receiver
from delegate.types import EFFORTS, JsonObject, Usage
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Quota


class SdkClient(BuiltInClient):
    """A `ChatClient` that sends through a provider's SDK. Subclasses implement `_ask`.

    `timeout_seconds` limits one call; None depends on the length of the reply.
    """

    provider: ClassVar[Protocol]
    efforts: ClassVar[Sequence[str]] = EFFORTS
    """The reasoning efforts of the API."""
    sdk_errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, endpoint: Endpoint, profiles: ProfileStore, timeout_seconds: float | None) -> None:
        self.endpoint = endpoint
        self.key = CurrentKey(endpoint)
        self.lessons: tuple[Lesson, ...] = ()
        self._profiles = profiles.at(endpoint)
        self._limit = timeout_seconds

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        return await with_key(self.key, partial(self._attempt, within(self.efforts, request)))

    async def _attempt(self, request: ChatRequest, key: str) -> ChatReply:
        try:
            async with receiver(request, self._limit, self.provider) as incoming:
                return await ask_as_known(self._profiles, request, partial(self._ask, incoming, key), self.lessons)
        except AnsweredError as error:
            return ChatReply("", error.stop, Usage(model_calls=1), stop_detail=str(error))
        except ProviderError as error:
            advise(error, self.endpoint)
            raise

    async def _ask(self, receiver: Receiver, key: str, request: ChatRequest, profile: Profile) -> ChatReply:
        """Send the request as the model's profile says."""
        raise NotImplementedError

    def _converted(self, error: Exception) -> ProviderError:
        """The error for one of the SDK or its transport."""
        raise NotImplementedError

    def _quota(self, headers: Mapping[str, str]) -> Quota | None:
        """What the provider's rate-limit headers say."""
        return None

    async def _sent(self, send: Callable[[], Awaitable[T]]) -> T:
        """Await `send()`. Raises its errors as `ProviderError`."""
        try:
            return await sent(send)
        except (*self.sdk_errors, aiohttp.ClientError, OSError) as error:
            raise without_key(self._converted(error), self.key.text) from None
        except Exception as error:
            if self.endpoint.platform is None:
                raise
            # The libraries with which the SDK finds a platform's credentials have errors of their own.
            text = f"{self.provider}: the credentials for {self.endpoint.platform} can't be used: {error}"
            raise ProviderError("auth", " ".join(text.split())[:300], provider=self.provider) from None

    def _reply(
        self, request: ChatRequest, stream: Stream, read: ReadReply, content: bytes, headers: Mapping[str, str]
    ) -> ChatReply:
        """The reply in a successful response, whose events `stream` has received if it was streamed."""
        body = body_of(content, headers.get("content-type", ""), stream, self.provider)
        if failed := _failure(body):
            had_begun = stream.has_begun or "choices" in body  # a gateway had begun to pass on a model's answer
            raise without_key(body_error(self.provider, failed, headers, had_begun=had_begun), self.key.text)
        if stream.has_begun:
            self._profiles.saw_stream(request.model)
        return cut_off_unsaid(read_reply(read, body, self._quota(headers), provider=self.provider), request)


def _failure(body: JsonObject) -> object:
    """The error in the body of a response with status 200, if it has one: gateways report those of others there."""
    if body.get("object") == "error":
        return body
    choices: Any = body.get("choices")
    if isinstance(choices, list) and choices:
        return dig(cast("list[object]", choices)[0], "error")
    return body.get("error")
