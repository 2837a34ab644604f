"""Finds the project of each call of an MCP client, which names it in the request, as Codex does, or as its roots."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from delegate.hosts.mcp.opening import object_in
from delegate.hosts.projects import Project, Projects
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.types import JsonObject

ListRoots = Callable[[], Awaitable[list[str]]]
"""Asks the client for the URIs of its roots."""
ROOTS_SECONDS = 2.0
"""How long a client may take to name its roots."""


CODEX_TURN = "x-codex-turn-metadata"
"""The key in a request's `_meta` under which Codex describes the turn: its id, its model, the user's repositories."""


class ClientProjects(Projects):
    """Finds the project of each call of one server."""

    def __init__(self, policy: WorkspacePolicy, *, home: Path) -> None:
        super().__init__(policy, home=home)
        self._silent: set[str] = set()
        """Clients that didn't answer when they were asked for their roots."""

    async def of_call(self, client: str, meta: Mapping[str, Any], list_roots: ListRoots | None) -> Project:
        """The project for the children of a call. Raises CallError if the operator's own folder can't be used."""
        if self.policy.mode == "fresh" or self.policy.path is not None:
            return await self.find()
        repositories: object = codex_turn(meta).get("workspaces")
        named = list(cast("Mapping[str, object]", repositories)) if isinstance(repositories, dict) else []
        if not named and list_roots is not None and client not in self._silent:
            try:
                async with asyncio.timeout(ROOTS_SECONDS):
                    named = await list_roots()
            except TimeoutError:
                self._silent.add(client)  # it isn't asked again
        return await self.find(named)


def codex_turn(meta: Mapping[str, Any]) -> JsonObject:
    """The description of the turn, which is an object or its JSON text. Empty for other clients."""
    turn = meta.get(CODEX_TURN)
    turn = object_in(turn) if isinstance(turn, str) else turn
    return cast("JsonObject", turn) if isinstance(turn, dict) else {}
