"""Client for OpenAI's Chat Completions and Responses APIs and for compatible servers, using the official SDK."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import openai

from delegate.models.providers import _assemblies as assemblies
from delegate.models.providers._chat import CARRIED, chat_content, read_chat
from delegate.models.providers._endpoint import Endpoint
from delegate.models.providers._http import prepare_client
from delegate.models.providers._learning import as_known, effort_lesson, format_lesson
from delegate.models.providers._posting import PostingClient, http_library, translate
from delegate.models.providers._profile import Api, Profile, ProfileStore, TokenLimit
from delegate.models.providers._quota import openai_quota
from delegate.models.providers._responses import read_responses, responses_content
from delegate.models.providers._stream import Receiver
from delegate.types import JsonObject
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest, Quota


def connect(endpoint: Endpoint, *, timeout_seconds: float | None, profiles: ProfileStore) -> "OpenAI":
    """Create a client for the APIs of this endpoint."""
    return OpenAI(endpoint, profiles, timeout_seconds)


def prepare() -> None:
    """Do what the first client needs. Blocks."""
    prepare_client(http_library(openai))


def provider_error(error: Exception) -> ProviderError:
    """Convert an error of the SDK to a `ProviderError`."""
    return translate(openai, error, "openai")


class OpenAI(PostingClient):
    """A `ChatClient` for OpenAI's APIs. Learns from refusals what a model needs, for all later calls."""

    provider = "openai"
    sdk_errors = (openai.OpenAIError,)

    def __init__(self, endpoint: Endpoint, profiles: ProfileStore, timeout_seconds: float | None) -> None:
        super().__init__(openai, openai.AsyncOpenAI, endpoint, profiles, timeout_seconds)
        if not endpoint.is_openai_itself:  # those in the environment are meant for OpenAI itself
            self.sdk_client.organization = self.sdk_client.project = None
        self.lessons = (self._switch, self._newer_limit, self._other_format, _fields, effort_lesson, _reasoning)
        self.searches_web = endpoint.speaks_responses
        self._origin = f"chat {endpoint.url}"
        self._first_api: Api = "responses" if endpoint.speaks_responses else "chat"
        self._serves_openai = endpoint.serves_openai
        self._first_limit: TokenLimit = "max_completion_tokens" if self._serves_openai else "max_tokens"
        self._switched: dict[str, Api] = {}
        """The models that needed the other API, and which. They aren't switched back."""

    async def _ask(self, receiver: Receiver, key: str, request: ChatRequest, profile: Profile) -> ChatReply:
        fields = _cache_fields(request) if self._serves_openai and profile.caching is not False else {}
        if streams := profile.streams is not False:
            fields["stream"] = True
        known = as_known(profile, request)
        ask = partial(self._post, receiver, key, request)
        if request.web_searches or (profile.api or self._first_api) == "responses":
            encrypted = profile.encrypted_reasoning is not False
            content = responses_content(known, fields, encrypted_reasoning=encrypted)
            return await ask("/responses", content, assemblies.Responses(), read_responses)
        if streams:
            fields["stream_options"] = {"include_usage": True}
        if request.reply_schema is not None and profile.replies == "json_object":
            fields["response_format"] = {"type": "json_object"}
        origin = None if profile.carries_reasoning is False else self._origin
        content = chat_content(known, fields, limit=profile.limit or self._first_limit, origin=origin)
        return await ask("/chat/completions", content, assemblies.Chat(), partial(read_chat, origin=self._origin))

    def _converted(self, error: Exception) -> ProviderError:
        return provider_error(error)

    def _quota(self, headers: Mapping[str, str]) -> Quota | None:
        return openai_quota(headers)

    def _switch(self, profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
        """To use OpenAI's other API."""
        api = profile.api or self._first_api
        needs_other = _NEEDS_RESPONSES if api == "chat" else _NEEDS_CHAT
        # What searches the web is asked of Responses in any case: Chat Completions has no such tool.
        if self.endpoint.api != "auto" or request.web_searches or not needs_other.search(text):
            return None
        other: Api = "responses" if api == "chat" else "chat"
        return {"api": other} if self._switched.setdefault(request.model, other) == other else None

    def _newer_limit(self, profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
        """To name the token limit as newer models want it."""
        is_newer = (profile.limit or self._first_limit) == "max_completion_tokens"
        return {"limit": "max_completion_tokens"} if "max_completion_tokens" in text and not is_newer else None

    def _other_format(self, profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
        """To ask a Chat server that takes no schema for JSON. DeepSeek and many local servers don't take one."""
        is_chat = (profile.api or self._first_api) == "chat"
        if is_chat and profile.replies in (None, "json_schema") and format_lesson(profile, request, text):
            return {"replies": "json_object"}
        return None


_NEEDS_RESPONSES = re.compile(r"v1/responses|not a chat model|chatcompletion operation does not work", re.IGNORECASE)
_NEEDS_CHAT = re.compile(r"responses operation does not work|resource not found", re.IGNORECASE)
_REFUSES_REASONING = re.compile(rf"\b(?:{'|'.join(CARRIED)})\b")
_DEMANDS_REASONING = re.compile(r"must be passed back|missing", re.IGNORECASE)


def _fields(profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
    """To leave out a field that the server or the model doesn't take."""
    if profile.encrypted_reasoning is not False and "ncrypted content is not supported" in text:
        return {"encrypted_reasoning": False}
    return {"caching": False} if profile.caching is not False and "prompt_cache" in text else None


def _reasoning(profile: Profile, request: ChatRequest, text: str) -> dict[str, Any] | None:
    """To send no reasoning back."""
    if profile.carries_reasoning is False or _DEMANDS_REASONING.search(text) or not _REFUSES_REASONING.search(text):
        return None
    return {"carries_reasoning": False}


_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\d.])")
FIRST_PAID_CACHE = (5, 6)
"""The first version of OpenAI's models that charges for writing to the prompt cache, and lets a request refuse that."""
LONGEST_KEY = 64


def _cache_fields(request: ChatRequest) -> JsonObject:
    """Fields that let the requests of a conversation meet the same cache, and single ones write to none."""
    if request.conversation is not None:
        return {"prompt_cache_key": request.conversation[:LONGEST_KEY]}
    version = _VERSION.match(request.model)
    if version and (int(version[1]), int(version[2] or 0)) >= FIRST_PAID_CACHE:
        return {"prompt_cache_options": {"mode": "explicit"}}  # of which there is none
    return {}
