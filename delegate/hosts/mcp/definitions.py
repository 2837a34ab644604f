"""What the server says about itself and its tools. It follows from the settings, and is known before the SDK is loaded.

It imports little, because clients wait only a fraction of a second for the list.
"""

from collections.abc import Sequence

from delegate import contract
from delegate.contract import Limits
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.policy.settings import Settings
from delegate.types import LEVELS, JsonObject, ParentQuestion, RunResult

NAME = "delegate"
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
"""The extension of the protocol by which a client polls a call (see `tasks`)."""
INSTRUCTIONS = (
    "Use delegate_task for a complex, multi-step task that a child agent can do alone, for independent tasks in "
    "parallel, and for work that must be verified: each comes back with a PASS or FAIL verdict on its acceptance "
    "criteria. A call that takes long is answered with handles: read_delegation waits for the results."
)
_ALWAYS_LOADED: JsonObject = {"_meta": {"anthropic/alwaysLoad": True}}
"""Keeps a tool in the first request of Claude Code and its SDK, where others are left to a search."""
_HANDLE: JsonObject = {"type": ["string", "null"], "description": "With it, read_delegation has the task's report"}
_JUDGED = ("verdict", "level", "verified", "code")
"""What results say of a verdict."""
_RESULT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "handle": _HANDLE,
                    "status": {"type": "string", "description": "running, needs_input, or how the child ended"},
                    "verdict": {"enum": ["PASS", "FAIL", None], "description": "null: not judged"},
                    "level": {"enum": [*LEVELS, None], "description": "What a PASS rests on, strongest first"},
                    "verified": {"type": ["boolean", "null"], "description": "Of a PASS: whether it is proven or seen"},
                    "code": {"type": ["string", "null"], "description": "Why the verdict is what it is"},
                },
                "required": ["handle", "status", *_JUDGED],
            },
        },
        "error": {"type": ["object", "null"], "description": "Why nothing was run"},
    },
    "required": ["results", "error"],
}
"""The schema of `structuredContent`: one entry for each task, in the order of the call."""


def listed(
    settings: Settings, *, structured: bool = False, workspaces: WorkspacePolicy | None = None
) -> list[JsonObject]:
    """The tools that a server with these settings lists, whose parent isn't known.

    Raises:
        ConfigError: The tool's name isn't valid for all hosts.
    """
    # What is left in a run changes, and clients read the definition once.
    left = 0 if settings.max_children == 0 else None
    limits = Limits(max_steps=settings.max_steps, timeout_seconds=settings.timeout_seconds, tasks_left=left)
    delegate = contract.tool("mcp", name=settings.tool_name, limits=limits, background=True)
    if workspaces is not None:
        delegate["description"] += f"\n{workspaces.sentence()}"
    if structured:
        delegate["outputSchema"] = _RESULT_SCHEMA
    merge = (contract.merge_tool,) if settings.merge_tool else ()
    others = (contract.read_tool, contract.stop_tool, contract.message_tool, contract.think_tool, *merge)
    return [{**tool, **_ALWAYS_LOADED} for tool in (delegate, *(make("mcp") for make in others))]


def structured(run: RunResult) -> JsonObject:
    """The `structuredContent` of a finished call."""
    results = [
        {"handle": one.handle, "status": one.status, **{name: getattr(one.verdict, name, None) for name in _JUDGED}}
        for one in run.results
    ]
    return {"results": results, "error": run.error and run.error.model_dump(mode="json")}


def structured_running(handles: Sequence[str], questions: Sequence[ParentQuestion] = ()) -> JsonObject:
    """The `structuredContent` of a call that goes on in the background."""
    asking = {question.handle for question in questions}
    states = ((handle, "needs_input" if handle in asking else "running") for handle in handles)
    results = [{"handle": handle, "status": state, **dict.fromkeys(_JUDGED)} for handle, state in states]
    return {"results": results, "error": None}
