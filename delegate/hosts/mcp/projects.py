"""Finds the project of each call of an MCP client, which names it in the request, as Codex does, or as its roots."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from delegate.hosts.mcp.codex import codex_turn
from delegate.hosts.projects import Project, Projects
from delegate.hosts.workspaces import WorkspacePolicy

ListRoots = Callable[[], Awaitable[list[str]]]
"""Asks the client for the URIs of its roots."""
ROOTS_SECONDS = 2.0
"""How long a client may take to name its roots."""


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
        return await self.find(_named_by_codex(meta) or await self._roots(client, list_roots))

    async def _roots(self, client: str, list_roots: ListRoots | None) -> list[str]:
        """The client's roots. A client that doesn't answer isn't asked again."""
        if list_roots is None or client in self._silent:
            return []
        try:
            async with asyncio.timeout(ROOTS_SECONDS):
                return await list_roots()
        except TimeoutError:
            self._silent.add(client)
            return []


def _named_by_codex(meta: Mapping[str, Any]) -> list[str]:
    """The repositories that Codex names."""
    workspaces = codex_turn(meta).get("workspaces")
    return [str(path) for path in cast("Mapping[str, object]", workspaces)] if isinstance(workspaces, dict) else []
