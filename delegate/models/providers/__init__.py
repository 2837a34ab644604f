"""Clients for model providers behind one interface, `ChatClient`. Import from this module only. SDKs load on first use.

client = connect(Endpoint("openai", base_url=None, api_key="…"))
reply = await client.complete(ChatRequest(...))
await client.aclose()
"""

from delegate.models.providers._connect import connect, load, profile_store
from delegate.models.providers._endpoint import Endpoint, Platform, Protocol, names_model
from delegate.models.providers._keys import NO_KEY, CurrentKey, KeyCommand
from delegate.models.providers._pool import ClientPool, Connect
from delegate.models.providers._shared import BuiltInClient

__all__ = [
    "NO_KEY",
    "BuiltInClient",
    "ClientPool",
    "Connect",
    "CurrentKey",
    "Endpoint",
    "KeyCommand",
    "Platform",
    "Protocol",
    "connect",
    "load",
    "names_model",
    "profile_store",
]
