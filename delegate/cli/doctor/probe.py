"""Queries the models of servers with `GET …/models`, which is free. A key is sent only to its own endpoint."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import aiohttp

from delegate.models.providers import CurrentKey, Endpoint, names_model
from delegate.types.errors import ProviderError

_TIMEOUT, _LOCAL_TIMEOUT = aiohttp.ClientTimeout(total=5), aiohttp.ClientTimeout(total=1)
NO_LIST = (404, 405, 501)
"""HTTP statuses of servers that don't list their models."""
LOCAL_SERVERS = {"ollama": 11434, "lm-studio": 1234, "vllm": 8000, "llama-cpp": 8080}
"""Names of common local servers and their default ports."""


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models of a server. `fault` is None if the query succeeded."""

    url: str
    models: tuple[str, ...] = ()
    fault: str | None = None
    status: int | None = None
    fix: str = ""
    """What to correct."""
    key_env: str | None = None
    """The variable with its key, if it needs one."""
    contexts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many tokens models take, as far as the server says so."""


async def ask(endpoint: Endpoint) -> ServedModels:
    """Query one endpoint, unless it is a platform, which needs its own credentials. Errors are returned in `fault`.

    A server may have models but no list of them. Then `fault` is None and `status` is that of the list, unless the
    server doesn't know the path of model calls either.
    """
    if endpoint.platform is not None:
        return ServedModels(endpoint.url, fault="isn't queried")
    try:
        key = await CurrentKey(endpoint).get()
    except ProviderError as error:
        return ServedModels(endpoint.url, fault=f"has no key: {error}", fix=f"correct {endpoint.key_from}")
    listing, calling, headers = paths(endpoint, key)
    async with aiohttp.ClientSession(headers=headers, timeout=_TIMEOUT, trust_env=True) as session:
        address, lacking = endpoint.url_from or "the address", endpoint.missing_path
        served = await _get(session, endpoint.url + listing)
        if served.status in (401, 403):
            return replace(served, fix=f"set a valid key in {endpoint.key_from or 'its variable'}")
        if served.status is None:
            return replace(served, fix=f"start the server, or correct {address}" if endpoint.base_url else "")
        if served.fault is None or served.status not in (200, *NO_LIST):
            return served
        if lacking:
            with_it = await _get(session, f"{endpoint.url}{lacking}{listing}")
            if with_it.fault is None or with_it.status in (401, 403):
                return replace(served, fault=f"lacks {lacking}", fix=f"set {address} to {endpoint.url}{lacking}")
        if served.status == 200:
            return replace(served, fix=f"correct {address}")
        if calling and not await _knows(session, endpoint.url + calling):
            fault = f"is no model API: it has neither {listing} nor {calling} (HTTP {served.status})"
            fix = f"correct {address}" + (f", perhaps by adding {lacking}" if lacking else "")
            return replace(served, fault=fault, fix=fix)
        return replace(served, fault=None)


def paths(endpoint: Endpoint, key: str) -> tuple[str, str, dict[str, str]]:
    """The path of the list of models, that of model calls, and the headers with the key."""
    if endpoint.protocol == "google":  # the path of a call names its model
        return "/v1beta/models", "", {"x-goog-api-key": key}
    if endpoint.protocol == "anthropic":
        prefix = "" if endpoint.url.endswith("/v1") else "/v1"
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        return f"{prefix}/models", f"{prefix}/messages", headers
    calling = "/responses" if endpoint.api == "responses" else "/chat/completions"
    return "/models", calling, {"authorization": f"Bearer {key}"}


async def _knows(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether the server knows this path. It is sent a call without a model, which it refuses, so it costs nothing."""
    try:
        async with session.post(url, json={}, allow_redirects=False) as response:
            text = (await response.read())[:2_000].decode(errors="replace")
            return response.status not in NO_LIST or names_model(text)
    except (TimeoutError, aiohttp.ClientError, OSError):
        return True  # it isn't certain


async def ask_local(ports: Mapping[str, int] = LOCAL_SERVERS) -> dict[str, ServedModels]:
    """Query this machine for local servers and return those that answer, by name. `url` is the base URL to declare."""
    bases = {name: f"http://127.0.0.1:{port}/v1" for name, port in ports.items()}
    async with aiohttp.ClientSession(timeout=_LOCAL_TIMEOUT) as session:
        answers = await asyncio.gather(*(_get(session, f"{base}/models") for base in bases.values()))
    replies = zip(bases.items(), answers, strict=True)
    return {name: ServedModels(base, answer.models) for (name, base), answer in replies if answer.models}


async def _get(session: aiohttp.ClientSession, url: str) -> ServedModels:
    try:
        # A redirect would send the key to another server.
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                what = "refuses the key (HTTP {})" if response.status in (401, 403) else "answers with HTTP {}"
                return ServedModels(url, fault=what.format(response.status), status=response.status)
            return ServedModels(url, _names(json.loads(await response.read())), status=200)
    except TimeoutError:
        return ServedModels(url, fault=f"no answer within {session.timeout.total:g} s")
    except ValueError:
        return ServedModels(url, fault="answers, but not with a list of models", status=200)
    except (aiohttp.ClientError, OSError) as error:
        return ServedModels(url, fault=f"can't be reached: {error}")


def _names(document: object) -> tuple[str, ...]:
    """The ids in a list of models in the format of any of the three providers. Raises ValueError for anything else."""
    listing = cast("dict[str, Any]", document if isinstance(document, dict) else {})
    items = listing.get("data", listing.get("models"))
    if not isinstance(items, list):
        raise ValueError("no list of models")
    entries = [cast("dict[str, Any]", item) for item in cast("Sequence[object]", items) if isinstance(item, dict)]
    names = [entry.get("id") or entry.get("name") for entry in entries]
    return tuple(name.removeprefix("models/") for name in names if isinstance(name, str))
