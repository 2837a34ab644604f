"""The framework-independent part of every adapter: a tool to register, and what a host knows about each call of it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast
from uuid import uuid4

from delegate import contract
from delegate._util.cancellation import Cancellation
from delegate.contract import Arguments
from delegate.delegator import Delegator
from delegate.delegator.background import Delegation
from delegate.engine.error_mapping import refusal
from delegate.hosts.workspaces import WorkspacePolicy
from delegate.policy.settings import SettingsOptions
from delegate.types import JsonObject, Parent, RunResult, Usage
from delegate.types.errors import CallError, ConfigError, ToolDenied
from delegate.types.events import EventSink

if TYPE_CHECKING:
    from delegate.policy.approvals import OnApproval, OnQuestion

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What a host knows about one call. Every field is optional."""

    parent: Parent = field(default_factory=Parent)
    """The parent's run, model, tools and remaining time. The `parent` given when the tool was created overrides it."""
    session: Hashable = None
    """Overlapping calls with the same session share a ledger if `parent.run_id` is None. None: they don't."""
    on_event: EventSink | None = None
    on_approval: "OnApproval | None" = None
    """Asks the host's user about calls of children; None for whom the delegator asks."""
    on_question: "OnQuestion | None" = None
    """Asks the host's user what children ask; None for whom the delegator asks. A call in the background that nobody
    answers for is answered with the question."""
    folders: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Asks the host for the folders that the parent works on, as paths or URIs; None if it names none."""
    asks: bool = False
    """Whether the children of a call in the background may ask, since its parent reads the questions."""
    may_read: Callable[[str], bool] | None = None
    """Whether the caller may read the results of the run with this id, and so stop, message and merge its tasks. None:
    the handle grants access.
    """
    cancellation: Cancellation | None = None
    answer_within: float | None = None
    """Seconds after which a call that still runs goes on in the background, and is answered with its handles. None: no
    limit.
    """
    native: object = None
    """The call as the framework's own value, for `current`."""

    @staticmethod
    def current(kind: type[T]) -> T | None:
        """The framework's own value for the call for which a child works here: its tools get that call's context.

        None if no agent of this framework delegates.
        """
        return next((call for call in _parent_calls.get() if isinstance(call, kind)), None)


_DEFAULT_INVOCATION = Invocation()
_parent_calls: ContextVar[tuple[object, ...]] = ContextVar("delegate_parent_calls", default=())
"""The calls for which children work here, of all frameworks, the innermost first."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of one call: the text for the parent's model, and the result for the host."""

    text: str
    is_error: bool = False
    """The call was invalid or exceeded a limit, and nothing was run."""
    result: RunResult | None = None
    running: Delegation | None = None
    """The call, if it goes on in the background."""

    @property
    def structured(self) -> JsonObject | None:
        """The result as JSON; for a refused call, its `error` field is set."""
        return self.result.model_dump(mode="json") if self.result else None

    @property
    def usage(self) -> Usage:
        """Tokens of all children and judges, for the host's own totals."""
        totals = self.result.totals if self.result else None
        return totals.child_usage + totals.judge_usage if totals else Usage()


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool that a host can register: its definition, and the function that answers its calls."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema for the model. Arguments are validated when the call is made, with clearer errors."""
    delegator: Delegator
    _call: Callable[[Arguments, Invocation], Coroutine[Any, Any, ToolAnswer]] = field(repr=False)

    async def call(self, arguments: Arguments, invocation: Invocation = _DEFAULT_INVOCATION) -> ToolAnswer:
        """Answer one call, valid or not. Raises only CancelledError, after all children have ended."""
        token = _parent_calls.set((invocation.native, *_parent_calls.get()))
        try:
            return await self._call(arguments, invocation)
        finally:
            _parent_calls.reset(token)

    def call_sync(
        self,
        arguments: Arguments,
        invocation: Invocation = _DEFAULT_INVOCATION,
        *,
        stopped: Callable[[], bool] | None = None,
    ) -> ToolAnswer:
        """`call` for hosts that aren't async.

        `stopped` is polled on the calling thread; once it returns True, the call is cancelled.
        """
        cancellation = invocation.cancellation or Cancellation()
        cancellable = replace(invocation, cancellation=cancellation)

        def poll() -> None:
            if stopped is not None and stopped():
                cancellation.cancel()

        return self.delegator.wait_for(self.call(arguments, cancellable), on_poll=poll if stopped else None)


