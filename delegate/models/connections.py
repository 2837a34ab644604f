"""Which model providers can be reached from here, with which key, and the pooled clients to them.

The variables are the SDKs' own. A key belongs to the endpoint it was set for and is sent nowhere else.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from delegate.budget.metering import Connection
from delegate.models.catalog import Catalog, Model
from delegate.models.providers import ClientPool, Endpoint, Protocol, load
from delegate.models.ratelimit import RateLimiter
from delegate.models.routing import Available, Place
from delegate.ports import ChatClient
from delegate.settings import DeclaredEndpoint, Settings

_OWN: Mapping[Protocol, tuple[tuple[str, ...], str]] = {
    "openai": (("OPENAI_API_KEY",), "OPENAI_BASE_URL"),
    "anthropic": (("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL"),
    "google": (("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL"),
}
NO_KEY = "none"
"""Sent where a server wants no key: the SDKs insist on one."""


@dataclass(frozen=True, slots=True)
class Connections:
    """The places that can be reached, and the way to a model."""

    catalog: Catalog
    available: Available
    client: Callable[[Model], Awaitable[ChatClient]]
    pool: ClientPool | None = None
    limiters: defaultdict[tuple[Place, str], RateLimiter] = field(default_factory=lambda: defaultdict(RateLimiter))
    """One for each model of each endpoint, shared by children and judges."""

    async def open(self, model: Model) -> Connection:
        """The way to `model`. Raises ConfigError when its provider's SDK isn't installed."""
        limiter = self.limiters[(model.provider, model.endpoint), model.id]
        return Connection(model, await self.client(model), limiter, self.catalog)

    async def aclose(self) -> None:
        """Close the clients of the running event loop."""
        if self.pool is not None:
            await self.pool.aclose()


def connect(settings: Settings, environ: Mapping[str, str], catalog: Catalog) -> Connections:
    """Connections to whatever the environment holds keys for, and to the declared endpoints."""
    endpoints = find_endpoints(settings, environ)
    pool = ClientPool(timeout_seconds=settings.call_timeout_seconds)

    async def client(model: Model) -> ChatClient:
        endpoint = endpoints[model.provider, model.endpoint]
        await load(endpoint.protocol)
        return pool.client(endpoint)

    return Connections(catalog, frozenset(endpoints), client, pool)


def all_through(client: ChatClient, catalog: Catalog) -> Connections:
    """Every provider's models answered by one client: for scripted models, and for hosts with their own access."""

    async def the_one(model: Model) -> ChatClient:
        return client

    return Connections(catalog, frozenset((provider, None) for provider in _OWN), the_one)


def find_endpoints(settings: Settings, environ: Mapping[str, str]) -> dict[Place, Endpoint]:
    """Every endpoint that can be called: those of the SDKs' variables, then the declared ones."""
    found: dict[Place, Endpoint] = {}
    for provider, (key_names, url_name) in _OWN.items():
        key = next((environ[name] for name in key_names if environ.get(name)), "")
        base_url = environ.get(url_name) or None
        # A server of one's own may want no key; the providers' own endpoints always do.
        if key or (provider == "openai" and base_url):
            found[provider, None] = Endpoint(provider, base_url, key or NO_KEY)
    for declared in settings.endpoints:
        if (endpoint := _declared(declared, environ)) is not None:
            found[declared.protocol, declared.name] = endpoint
    return found


def _declared(declared: DeclaredEndpoint, environ: Mapping[str, str]) -> Endpoint | None:
    key = environ.get(declared.key_env, "") if declared.key_env else NO_KEY
    return Endpoint(declared.protocol, declared.base_url, key) if key else None
