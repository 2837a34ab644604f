"""Calls models through Hermes, with Hermes's own provider and credentials."""

import json
import os
from collections.abc import Mapping
from typing import Any, cast

from delegate.hosts.hermes.compat import config, hermes_attribute, home
from delegate.hosts.hermes.threads import WorkThread
from delegate.models.catalog import Model
from delegate.types import JsonObject, Tier
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest

PROVIDER = "hermes"
"""The endpoint of models that Hermes calls, and the provider of those that the catalog doesn't know."""
JUDGE = "judge"
"""The name of the auxiliary task. `hermes model` lists it; config.yaml stores it as `auxiliary.judge`."""
JUDGE_SECONDS = 120
"""How long a judge may take, unless config.yaml sets `auxiliary.judge.timeout`."""
CHILD_SECONDS = 180.0
"""How long one model call of a child may take."""
_REFUSED = (400, 404, 422)
_FORMAT_NAMES = ("response_format", "json_schema")
_MORE_KEYS = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN")
"""Variables of providers that Hermes's registry of providers doesn't list."""
_NO_PROVIDER_OF_ITS_OWN = ("", "auto", "openrouter")


class HermesClient:
    """A chat client that calls models through Hermes: for children the parent's, for judges `auxiliary.judge`.

    If that one isn't selected, judges run on the parent's model, too. If a model fails, Hermes falls back to another
    one; the reply and the verdict name the model that answered. A cancelled call continues in its thread until its
    timeout, and its answer is ignored.
    """

    def __init__(self) -> None:
        self._refuses_formats = False

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make one model call."""
        from delegate.models.providers import openai  # imports the SDK, so only on first use

        body: JsonObject = json.loads(openai.chat_content(request, {}, limit="max_tokens", origin=None))
        try:
            answer = await WorkThread(lambda: self._ask(body), "delegate-hermes-model").result
            return openai.read_chat(answer, PROVIDER)
        except ProviderError:
            raise
        except Exception as error:
            raise openai.provider_error(error) from error

    async def aclose(self) -> None:
        """Do nothing: the client holds no connections."""

    def _ask(self, body: JsonObject) -> JsonObject:
        """Ask a child's question, or a judge's: only those have a reply format.

        Hermes passes the format on, whatever API its provider has, and some refuse it: Anthropic's doesn't know the
        field. The schema is then part of the prompt. The reply is validated in any case.
        """
        if "response_format" not in body:
            return self._call(None, body)
        try:
            if not self._refuses_formats:
                return self._call(JUDGE, body, {"response_format": body["response_format"]})
        except Exception as error:
            text = str(error)
            if getattr(error, "status_code", None) not in _REFUSED or not any(name in text for name in _FORMAT_NAMES):
                raise
        self._refuses_formats = True
        schema = json.dumps(body["response_format"]["json_schema"]["schema"], ensure_ascii=False)
        wanted = {"role": "user", "content": f"Your answer must be one JSON object that matches this schema: {schema}"}
        return self._call(JUDGE, {**body, "messages": [*body["messages"], wanted]})

    def _call(self, task: str | None, body: JsonObject, extra: JsonObject | None = None) -> JsonObject:
        call = hermes_attribute("agent.auxiliary_client", "call_llm")
        if call is None:
            message = "this version of Hermes has no agent.auxiliary_client.call_llm, so plugins can't call its models"
            raise ProviderError("connection", message, provider=PROVIDER, outcome="not_sent")
        response = call(
            task,
            messages=body["messages"],
            max_tokens=body["max_tokens"],
            tools=body.get("tools"),  # with `tool_choice: none`, too: Hermes has no parameter for it
            timeout=None if task else CHILD_SECONDS,
            extra_body=extra,
        )
        return _as_wire_format(response)


def _as_wire_format(response: Any) -> JsonObject:
    """A response of any of Hermes's clients, converted to a chat completion's JSON; some have no pydantic models."""
    choice, usage = response.choices[0], getattr(response, "usage", None)
    tokens = {name: getattr(usage, name, None) or 0 for name in ("prompt_tokens", "completion_tokens")}
    calls = [
        {"id": call.id, "function": {"name": call.function.name, "arguments": call.function.arguments}}
        for call in getattr(choice.message, "tool_calls", None) or ()
    ]
    message = {
        "content": choice.message.content,
        "refusal": getattr(choice.message, "refusal", None),
        "tool_calls": calls,
    }
    return {
        "model": getattr(response, "model", None),
        "choices": [{"message": message, "finish_reason": getattr(choice, "finish_reason", None)}],
        "usage": tokens,
    }


# -------------------------------------------------------------------------------------------------- Hermes's settings


def register_judge(ctx: Any) -> None:
    """Add the judge to the auxiliary models that users can select in Hermes."""
    if hasattr(ctx, "register_auxiliary_task"):
        ctx.register_auxiliary_task(
            key=JUDGE,
            display_name="Judge",
            description="judges delegated work against its acceptance criteria",
            defaults={"timeout": JUDGE_SECONDS},
        )


def selected_judge() -> str | None:
    """The model that the user selected as the judge (`auxiliary.judge.model`); None if there is none."""
    model = str(config("auxiliary", JUDGE).get("model") or "").strip()
    return None if model.lower() in ("", "auto") else model


def main_model() -> str:
    """The model that config.yaml names for Hermes's own agent; empty if it names none."""
    section = config("model")
    return str(section.get("default") if section else config().get("model") or "").strip()


def has_provider() -> bool:
    """Whether Hermes has a provider that it can call: one in config.yaml, a login, or a key in the environment.

    It looks where Hermes looks, without asking a provider, so the credentials may turn out to be invalid.
    """
    model = config("model")
    registry = cast("Mapping[str, Any]", hermes_attribute("hermes_cli.auth", "PROVIDER_REGISTRY") or {})
    keys = [name for one in registry.values() for name in one.api_key_env_vars]
    if model.get("base_url") or model.get("api_key") or any(os.environ.get(name) for name in (*_MORE_KEYS, *keys)):
        return True
    name = str(model.get("provider") or "").strip().lower()
    if name not in registry:
        return name not in _NO_PROVIDER_OF_ITS_OWN or _has_login()  # a name that the user gave to a server
    if registry[name].auth_type != "api_key":
        return True  # a login, or a cloud's credentials: only a request could check them
    status = hermes_attribute("hermes_cli.auth", "get_auth_status")
    return bool(status and status(name).get("logged_in"))


def _has_login() -> bool:
    """Whether Hermes's file of logins and pooled keys has any."""
    try:
        logins: JsonObject = json.loads((home() / "auth.json").read_text(encoding="utf-8"))
        return any(logins.get(part) for part in ("providers", "credential_pool"))
    except (OSError, ValueError, AttributeError):
        return False


def hermes_model(name: str, known: Model | None, tier: Tier) -> Model:
    """The catalog entry of a model that Hermes calls: like `known`, the catalog's own entry, or with this tier."""
    if known is not None:
        return known.model_copy(update={"endpoint": PROVIDER})
    return Model(
        id=name,
        provider=PROVIDER,
        endpoint=PROVIDER,
        family=name.rpartition("/")[2].partition("-")[0] or "unknown",
        tier=tier,
        context_tokens=128_000,
        max_output_tokens=8_192,
        structured_output=True,
        tools=True,
    )
