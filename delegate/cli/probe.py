"""Queries the models of servers with `GET …/models`, which is free. A key is sent only to its own endpoint."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp

from delegate.models.providers import Endpoint

SECONDS = 5.0
LOCAL_SECONDS = 1.0
LOCAL_SERVERS = {"ollama": 11434, "lm-studio": 1234, "vllm": 8000, "llama-cpp": 8080}
"""Names of common local servers and their default ports."""


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models of a server. `fault` is None if the query succeeded."""

    url: str
    models: tuple[str, ...] = ()
    fault: str | None = None
    status: int | None = None
    key_env: str | None = None
    """The variable with its key, if it needs one."""


async def ask(endpoint: Endpoint) -> ServedModels:
    """Query one endpoint. Raises nothing: errors are returned in `fault`. Platforms aren't queried: they list nothing
    without their credentials.
    """
    if endpoint.platform is not None:
        return ServedModels(endpoint.url, fault="isn't queried")
    path, headers = {
        "openai": ("/models", {"authorization": f"Bearer {endpoint.api_key}"}),
        "anthropic": ("/v1/models", {"x-api-key": endpoint.api_key, "anthropic-version": "2023-06-01"}),
        "google": ("/v1beta/models", {"x-goog-api-key": endpoint.api_key}),
    }[endpoint.protocol]
    if endpoint.protocol == "anthropic" and endpoint.url.endswith("/v1"):
        path = "/models"
    return await _get(endpoint.url + path, headers, SECONDS, trust_env=True)


async def ask_local(ports: Mapping[str, int] = LOCAL_SERVERS) -> dict[str, ServedModels]:
    """Query this machine for local servers and return those that answer, by name. `url` is the base URL to declare."""
    bases = {name: f"http://127.0.0.1:{port}/v1" for name, port in ports.items()}
    queries = (_get(f"{base}/models", {}, LOCAL_SECONDS, trust_env=False) for base in bases.values())
    answers = await asyncio.gather(*queries)
    found = zip(bases.items(), answers, strict=True)
    return {name: ServedModels(base, answer.models) for (name, base), answer in found if answer.models}


async def _get(url: str, headers: Mapping[str, str], seconds: float, *, trust_env: bool) -> ServedModels:
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=trust_env) as session,
            # A redirect would send the key to another server.
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                what = "refuses the key (HTTP {})" if response.status in (401, 403) else "answers with HTTP {}"
                return ServedModels(url, fault=what.format(response.status), status=response.status)
            return ServedModels(url, _names(json.loads(await response.read())), status=200)
    except TimeoutError:
        return ServedModels(url, fault=f"no answer within {seconds:g} s")
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
