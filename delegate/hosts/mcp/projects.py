"""Asks MCP clients for the folders of each call: in the request, as Codex names them, or as the client's roots."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from delegate.hosts.mcp.opening import object_in
from delegate.types import JsonObject

ListRoots = Callable[[], Awaitable[list[str]]]
"""Asks the client for the URIs of its roots."""
ROOTS_SECONDS = 2.0
"""How long a client may take to name its roots."""
CODEX_TURN = "x-codex-turn-metadata"
"""The key in a request's `_meta` under which Codex describes the turn: its id, its model, the user's repositories."""


class ClientFolders:
    """The folders that the clients of one server name. One that doesn't answer isn't asked again."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def of_call(self, client: str, meta: Mapping[str, Any], list_roots: ListRoots | None) -> list[str]:
        """What a client names in a request, as paths or URIs."""
        repositories: object = codex_turn(meta).get("workspaces")
        named = list(cast("Mapping[str, Any]", repositories)) if isinstance(repositories, dict) else []
        if not named and list_roots is not None and client not in self._silent:
            try:
                async with asyncio.timeout(ROOTS_SECONDS):
                    return await list_roots()
            except TimeoutError:
                self._silent.add(client)
        return named


def codex_turn(meta: Mapping[str, Any]) -> JsonObject:
    """The description of the turn, which is an object or its JSON text. Empty for other clients."""
    turn = meta.get(CODEX_TURN)
    turn = object_in(turn) if isinstance(turn, str) else turn
    return cast("JsonObject", turn) if isinstance(turn, dict) else {}
