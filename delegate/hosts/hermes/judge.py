"""Judging on the model that a user picked in Hermes, with Hermes's own credentials for it."""

import asyncio
from dataclasses import dataclass
from typing import Any

from delegate.errors import ProviderError
from delegate.hosts.hermes.borrowed import borrow, config
from delegate.models.catalog import Catalog, Model
from delegate.ports import ChatReply, ChatRequest
from delegate.settings import load_settings
from delegate.types import JsonObject

TASK = "judge"
"""The auxiliary task: `hermes model` offers it, config.yaml keeps it under `auxiliary.judge`."""
_CONTEXT_TOKENS, _OUTPUT_TOKENS = 128_000, 8_192
_FREE_MODES = (None, "", "auto")


@dataclass(frozen=True, slots=True)
class Picked:
    """The model that was picked."""

    model: str

    @property
    def entry(self) -> Model | None:
        """A catalog entry for it, where the catalog has none. A person picked it, so its tier bars it from nothing."""
        if Catalog.shipped().find(self.model):
            return None
        return Model(
            id=self.model,
            provider="openai",
            family=self.model.rpartition("/")[2].partition("-")[0] or "unknown",
            tier="fast",
            context_tokens=_CONTEXT_TOKENS,
            max_output_tokens=_OUTPUT_TOKENS,
            structured_output=True,
            tools=True,
        )

    def pinned(self, settings: JsonObject) -> JsonObject:
        """The settings, with this as the only model that may judge."""
        models = load_settings(**settings).models
        return {**settings, "judge_model": self.model, "models": (*models, self.entry) if self.entry else models}


def picked() -> Picked | None:
    """What `auxiliary.judge.model` names; None where nobody picked one."""
    model = str(config("auxiliary", TASK).get("model") or "").strip()
    return None if model.lower() in _FREE_MODES else Picked(model)


def offer_to_pick(ctx: Any) -> None:
    """Let users pick the judge's model where they pick Hermes's other side models."""
    if hasattr(ctx, "register_auxiliary_task"):
        ctx.register_auxiliary_task(
            key=TASK, display_name="Judge", description="judges delegated work against its acceptance criteria"
        )


class AuxiliaryJudge:
    """A chat client over Hermes's own access to the picked model.

    Hermes falls back on another model where that one fails; the reply says which one answered, and the verdict too. A
    call that is cancelled is left to end by itself, which it does after Hermes's timeout for it.
    """

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        from delegate.models.providers import openai  # an SDK is loaded when it is first used

        body = openai.chat_body(request, "max_tokens")
        try:
            return openai.read_chat(await asyncio.to_thread(_ask, body))
        except ProviderError:
            raise
        except Exception as error:
            raise openai.provider_error(error) from error

    async def aclose(self) -> None:
        """Nothing is held."""


def _ask(body: JsonObject) -> JsonObject:
    call = borrow("agent.auxiliary_client", "call_llm")
    if call is None:
        raise ProviderError("connection", "this Hermes has no call_llm for side models", provider="hermes")
    extra = {"response_format": body["response_format"]} if "response_format" in body else None
    return _wire(call(TASK, messages=body["messages"], max_tokens=body["max_tokens"], extra_body=extra))


def _wire(response: Any) -> JsonObject:
    """A reply of any of Hermes's clients as chat completions write it; those of its adapters are plain objects."""
    choice, usage = response.choices[0], getattr(response, "usage", None)
    counted = {name: getattr(usage, name, None) or 0 for name in ("prompt_tokens", "completion_tokens")}
    message = {"content": choice.message.content, "refusal": getattr(choice.message, "refusal", None)}
    return {
        "model": getattr(response, "model", None),
        "choices": [{"message": message, "finish_reason": getattr(choice, "finish_reason", None)}],
        "usage": counted,
    }
