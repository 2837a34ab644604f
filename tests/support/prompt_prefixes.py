"""What providers make of the beginning that a request shares with earlier ones: prompt caches, and bound thinking.

`Prefixes` wraps a script of the model server. It makes the check that Anthropic documents for models with preserved
thinking, and counts what the provider's prompt cache would have read. A token is four characters here.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

from tests.support.model_server import Call, Fault, Reply
from tests.support.wire_formats import FORMATS, Json

DROPPING = "thinking-binding-controls-2026-08-01"
"""The header with which thinking that fails the check is dropped."""
LOOKBACK = 20
"""How many blocks before a mark Anthropic searches for something that was written to the cache."""
IMAGE_CHARS = 6_000
BOUND = (
    "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting '
    f"requires the `{DROPPING}` value in the `anthropic-beta` header."
)


class Prefixes:
    """A script that checks and counts the requests to another one. Replies of the Messages API may have thinking.

    Thinking that fails the check is a 400, unless the request asks to drop it. `drops` is whether the server can do
    that: gateways that don't know the field refuse it.
    """

    def __init__(self, script: Callable[[Call], Reply | Fault], *, drops: bool = True) -> None:
        self._script, self._drops = script, drops
        self._numbers = count(1)
        self._made: dict[str, tuple[str, list[str]]] = {}
        """The prefix of each thinking block by its signature: what else it has, and the thinking in it."""
        self._written: set[str] = set()
        self._seen: list[list[str]] = []
        self.refused = self.thinking = 0
        """How many requests were refused, and how many thinking blocks were accepted."""
        self.tokens: list[int] = []
        self.cached: list[int] = []
        """The length of each request that was answered, and how much of it the cache had."""

    def __call__(self, call: Call) -> Reply | Fault:
        if call.api != "messages":
            return self._counted(call, self._script(call))
        if (problem := self._problem(call)) is not None:
            self.refused += 1
            return Fault(400, body=FORMATS["messages"].error(400, problem))
        answer = self._counted(call, self._script(call))
        if isinstance(answer, Fault):
            return answer
        wire = FORMATS["messages"].render(answer, call.model, next(self._numbers))
        for block in wire["content"]:
            if block["type"] == "thinking":
                self._made[block["signature"]] = _prefix(call.body, len(call.body["messages"]))
        return Fault(200, body=wire)

    def forget(self) -> None:
        """Take all thinking so far for that of other conversations."""
        self._made = {signature: ("", thinking) for signature, (_, thinking) in self._made.items()}

    def _problem(self, call: Call) -> str | None:
        """Why Anthropic would refuse the request. Removing the oldest thinking is no change."""
        asked_to_drop = bool(call.body.get("thinking", {}).get("block_binding"))
        if asked_to_drop and not (self._drops and call.headers.get("anthropic-beta") == DROPPING):
            return "thinking.block_binding: Extra inputs are not permitted"
        for i, j, block in _thinking(call.body["messages"]):
            now, then = _prefix(call.body, i), self._made[block["signature"]]
            if now[0] == then[0] and now[1] == then[1][len(then[1]) - len(now[1]) :]:
                self.thinking += 1
            elif not asked_to_drop:
                return BOUND.format(i, j)
        return None

    def _counted(self, call: Call, answer: Reply | Fault) -> Reply | Fault:
        if isinstance(answer, Fault):
            return answer
        parts = list(_parts(call))
        chars = [sum(map(_length, parts[:n])) for n in range(len(parts) + 1)]
        cached = chars[self._marked(call, parts) if call.api == "messages" else self._shared(parts)] // 4
        self.tokens.append(chars[-1] // 4)
        self.cached.append(cached)
        return replace(answer, input_tokens=self.tokens[-1], cached_tokens=cached)

    def _marked(self, call: Call, parts: list[str]) -> int:
        """How many parts Anthropic's cache has: it writes at the marks, and searches back from each."""
        choice = json.dumps(call.body.get("tool_choice"))  # changing it invalidates what is cached of the messages
        system = len(call.body.get("tools", ())) + 1
        clean = [part.replace(MARK, "") for part in parts]
        keys = [_digest(clean[:n], choice if n > system else "") for n in range(len(parts) + 1)]
        marks = [n + 1 for n, part in enumerate(parts) if MARK in part]
        found = [n for mark in marks for n in range(max(mark - LOOKBACK, 0), mark + 1) if keys[n] in self._written]
        self._written |= {keys[mark] for mark in marks}
        return max(found, default=0)

    def _shared(self, parts: list[str]) -> int:
        """How many parts any earlier request began with."""
        shared = [len(list(takewhile(lambda pair: pair[0] == pair[1], zip(parts, old)))) for old in self._seen]  # noqa: B905
        self._seen.append(parts)
        return max(shared, default=0)


MARK = ', "cache_control": {"type": "ephemeral"}'


def _parts(call: Call) -> Iterator[str]:
    """The request as the model reads it: tools, system prompt, messages."""
    body = call.body
    yield from map(json.dumps, body.get("tools", ()))
    if call.api == "messages":
        yield json.dumps(_blocks(body.get("system", "")))
        for message in body["messages"]:
            yield from (f"{message['role']} {json.dumps(block)}" for block in _blocks(message["content"]))
        return
    yield json.dumps(body.get("instructions") or body.get("systemInstruction"))
    yield from map(json.dumps, body.get("messages") or body.get("input") or body["contents"])


def _length(part: str) -> int:
    """The length in characters. Images count as what a model reads of them, whatever their file's size is."""
    return IMAGE_CHARS if '"base64"' in part or "base64," in part or '"inlineData"' in part else len(part)


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _thinking(messages: list[Json]) -> Iterator[tuple[int, int, Json]]:
    for i, message in enumerate(messages):
        for j, block in enumerate(_blocks(message["content"])):
            if block["type"] in ("thinking", "redacted_thinking"):
                yield i, j, block


def _prefix(body: Json, end: int) -> tuple[str, list[str]]:
    """A digest of everything before the message at `end` but thinking, and the signatures of the thinking."""
    messages: list[Json] = body["messages"][:end]
    rest = [
        [message["role"], [_unmarked(block) for block in _blocks(message["content"]) if block["type"] != "thinking"]]
        for message in messages
    ]
    given = [body.get("tools"), [_unmarked(block) for block in _blocks(body.get("system", ""))], rest]
    return _digest([json.dumps(given)]), [block["signature"] for _, _, block in _thinking(messages)]


def _unmarked(block: Json) -> Json:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _digest(parts: list[str], *more: str) -> str:
    return hashlib.sha256(json.dumps([*parts, *more]).encode()).hexdigest()
