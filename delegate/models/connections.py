"""Finds the model endpoints that have an API key, and opens pooled clients to them.

Keys come from the SDKs' own environment variables. A key is sent only to the endpoint it was set for.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delegate.models.catalog import Catalog, Model
from delegate.models.overrides import DeclaredEndpoint
from delegate.models.providers import (
    NO_KEY,
    ClientPool,
    Endpoint,
    KeyCommand,
    Protocol,
    load,
    profile_store,
)
from delegate.models.providers import connect as connect_to
from delegate.models.ratelimit import RateLimiter
from delegate.models.routing import Available, EndpointKey
from delegate.models.shared_limits import path_of
from delegate.types.ports import ChatClient

if TYPE_CHECKING:
    from delegate.models.providers._profile import ProfileStore

_PROVIDER_VARIABLES: Mapping[Protocol, tuple[tuple[str, ...], str]] = {
    "openai": (("OPENAI_API_KEY",), "OPENAI_BASE_URL"),
    "anthropic": (("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"),
    "google": (("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL"),
}


@dataclass(frozen=True, slots=True)
class Connection:
    """A model and the client for it. All callers of this model at its endpoint share the limiter."""

    model: Model
    client: ChatClient
    limiter: RateLimiter
    catalog: Catalog
    """Identifies the model that a provider served, which may differ from the requested one."""
    others: tuple[Model, ...] = ()
    """The models that may do a child's task if this one fails before anything was done, best first."""


@dataclass(slots=True)
class Limiters:
    """One limiter for each model of each endpoint, shared by children and judges."""

    make: Callable[[Model], RateLimiter]
    _made: dict[tuple[EndpointKey, str], RateLimiter] = field(default_factory=dict[Any, RateLimiter])

    def of(self, model: Model) -> RateLimiter:
        """The limiter of all calls to this model."""
        key = (model.provider, model.endpoint), model.id
        if key not in self._made:
            self._made.setdefault(key, self.make(model))  # one of the threads that make one
        return self._made[key]


@dataclass(frozen=True, slots=True)
class Connections:
    """The available endpoints, and clients for their models."""

    catalog: Catalog
    available: Available
    client: Callable[[Model], Awaitable[ChatClient]]
    pool: ClientPool | None = None
    profiles: "Callable[[], ProfileStore]" = profile_store
    """What is known of the models at their endpoints."""
    limiters: "Limiters" = field(default_factory=lambda: Limiters(lambda _: RateLimiter()))

    async def open(self, model: Model) -> Connection:
        """Open a connection to `model`. Raises ConfigError if its provider's SDK isn't installed."""
        return Connection(model, await self.client(model), self.limiters.of(model), self.catalog)

    async def aclose(self) -> None:
        """Close the clients of the running event loop. Those of other loops are closed with their loop."""
        if self.pool is not None:
            await self.pool.aclose()

    def close_soon(self) -> None:
        """Close the clients of the running event loop, without waiting for it."""
        if self.pool is not None:
            self.pool.close_soon()


def connect(
    catalog: Catalog,
    declared: Iterable[DeclaredEndpoint],
    environ: Mapping[str, str],
    *,
    timeout_seconds: float | None,
    home: Path,
) -> Connections:
    """Connections to the providers that the environment has keys for, and to the declared endpoints.

    `timeout_seconds` limits one model call. None: as long as a reply of the request's output limit may take. What is
    learned of the endpoints and of their limits is kept in the folder `home`.
    """
    endpoints = find_endpoints(declared, environ)
    profiles = cache(partial(profile_store, home))

    def open_client(endpoint: Endpoint, *, timeout_seconds: float | None) -> ChatClient:
        return connect_to(endpoint, timeout_seconds=timeout_seconds, profiles=profiles())

    pool = ClientPool(open_client, timeout_seconds)

    async def client(model: Model) -> ChatClient:
        endpoint = endpoints[model.provider, model.endpoint]
        await load(endpoint.protocol)
        return pool.client(endpoint)

    def limiter(model: Model) -> RateLimiter:
        endpoint = endpoints.get((model.provider, model.endpoint))
        if endpoint is None:  # of a client that a host brings, whose account isn't known
            return RateLimiter()
        return RateLimiter(shared=path_of(home, url=endpoint.url, key=endpoint.api_key, model=model.id))

    return Connections(catalog, frozenset(endpoints), client, pool, profiles, Limiters(limiter))


def through_client(client: ChatClient, catalog: Catalog) -> Connections:
    """Connections that use one client for all models: for scripted models and for hosts with their own access."""

    async def same_client(model: Model) -> ChatClient:
        return client

    return Connections(catalog, frozenset((provider, None) for provider in _PROVIDER_VARIABLES), same_client)


def with_host_models(connections: Connections, clients: Mapping[Model, ChatClient]) -> Connections:
    """`connections`, and those to models that a host calls itself, each through its own client.

    The endpoints of these models, which no other model may share, count as available.
    """

    async def client(model: Model) -> ChatClient:
        return clients[model] if model in clients else await connections.client(model)

    available = connections.available | {(model.provider, model.endpoint) for model in clients}
    return replace(connections, available=available, client=client)


def find_endpoints(declared: Iterable[DeclaredEndpoint], environ: Mapping[str, str]) -> dict[EndpointKey, Endpoint]:
    """All endpoints that can be called: those configured by the SDKs' variables, and the declared ones."""
    endpoints: dict[EndpointKey, Endpoint] = {}
    for provider, (key_names, url_name) in _PROVIDER_VARIABLES.items():
        key_from = next((name for name in key_names if environ.get(name)), "")
        key = environ.get(key_from, "")
        base_url = environ.get(url_name) or None
        # A custom server may need no key; the providers' own endpoints always do.
        if key or (provider == "openai" and base_url):
            url_from = url_name if base_url else ""
            endpoints[provider, None] = Endpoint(
                provider, base_url, key or NO_KEY, key_from=key_from, url_from=url_from
            )
    for one in declared:
        if not (key := environ.get(one.key_env, "") if one.key_env else NO_KEY):
            continue
        ask_key = KeyCommand(one.key_command) if one.key_command else one.api_key
        asked = f"the endpoint {one.name}'s {'key_command' if one.key_command else 'api_key'}"
        endpoints[one.protocol, one.name] = Endpoint(
            one.protocol,
            one.base_url,
            key,
            "auto" if one.api == "messages" else one.api,
            one.platform,
            one.region,
            one.project,
            ask_key=ask_key,
            key_from=one.key_env or ("" if ask_key is None else asked),
            url_from=f"base_url of the endpoint {one.name}",
        )
    return endpoints
