"""Finds out how long a context a model server really serves, which may be less than its model could read.

Servers of OpenAI's API tell it in different places. Nothing is generated, and a key is sent only to its own endpoint.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import aiohttp

from delegate.models.providers import Endpoint

SECONDS = 5.0
MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ServedContext:
    """How many tokens a server takes, where it says so, and how to raise that."""

    tokens: int
    source: str
    how_to_raise: str


_IN_LISTS = {
    "max_model_len": "start the server with a higher --max-model-len",  # vLLM, SGLang
    "context_window": "",  # Groq
    "context_length": "",  # OpenRouter, Together
    "max_context_length": "",  # Mistral
}
"""The names of the context length in lists of models, and how to raise it."""
_OLLAMA = "set OLLAMA_CONTEXT_LENGTH for the server, or num_ctx in the model's Modelfile"
_LLAMA_CPP = "start llama-server with a higher --ctx-size, which all --parallel slots share"
_LM_STUDIO = "load the model in LM Studio with a higher context length"
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


async def served_context(
    endpoint: Endpoint, listing: str, headers: Mapping[str, str], model: str
) -> ServedContext | None:
    """What the server says about the context of this model; None if it says nothing.

    `listing` is the path of the list of models. Ollama and LM Studio only know it of a model that is loaded.
    """
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True, headers=headers) as session:
        entry = _named(await _json(session, endpoint.url + listing), model)
        for name, how in _IN_LISTS.items():
            if tokens := _tokens(entry, name):
                return ServedContext(tokens, f"{name} in {listing}", how)
        if endpoint.base_url is None:
            return None
        root = endpoint.url.removesuffix("/v1")
        if tokens := _tokens(_named(await _json(session, f"{root}/api/ps"), model), "context_length"):
            return ServedContext(tokens, "context_length in /api/ps", _OLLAMA)
        if tokens := _tokens(await _json(session, f"{root}/props"), "default_generation_settings", "n_ctx"):
            return ServedContext(tokens, "n_ctx in /props", _LLAMA_CPP)
        if tokens := _tokens(_named(await _json(session, f"{root}/api/v0/models"), model), "loaded_context_length"):
            return ServedContext(tokens, "loaded_context_length in /api/v0/models", _LM_STUDIO)
        details = await _json(session, f"{root}/api/show", {"model": model})
        parameters = cast("dict[str, object]", details).get("parameters") if isinstance(details, dict) else None
        match = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
        return ServedContext(int(match[1]), "num_ctx in /api/show", _OLLAMA) if match else None


async def _json(session: aiohttp.ClientSession, url: str, body: object = None) -> object:
    """The JSON at an address; None if there is none."""
    method = "GET" if body is None else "POST"
    try:
        # A redirect would send the key to another server.
        async with session.request(method, url, json=body, allow_redirects=False) as response:
            data = await response.content.read(MAX_BYTES) if response.status == 200 else b""
            return json.loads(data) if data else None
    except (TimeoutError, ValueError, RecursionError, aiohttp.ClientError, OSError):
        return None


def _named(document: object, model: str) -> object:
    """The entry of a model in a list of models."""
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    items = fields.get("data") or fields.get("models")
    for item in cast("Iterable[object]", items) if isinstance(items, list) else ():
        entry = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        if {model, f"{model}:latest"} & {str(entry.get(name)) for name in ("id", "name", "model")}:
            return entry
    return None


def _tokens(document: object, *names: str) -> int | None:
    """The positive number at a path in a document."""
    for name in names:
        document = cast("dict[str, object]", document).get(name) if isinstance(document, dict) else None
    return document if isinstance(document, int) and document > 1 else None  # True is an int, too
