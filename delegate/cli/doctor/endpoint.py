"""Measures one model of an endpoint for `delegate doctor --endpoint`, with a few small calls, and keeps the profile."""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from delegate.cli.doctor.diagnostics import DiagnosticCheck, Diagnostics
from delegate.cli.doctor.probe import paths
from delegate.cli.doctor.served_context import served_context
from delegate.cli.input.choice import choose
from delegate.delegator import Delegator
from delegate.models.catalog import Model
from delegate.models.connections import find_endpoints
from delegate.models.providers import CurrentKey, Endpoint
from delegate.types import JsonObject
from delegate.types.errors import CallError, ProviderError
from delegate.types.ports import ChatClient, ChatReply, ChatRequest, Message, ToolReply, ToolSpec

if TYPE_CHECKING:
    from delegate.models.providers._profile import EndpointProfiles, Profile

MAX_CALLS = 6
"""How many calls are answered at most: a text, JSON (twice where a schema is ignored), a tool call and what follows its
result, an effort."""
MAX_REFUSALS = 10
"""How many calls a server can refuse before it accepts another form of them. They cost nothing."""
OUTPUT_TOKENS = 1_024
_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"greater": {"type": "integer"}},
    "required": ["greater"],
    "additionalProperties": False,
}
_TOOL = ToolSpec(
    "look_up",
    "Look up a word in the dictionary.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
_FORMATS = {"json_schema": "by a schema", "json_object": "in words and by its JSON mode", "prompt": "in words"}


@dataclass(frozen=True, slots=True)
class Target:
    """The model that is measured, and its endpoint."""

    name: str
    endpoint: Endpoint
    model: Model

    @property
    def announcement(self) -> str:
        """What measuring it takes."""
        calls = f"at most {MAX_CALLS} calls of up to {self.output_tokens:,} output tokens each"
        refused = f"up to {MAX_REFUSALS} that the server refuses"
        return f"asking {self.model.id} at {self.endpoint.shown_url}: {calls}, and {refused}"

    @property
    def output_tokens(self) -> int:
        """The limit of each call."""
        return min(OUTPUT_TOKENS, self.model.max_output_tokens)


def find_target(delegator: Delegator, name: str, model: str | None) -> Target:
    """The endpoint with this name, or that of a provider, and its model. Raises CallError with the known names."""
    endpoints = find_endpoints(delegator.settings.endpoints, os.environ)
    keys = {key[1] or key[0]: key for key in endpoints}
    declarations = {endpoint.name: endpoint for endpoint in delegator.settings.endpoints}
    if name not in keys:
        names = ", ".join(keys) or "none"
        fix = f"set {declarations[name].key_env}" if name in declarations else f"known endpoints: {names}"
        what = f"the endpoint {name!r} has no key" if name in declarations else f"there is no endpoint {name!r}"
        raise CallError("unknown_endpoint", what, field="endpoint", hint=fix)
    choice = choose(delegator)
    used = (choice.worker, choice.judging.chosen)  # these come first
    served = [one for one in delegator.catalog.models if (one.provider, one.endpoint) == keys[name]]
    served.sort(key=lambda one: used.index(one) if one in used else len(used))
    match = next((one for one in served if model is None or delegator.catalog.find(model) == one), None)
    if match is None:
        names = ", ".join(one.id for one in served[:10]) or "none"
        what = f"the endpoint {name!r} has no model" + (f" {model!r}" if model else "")
        raise CallError("unknown_model", what, field="model", hint=f"models declared there: {names}")
    return Target(name, endpoints[keys[name]], match)


async def measure(delegator: Delegator, target: Target) -> tuple[Diagnostics, JsonObject]:
    """Measure the model, keep its profile, and return it. Raises nothing: errors are in the checks."""
    profiles = delegator.connections.profiles().at(target.endpoint)
    profiles.forget(target.model.id)
    probe = _EndpointProbe(target, await delegator.connections.client(target.model), profiles)
    checks = [await probe.text()]
    if checks[0].status != "problem":
        checks += [await step() for step in (probe.json, probe.tools, probe.effort, probe.context)]
        checks += [probe.streams(), probe.ends()]
        await profiles.confirm(target.model.id)
    can_call = all(check.status != "problem" for check in checks)
    return Diagnostics(tuple(checks), can_call), profiles.of(target.model.id).learned()


@dataclass(frozen=True, slots=True)
class _EndpointProbe:
    """The steps of measuring one model. Each returns what it found."""

    _target: Target
    _client: ChatClient
    _profiles: "EndpointProfiles"

    @property
    def _profile(self) -> "Profile":
        return self._profiles.of(self._target.model.id)

    async def text(self) -> DiagnosticCheck:
        """Whether the model answers at all."""
        try:
            reply = await self._ask("Reply with the one word: ready")
        except ProviderError as error:
            return DiagnosticCheck("text", "problem", f"no reply: {error}", "correct this, then measure again")
        if reply.text.strip():
            text = f"{self._target.model.id} answers, as {reply.model_served or 'itself'}"
            return DiagnosticCheck("text", "ok", text)
        return DiagnosticCheck("text", "note", f"an empty reply, which ended as {reply.stop} ({reply.stop_detail})")

    async def json(self) -> DiagnosticCheck:
        """How it is asked for JSON, which judges need."""
        reply, question = "", "Which number is greater, 3 or 7? Reply with JSON only."
        for _ in range(2):  # the second time in words, if the schema was ignored
            try:
                reply = (await self._ask(question, reply_schema=_SCHEMA)).text.strip()
            except ProviderError as error:
                return DiagnosticCheck("JSON", "problem", f"no reply: {error}", _NO_JUDGE)
            if _greater(reply) is not None:
                how = _FORMATS[self._profile.replies or "json_schema"]
                return DiagnosticCheck("JSON", "ok", f"asked for {how}; its models can judge")
            if self._profile.replies != "prompt":
                break
        return DiagnosticCheck("JSON", "problem", f"replies with something else: {reply[:80]!r}", _NO_JUDGE)

    async def tools(self) -> DiagnosticCheck:
        """Whether it calls a tool and reads the result."""
        text = "Look up the word 'delegate' with the tool, then say in which century it is attested."
        question = Message("user", text)
        no_tools = f"set tools = false for {self._target.model.id}, or choose a model that calls tools"
        try:
            reply = await self._ask(question, tools=(_TOOL,))
            if not reply.tool_calls:
                return DiagnosticCheck("tools", "problem", f"no tool was called (ended as {reply.stop})", no_tools)
            found = "attested since the 15th century"
            results = tuple(ToolReply(call.id, call.name, found) for call in reply.tool_calls)
            message = Message("assistant", reply.text, reply.tool_calls, native=reply.native)
            answer = await self._ask(question, message, Message("tool", tool_replies=results), tools=(_TOOL,))
        except ProviderError as error:
            return DiagnosticCheck("tools", "problem", f"no reply: {error}", no_tools)
        read = "reads their results" if "15" in answer.text else "its answer doesn't show their results"
        return DiagnosticCheck("tools", "ok" if "15" in answer.text else "note", f"calls tools, and {read}")

    async def effort(self) -> DiagnosticCheck:
        """Which efforts it takes. The lowest is asked for, since a server that refuses it lists the others."""
        try:
            await self._ask("Reply with the one word: ready", effort="none")
        except ProviderError as error:
            return DiagnosticCheck("effort", "note", f"no reply: {error}")
        efforts, declared = self._profile.efforts, self._target.model.effort
        if efforts == ():
            status, text = ("note" if declared else "ok"), "it takes no reasoning effort; requests have none"
            return DiagnosticCheck("effort", status, text)
        text = f"it takes the efforts {', '.join(efforts)}" if efforts else "it takes a reasoning effort, or ignores it"
        fix = "" if declared else f"set effort = true for {self._target.model.id} to use it"
        return DiagnosticCheck("effort", "ok" if declared else "note", text, fix)

    async def context(self) -> DiagnosticCheck:
        """Whether the server takes as long requests as the catalog says."""
        model, declared = self._target.model, f"{self._target.model.context_tokens:,} tokens"
        if self._target.endpoint.platform is not None:
            return DiagnosticCheck("context", "ok", f"{declared}, as the catalog says")
        listing, _, headers = paths(self._target.endpoint, await CurrentKey(self._target.endpoint).get())
        served = await served_context(self._target.endpoint, listing, headers, model.id)
        if served is None:
            return DiagnosticCheck("context", "note", f"the server doesn't say how much it takes; declared: {declared}")
        text = f"the server takes {served.tokens:,} tokens ({served.source}); declared: {declared}"
        if served.tokens >= model.context_tokens:
            return DiagnosticCheck("context", "ok", text)
        declare = f"declare context_tokens = {served.tokens} for {model.id}"
        fix = f"{served.how_to_raise}, or {declare}" if served.how_to_raise else declare
        return DiagnosticCheck("context", "problem", f"{text}: longer requests are refused, or cut without a word", fix)

    def streams(self) -> DiagnosticCheck:
        """Whether it sends replies as events."""
        if self._target.endpoint.platform is not None and self._profile.streams is None:
            return DiagnosticCheck("streaming", "note", f"isn't used on {self._target.endpoint.platform}")
        streams = self._profile.streams
        return DiagnosticCheck("streaming", "ok" if streams else "note", "yes" if streams else "no: replies come whole")

    def ends(self) -> DiagnosticCheck:
        """Whether its replies say why they ended."""
        if self._profile.finish_reason:
            return DiagnosticCheck("ends", "ok", "replies say why they ended")
        text = "replies don't say why they ended; one that fills its limit counts as cut off"
        return DiagnosticCheck("ends", "note", text)

    async def _ask(self, *messages: str | Message, **fields: Any) -> ChatReply:
        model = self._target.model
        conversation = [Message("user", message) if isinstance(message, str) else message for message in messages]
        request = ChatRequest(model.id, "", conversation, self._target.output_tokens, **fields)
        return await self._client.complete(request)


_NO_JUDGE = "set structured_output = false for it, so that it isn't asked to judge"


def _greater(text: str) -> object:
    """What a reply to the question says; None if it isn't JSON as it was asked for."""
    try:
        document = json.loads(text.removeprefix("```json").removeprefix("```").removesuffix("```"))
    except ValueError:
        return None
    return cast("JsonObject", document).get("greater") if isinstance(document, dict) else None