def make_delegate_tool(
    delegator: Delegator | None = None,
    *,
    parent: Parent | None = None,
    background: bool = False,
    workspace: str | WorkspacePolicy = "fresh",
    cwd: Callable[[], Path] = Path.cwd,
    **options: Unpack[SettingsOptions],
) -> HostTool:
    """Create the delegate_task tool. Without a delegator, one is created from `options` (settings).

    `parent` is what the operator knows and the host doesn't, such as the tier of a model that isn't in the catalog.
    With `background`, a parent may ask for handles at once; the host must then offer `make_read_tool` as well.
    `workspace` is where children work, unless a parent's workspace is given: see `WorkspacePolicy`. `cwd` returns the
    folder that the parent works in.

    Raises:
        ConfigError: the settings or the workspace are wrong, or there are options besides a delegator.
    """
    if delegator is not None and options:
        raise ConfigError(
            f"{', '.join(options)}: the delegator has its own settings; give these to `Delegator` instead"
        )
    delegator, runs = delegator or Delegator(**options), _SessionRuns()
    known = {name: value for name, value in parent or Parent() if value is not None}
    definition = delegator.tool("mcp", parent=parent, background=background)
    policy = WorkspacePolicy.parse(workspace) if isinstance(workspace, str) else workspace
    if policy.mode != "fresh" and "workspace" not in known:
        definition["description"] += f"\n{policy.sentence(cwd())}"

    async def call(arguments: Arguments, invocation: Invocation) -> ToolAnswer:
        # The operator's values win. The host's tool names matter only if children get the host's tools.
        own = {} if delegator.child_tools is not None else {"tools": None}
        caller, project = invocation.parent.model_copy(update={**known, **own}), None
        if policy.mode != "fresh" and caller.workspace is None:
            from delegate.hosts.projects import Projects  # loaded only where children get a project

            try:
                projects = Projects(policy, home=delegator.settings.home)
                project = await projects.find(invocation.folders, cwd=cwd())
            except CallError as error:
                return ToolAnswer(delegator.render(refusal(error)), is_error=True)
            caller = caller.model_copy(update={"workspace": project.workspace})
        seconds = invocation.answer_within
        if background:
            arguments, at_once = contract.take_flag(arguments, "background")
            seconds = 0 if at_once else seconds
        with ExitStack() as held:
            context = held.enter_context(runs.assign(caller, invocation.session))
            if seconds is None:
                result = await delegator.call(
                    arguments,
                    parent=context,
                    on_event=invocation.on_event,
                    on_approval=invocation.on_approval,
                    on_question=invocation.on_question,
                    cancellation=invocation.cancellation,
                )
                answer = finished(delegator, result)
            else:
                delegation = await delegator.background.start_call(
                    arguments,
                    parent=context,
                    on_approval=invocation.on_approval,
                    on_question=invocation.on_question,
                    asks=invocation.asks,
                )
                if await _finished_within(seconds, delegation, invocation):
                    answer = finished(delegator, await delegation)
                else:
                    delegation.add_done_callback(held.pop_all().close)
                    answer = ToolAnswer(delegator.background.render_running(delegation), running=delegation)
        return replace(answer, text=project.noted(answer.text)) if project and not answer.is_error else answer

    return HostTool(definition["name"], definition["description"], definition["inputSchema"], delegator, call)


def finished(delegator: Delegator, result: RunResult) -> ToolAnswer:
    """The answer to a call that has ended, or was refused."""
    return ToolAnswer(delegator.render(result), result.error is not None, result)


async def _finished_within(seconds: float, delegation: Delegation, invocation: Invocation) -> bool:
    """Wait for a call as long as its host can, and not for its parent's answer. Until then, the host can stop it."""
    with delegation.reported_to(invocation.on_event), (invocation.cancellation or Cancellation()).linked(delegation):
        try:
            return await delegation.wait(seconds, or_question=True)
        except asyncio.CancelledError:
            await delegation.close()
            raise


def make_read_tool(delegator: Delegator) -> HostTool:
    """Create the tool that waits for a task, and reads the rest of a report that was cut."""
    # No parent: a later run of a conversation may read the report of an earlier one.
    return _own_tool(
        delegator,
        contract.read_tool("mcp"),
        lambda arguments, call: delegator.background.read_call(
            arguments, may_read=call.may_read, max_wait_seconds=call.answer_within, on_event=call.on_event
        ),
    )


def make_stop_tool(delegator: Delegator) -> HostTool:
    """Create the tool that stops a task in the background."""
    stop = delegator.background.stop_call
    return _own_tool(delegator, contract.stop_tool("mcp"), lambda given, call: stop(given, may_read=call.may_read))


def make_message_tool(delegator: Delegator) -> HostTool:
    """Create the tool that sends a task an instruction."""
    later = {"run_id": None, "seconds_left": None, "tools": None}  # another run may go on with a task
    return _own_tool(
        delegator,
        contract.message_tool("mcp"),
        lambda arguments, call: delegator.background.message_call(
            arguments,
            parent=call.parent.model_copy(update=later),
            may_read=call.may_read,
            on_approval=call.on_approval,
            on_question=call.on_question,
            asks=call.asks,
        ),
    )


