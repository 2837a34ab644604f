"""Tells the clients of a server apart, and the runs that their calls belong to.

No client over HTTP reads the results of another, or uses up its limits. On stdin and stdout there is one client, which
started the server as its own user, and can read all records without it: it may read its own earlier results after a
restart.
"""

import json
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any
from uuid import uuid4

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context

from delegate.budget.runs import KEPT_RUNS
from delegate.hosts.mcp.projects import codex_turn
from delegate.types import Parent
from delegate.types.errors import CallError

COOKIE = "delegate.client"
"""The key in an HTTP request's scope for the value of the cookie by which a client without a session is recognized."""
RUN_NAME = "delegate/run"
"""The key in a request's `_meta` for the client's own name of its run. Calls that name the same run share a ledger."""
PATIENCE: Mapping[str, float] = {
    "claude-code": 3_540,
    "copilot-cli": 3_540,
    "codex-mcp-client": 285,
    "gemini-cli-mcp-client": 585,
    "qwen-cli-mcp-client": 585,
}
"""How many seconds clients wait for an answer where their settings have no timeout, less a margin, by what their names
begin with.
"""
LEAST_PATIENCE = 45.0
"""The same of all others: many give up after 60 seconds."""
WITHOUT_ERRORS = frozenset({"fastmcp"})
"""Clients that get refused calls as usual results. Agents of Pydantic AI, which use this one, end their run after the
second error.
"""
ONE_CALL = frozenset({"mcporter", "inspector-cli"})
"""Clients that end the server with each call, so that nobody could answer a question by a second one."""
WINDOW_SECONDS = 3_600.0
"""How long what a client uses that names neither its run nor its turns counts against its limits."""
_NAME_CHARS = 200


class Clients:
    """Knows which client made which run. The latest 10,000 runs are remembered, until the server ends.

    With `shared_records`, a client may read all results, and a run's name means the same run to all clients.
    """

    def __init__(self, *, shared_records: bool) -> None:
        self._shared = shared_records
        self._server = uuid4().hex
        self._starter = f"starter of {self._server}"
        self._made: OrderedDict[tuple[str, Hashable], None] = OrderedDict()
        """Runs' ids, each with a client that made calls of the run. Only the operator puts several into one run."""

    def identify(self, http: Any) -> str:
        """Identify the client that sent an HTTP request of the SDK. None means the one that started the server.

        Over HTTP, it is known by the principal that the SDK authenticated, if any, together with its session or
        cookie. A client that has none of these is another one with every request.
        """
        if http is None:
            return self._starter
        user, session = http.scope.get("user"), http.headers.get("mcp-session-id")
        known = {
            "principal": authorization_context(user) if isinstance(user, AuthenticatedUser) else None,
            "session": session,
            "cookie": None if session else http.scope.get(COOKIE),
        }
        return json.dumps(known) if any(known.values()) else f"request {uuid4().hex}"

    def parent(self, client: str, meta: Mapping[str, Any]) -> Parent:
        """What a request says about the parent: its model, if it says so, and its run.

        A run is what the client names, else the turn of its model. All other calls of a client are of one run, whose
        limits count what was used within the last hour.

        Raises CallError if the run's name isn't one.
        """
        name, turn, window = meta.get(RUN_NAME), codex_turn(meta), None
        if name is not None:
            if not _is_name(name):
                message = f"the name of the run is not a text of 1 to {_NAME_CHARS} characters"
                raise CallError("wrong_type", message, field=f'_meta["{RUN_NAME}"]', hint="leave it out, or shorten it")
            run = self._id(None if self._shared else client, "name", name)
        elif _is_name(turn.get("turn_id")):
            run = self._id(client, "turn", turn["turn_id"])
        else:
            run, window = self._id(client, "calls"), WINDOW_SECONDS
        model = turn["model"] if _is_name(turn.get("model")) else None
        return Parent(run_id=run, window_seconds=window, model=model)

    def add_run(self, client: str, run_id: str) -> None:
        """Remember that the client made a call of this run."""
        self._made[run_id, client] = None
        self._made.move_to_end((run_id, client))
        if len(self._made) > KEPT_RUNS:
            self._made.popitem(last=False)

    @staticmethod
    def patience(name: str) -> float:
        """How many seconds a client of this name waits for an answer."""
        return next((seconds for start, seconds in PATIENCE.items() if name.startswith(start)), LEAST_PATIENCE)

    def may_read(self, client: Hashable, run_id: str) -> bool:
        """Whether the client may read the results of this run."""
        return self._shared or client == self._starter or (run_id, client) in self._made

    def _id(self, *parts: str | None) -> str:
        return json.dumps(["mcp", self._server, *parts])


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _NAME_CHARS
