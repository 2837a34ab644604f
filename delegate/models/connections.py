"""Which model providers can be reached from here, with which key, and the pooled clients to them.

The variables are the SDKs' own. A key belongs to the endpoint it was set for and is sent nowhere else.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from delegate.models.catalog import Catalog, Model
from delegate.models.overrides import DeclaredEndpoint
from delegate.models.providers import ClientPool, Endpoint, Protocol, load
from delegate.models.ratelimit import RateLimiter
from delegate.models.routing import Available, EndpointKey
from delegate.ports import ChatClient

_OWN: Mapping[Protocol, tuple[tuple[str, ...], str]] = {
    "openai": (("OPENAI_API_KEY",), "OPENAI_BASE_URL"),
    "anthropic": (("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"),
    "google": (("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL"),
}
NO_KEY = "none"
"""Sent where a server wants no key: the SDKs insist on one."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A model and the way to it. The limiter is shared by all who call this model at its endpoint."""

    model: Model
    client: ChatClient
    limiter: RateLimiter
    catalog: Catalog
    """Knows the models that a provider may serve in place of the one asked for."""


@dataclass(frozen=True, slots=True)
class Connections:
    """The places that can be reached, and the way to a model."""

    catalog: Catalog
    available: Available
    client: Callable[[Model], Awaitable[ChatClient]]
    pool: ClientPool | None = None
    limiters: defaultdict[tuple[EndpointKey, str], RateLimiter] = field(
        default_factory=lambda: defaultdict(RateLimiter)
    )
    """One for each model of each endpoint, shared by children and judges."""

    async def open(self, model: Model) -> Connection:
        """The way to `model`. Raises ConfigError when its provider's SDK isn't installed."""
        limiter = self.limiters[(model.provider, model.endpoint), model.id]
        return Connection(model, await self.client(model), limiter, self.catalog)

    async def aclose(self) -> None:
        """Close the clients of the running event loop."""
        if self.pool is not None:
            await self.pool.aclose()


def connect(
    catalog: Catalog, declared: Iterable[DeclaredEndpoint], environ: Mapping[str, str], *, timeout_seconds: float
) -> Connections:
    """Connections to whatever the environment holds keys for, and to the declared endpoints.

    `timeout_seconds` bounds one model call, the SDK's own retries included.
    """
    endpoints = find_endpoints(declared, environ)
    pool = ClientPool(timeout_seconds=timeout_seconds)

    async def client(model: Model) -> ChatClient:
        endpoint = endpoints[model.provider, model.endpoint]
        await load(endpoint.protocol)
        return pool.client(endpoint)

    return Connections(catalog, frozenset(endpoints), client, pool)


def through_client(client: ChatClient, catalog: Catalog) -> Connections:
    """Every provider's models answered by one client: for scripted models, and for hosts with their own access."""

    async def the_one(model: Model) -> ChatClient:
        return client

    return Connections(catalog, frozenset((provider, None) for provider in _OWN), the_one)


def find_endpoints(declared: Iterable[DeclaredEndpoint], environ: Mapping[str, str]) -> dict[EndpointKey, Endpoint]:
    """Every endpoint that can be called: those of the SDKs' variables, then the declared ones."""
    found: dict[EndpointKey, Endpoint] = {}
    for provider, (key_names, url_name) in _OWN.items():
        key = next((environ[name] for name in key_names if environ.get(name)), "")
        base_url = environ.get(url_name) or None
        # A server of one's own may want no key; the providers' own endpoints always do.
        if key or (provider == "openai" and base_url):
            found[provider, None] = Endpoint(provider, base_url, key or NO_KEY)
    for one in declared:
        if (endpoint := _declared(one, environ)) is not None:
            found[one.protocol, one.name] = endpoint
    return found


def _declared(declared: DeclaredEndpoint, environ: Mapping[str, str]) -> Endpoint | None:
    key = environ.get(declared.key_env, "") if declared.key_env else NO_KEY
    return Endpoint(declared.protocol, declared.base_url, key) if key else None
