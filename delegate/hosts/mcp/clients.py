"""Tells the clients of a server apart, so that none reads the reports of another, or uses up its limits.

This is about HTTP. On stdin and stdout there is one client, which started the server as its own user, and can read all
records without it: it may read its own earlier reports after a restart.
"""

import json
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any
from uuid import uuid4

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context

from delegate.budget.runs import KEPT_RUNS
from delegate.errors import CallError
from delegate.types import Parent

COOKIE = "delegate.client"
"""The key in an HTTP request's scope for the value of the cookie by which a client without a session is recognized."""
RUN_NAME = "delegate/run"
"""The key in a request's `_meta` for the client's own name of its run. Calls that name the same run share a ledger."""
_RUN_NAME_CHARS = 200


class Clients:
    """Knows which client made which run. The latest 10,000 runs are remembered, until the server ends.

    With `shared_records`, a client may read all reports, and a run's name means the same run to all clients.
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

    def parent(self, client: str, run_name: object) -> Parent:
        """What a request says about the parent: its run, if it has a name.

        Raises CallError if it isn't a name.
        """
        if run_name is None:
            return Parent()
        if not isinstance(run_name, str) or not 0 < len(run_name) <= _RUN_NAME_CHARS:
            message = f"the name of the run is not a text of 1 to {_RUN_NAME_CHARS} characters"
            raise CallError("wrong_type", message, field=f'_meta["{RUN_NAME}"]', hint="leave it out, or shorten it")
        return Parent(run_id=json.dumps(["mcp", self._server, None if self._shared else client, run_name]))

    def add_run(self, client: str, run_id: str) -> None:
        """Remember that the client made a call of this run."""
        self._made[run_id, client] = None
        self._made.move_to_end((run_id, client))
        if len(self._made) > KEPT_RUNS:
            self._made.popitem(last=False)

    def may_read(self, client: Hashable, run_id: str) -> bool:
        """Whether the client may read the reports of this run."""
        return self._shared or client == self._starter or (run_id, client) in self._made
