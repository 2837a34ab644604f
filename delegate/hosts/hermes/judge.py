"""Lets a user select the judge's model in Hermes, and calls it with Hermes's credentials."""

import asyncio
from dataclasses import dataclass
from typing import Any

from delegate.errors import ProviderError
from delegate.hosts.hermes.compat import config, hermes_attribute
from delegate.models.catalog import Catalog, Model
from delegate.ports import ChatReply, ChatRequest
from delegate.settings import load_settings
from delegate.types import JsonObject

TASK = "judge"
"""The name of the auxiliary task. `hermes model` lists it; config.yaml stores it as `auxiliary.judge`."""
_CONTEXT_TOKENS, _OUTPUT_TOKENS = 128_000, 8_192
_UNSELECTED = ("", "auto")


@dataclass(frozen=True, slots=True)
class SelectedModel:
    """The model that the user selected as the judge."""

    model: str

    @property
    def entry(self) -> Model | None:
        """A catalog entry for a model that isn't in the catalog. Its tier is the lowest, so no ceiling excludes it."""
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

    def pin(self, settings: JsonObject) -> JsonObject:
        """The settings with this model as the only judge."""
        models = load_settings(**settings).models
        return {**settings, "judge_model": self.model, "models": (*models, self.entry) if self.entry else models}


def selected_model() -> SelectedModel | None:
    """The model that `auxiliary.judge.model` names; None if none was selected."""
    model = str(config("auxiliary", TASK).get("model") or "").strip()
    return None if model.lower() in _UNSELECTED else SelectedModel(model)


def register_auxiliary_task(ctx: Any) -> None:
    """Add the judge to the auxiliary models that users can select in Hermes."""
    if hasattr(ctx, "register_auxiliary_task"):
        ctx.register_auxiliary_task(
            key=TASK, display_name="Judge", description="judges delegated work against its acceptance criteria"
        )


class AuxiliaryJudge:
    """A chat client that calls the selected model through Hermes.

    If the model fails, Hermes falls back to another one; the reply and the verdict name the model that answered. A
    canceled call continues in its thread until Hermes's own timeout.
    """

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        from delegate.models.providers import openai  # imports the SDK, so only on first use

        body = openai.chat_body(request, limit="max_tokens", origin=None)
        try:
            return openai.read_chat(await asyncio.to_thread(_call_hermes, body), "hermes")
        except ProviderError:
            raise
        except Exception as error:
            raise openai.provider_error(error) from error

    async def aclose(self) -> None:
        """Do nothing: the client holds no connections."""


def _call_hermes(body: JsonObject) -> JsonObject:
    call = hermes_attribute("agent.auxiliary_client", "call_llm")
    if call is None:
        raise ProviderError(
            "connection",
            "this version of Hermes has no agent.auxiliary_client.call_llm, so it can't call the judge",
            provider="hermes",
        )
    extra = {"response_format": body["response_format"]} if "response_format" in body else None
    return _as_wire_format(call(TASK, messages=body["messages"], max_tokens=body["max_tokens"], extra_body=extra))


def _as_wire_format(response: Any) -> JsonObject:
    """A response of any of Hermes's clients, converted to a chat completion's JSON; some have no pydantic models."""
    choice, usage = response.choices[0], getattr(response, "usage", None)
    tokens = {name: getattr(usage, name, None) or 0 for name in ("prompt_tokens", "completion_tokens")}
    message = {"content": choice.message.content, "refusal": getattr(choice.message, "refusal", None)}
    return {
        "model": getattr(response, "model", None),
        "choices": [{"message": message, "finish_reason": getattr(choice, "finish_reason", None)}],
        "usage": tokens,
    }