def make_merge_tool(delegator: Delegator) -> HostTool:
    """Create the tool that merges the changes of tasks. Raises ConfigError unless the setting `merge_tool` is on."""
    if not delegator.settings.merge_tool:
        raise ConfigError("parents can't merge: the setting merge_tool is off")
    merge = delegator.merges.merge_call
    return _own_tool(delegator, contract.merge_tool("mcp"), lambda given, call: merge(given, may_read=call.may_read))


def make_follow_up_tools(delegator: Delegator) -> list[HostTool]:
    """Create `message_delegation`, and `merge_delegation` if the settings allow it."""
    merge = [make_merge_tool(delegator)] if delegator.settings.merge_tool else []
    return [make_message_tool(delegator), *merge]


def make_think_tool(delegator: Delegator) -> HostTool:
    """Create the think tool: it returns a thought as a checklist of its criteria. No model is called."""
    return _own_tool(delegator, contract.think_tool("mcp"), lambda arguments, _: delegator.think_answer(arguments))


class MakeTools(Protocol[T_co]):
    """Creates tools of a framework."""

    def __call__(self, delegator: Delegator) -> T_co: ...


def small_tools(wrap: Callable[[HostTool], T]) -> tuple[MakeTools[T], MakeTools[T], MakeTools[list[T]]]:
    """The functions `read_tool`, `think_tool` and `follow_up_tools` of an adapter that wraps a tool by `wrap`.

    The first creates the tool that reads the rest of a report that was cut, and the second `think`, which returns a
    thought as a checklist of its criteria. The third creates `message_delegation`, and `merge_delegation` if the
    setting `merge_tool` allows it.
    """

    def read_tool(delegator: Delegator) -> T:
        return wrap(make_read_tool(delegator))

    def think_tool(delegator: Delegator) -> T:
        return wrap(make_think_tool(delegator))

    def follow_up_tools(delegator: Delegator) -> list[T]:
        return [wrap(one) for one in make_follow_up_tools(delegator)]

    return read_tool, think_tool, follow_up_tools


def _own_tool(
    delegator: Delegator,
    definition: JsonObject,
    answer: Callable[[Arguments, Invocation], Coroutine[Any, Any, str | tuple[str, Delegation | None]]],
) -> HostTool:
    """Create a tool that runs no children while it is called. `answer` returns its text, and a call that goes on. It
    may raise CallError.
    """

    async def call(arguments: Arguments, invocation: Invocation) -> ToolAnswer:
        try:
            answered = await answer(arguments, invocation)
        except CallError as error:
            return ToolAnswer(delegator.render(refusal(error)), is_error=True)
        text, running = (answered, None) if isinstance(answered, str) else answered
        return ToolAnswer(text, running=running)

    return HostTool(definition["name"], definition["description"], definition["inputSchema"], delegator, call)


def read_only_hint(annotations: object) -> bool:
    """Whether the annotations of an MCP tool, as an object or a mapping, say `readOnlyHint: true`. None has no hint."""
    if isinstance(annotations, Mapping):
        return cast("Mapping[str, object]", annotations).get("readOnlyHint") is True
    return getattr(annotations, "readOnlyHint", None) is True


def text_of(content: Iterable[Mapping[str, Any]]) -> str:
    """The text of a tool's content blocks. Blocks of other types appear as their type."""
    return "\n".join(str(block["text"]) if block["type"] == "text" else f"[{block['type']}]" for block in content)


def approval_denied(tool: str) -> ToolDenied:
    """The error that a child gets from a tool that needs a person's approval or input."""
    return ToolDenied(f"{tool} needs a person's approval or input, and no person is available: continue without it")


class _SessionRuns:
    """Puts overlapping calls of one session, usually those of one turn of the parent's model, into one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: dict[Hashable, tuple[str, int]] = {}
        """For each session its run id and the number of calls that are running."""

    @contextmanager
    def assign(self, parent: Parent, session: Hashable) -> Generator[Parent]:
        """The parent with a run id, for as long as the call lasts."""
        if parent.run_id is not None or session is None:
            yield parent
            return
        with self._lock:
            run_id, calls = self._active.get(session, (f"turn-{uuid4().hex}", 0))
            self._active[session] = run_id, calls + 1
        try:
            yield parent.model_copy(update={"run_id": run_id})
        finally:
            with self._lock:
                run_id, calls = self._active.pop(session)
                if calls > 1:
                    self._active[session] = run_id, calls - 1
