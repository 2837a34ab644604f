"""The public entry point: a `Delegator` provides the tool's definition, executes its calls and runs tasks."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from delegate import contract
from delegate._util.cancellation import Cancellation
from delegate._util.loopthread import LoopThread, blocking
from delegate._util.redaction import redactor
from delegate.budget.runs import Run, RunRegistry, current_context
from delegate.contract import Arguments, Dialect, Limits, Variant, think
from delegate.delegator.background import Background
from delegate.engine.consumers import as_consumer
from delegate.engine.error_mapping import refusal
from delegate.models.catalog import Model
from delegate.models.connections import connect, through_client, with_host_models
from delegate.models.overrides import effective_catalog
from delegate.policy.settings import Settings, SettingsOptions, load_settings, override
from delegate.records.history import Records, TaskSummary
from delegate.records.mailbox import continued_from
from delegate.types import Author, JsonObject, Parent, Receipt, RunResult, RunStatus, Task, Verdict
from delegate.types.errors import CallError, ConfigError
from delegate.types.events import EventSink
from delegate.types.ports import ChatClient, Tool, ToolOutput

if TYPE_CHECKING:
    from delegate.batch.backend import Backend
    from delegate.child.function import ChildFunction
    from delegate.child.job import ChildRunner
    from delegate.child.mcp_servers import McpServers
    from delegate.delegator.batches import Batches
    from delegate.delegator.merges import Merges
    from delegate.delegator.task_records import TaskRecords
    from delegate.engine.admission import Admission
    from delegate.engine.task_run import TaskRun
    from delegate.judging.calibration.limits import JudgeLimits
    from delegate.policy.approvals import OnApproval, OnQuestion

T = TypeVar("T")


class Delegator:
    """Runs tasks in child agents and returns their results, each with a verdict.

    Args:
        settings: The operator's settings. By default, they are loaded from the environment and `delegate.toml`.
        client: A client for all models, instead of the providers' own endpoints. For scripted models
            (`delegate.models.providers.scripted`) and for hosts with their own model access.
        host_models: Models that the host calls itself, with the client for each, in addition to all others. They
            replace the catalog's entries with the same IDs, and need an `endpoint` that no other model has.
        runner: Runs the children, instead of the built-in agent loop. An async function, which gets a `Job` and
            returns the report, is run by a `FunctionRunner`.
        tools: The tools of children, instead of the built-in toolbox. A function with type hints becomes a tool as by
            `Tool.from_function`.
        on_event: Receives the events of all calls, in addition to the `on_event` of a single call. It may be an `async`
            function. See `delegate.types.events`.
        stream_text: Also send events with a child's text while its model writes it (`child.text`).
        on_approval: An async function that asks a person whether a child may make a call, where the settings `policy`
            or `commands` say so, unless a single call has its own. Without one, such calls are refused.
        on_question: An async function that answers what children ask their parent, unless a single call has its own.
            Without one, only children of calls in the background can ask. See `delegate.policy.approvals`.
        **options: Single settings, such as `model="…"` or `commands="allow"`, which override all other sources and
            `settings`.

    Attributes:
        background: Calls that go on in the background.

    Raises:
        ConfigError: The settings, `delegate.toml`, the catalog, the runner or a tool are invalid. Errors of parent
            models and children are never raised; they are part of the `RunResult`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        client: ChatClient | None = None,
        host_models: Mapping[Model, ChatClient] | None = None,
        runner: "ChildRunner | ChildFunction | None" = None,
        tools: Sequence[Tool | Callable[..., Any]] | None = None,
        on_event: EventSink | None = None,
        stream_text: bool = False,
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        **options: Unpack[SettingsOptions],
    ) -> None:
        if client is not None and not callable(getattr(client, "complete", None)):
            raise ConfigError(f"client: {client!r:.60} is not a ChatClient; name a model by Delegator(model=…)")
        for name, function in {"on_event": on_event, "on_approval": on_approval, "on_question": on_question}.items():
            if function is not None and not callable(function):
                raise ConfigError(f"{name}: {function!r:.60} is not a function; pass one, or leave it out")
        self.settings = settings = load_settings(**options) if settings is None else override(settings, **options)
        given = (one if isinstance(one, Tool) else Tool.from_function(one) for one in tools or ())
        self.child_tools = None if tools is None else tuple(given)
        """The tools of children. None means the built-in toolbox."""
        catalog = effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy)
        self.catalog = catalog = catalog.with_models(host_models) if host_models else catalog
        if client is not None:
            connections = through_client(client, catalog)
        else:
            seconds = settings.call_timeout_seconds
            connections = connect(catalog, settings.endpoints, os.environ, timeout_seconds=seconds, home=settings.home)
        self.connections = with_host_models(connections, host_models) if host_models else connections
        if runner is not None:
            from delegate.child.function import runner_of  # only where it is needed

            runner = runner_of(runner)
            _refuse_unenforceable(settings, runner)
        redactor.add_variables({endpoint.key_env for endpoint in settings.endpoints if endpoint.key_env})
        redactor.add_variables(getattr(runner, "secret_variables", ()))
        self._records = Records(settings.home, keep_days=settings.keep_days, keep_mb=settings.keep_mb)
        self._runs = RunRegistry(settings, catalog, on_question)
        self._servers = _servers_of(settings, self.child_tools)
        running: dict[str, TaskRun] = {}
        self._assemble = lambda: _load_assembly().assemble(
            settings,
            catalog,
            self.connections,
            self._records,
            runner=runner,
            host_tools=self.child_tools,
            servers=self._servers,
            child_delegate_tool=self._child_delegate_tool,
            judge_limits=self._judge_limits,
            running=running,
            on_event=on_event,
            on_approval=on_approval,
            streams_text=stream_text,
        )
        self._own_loop = LoopThread()
        self.background = Background(
            self.call, self.run, self._go_on, running, self._runs, self._records, settings.result_chars
        )

    @property
    def _admission(self) -> "Admission":
        """What admits and executes calls. It is built with the first one."""
        # The first calls may come from several threads at once. All get the same one.
        return vars(self).get("_assembled") or vars(self).setdefault("_assembled", self._assemble())

    @cached_property
    def _judge_limits(self) -> "JudgeLimits | None":
        if self.settings.max_false_pass is None:
            return None
        from delegate.judging.calibration.limits import JudgeLimits  # only where it is needed
        from delegate.judging.versions import judge_version

        return JudgeLimits(self._records, self.settings.max_false_pass, judge_version, self.catalog.models)

    @cached_property
    def batches(self) -> "Batches":
        """Any number of tasks, journaled."""
        from delegate.delegator.batches import Batches  # loaded on first use

        return Batches(self.settings, self._admission, self._runs, self._records, self.aclose)

    @cached_property
    def records(self) -> "TaskRecords":
        """What is on record, and rulings on it."""
        from delegate.delegator.task_records import TaskRecords  # loaded on first use

        return TaskRecords(self._records, self._judge_limits)

    @cached_property
    def merges(self) -> "Merges":
        """Brings the work of tasks into a checkout, verified there."""
        from delegate.delegator.merges import Merges  # loaded on first use

        judging = self._admission.executor.services.judging
        return Merges(self.settings.home, judging, self._records, self._runs.context())

    def tool(
        self,
        dialect: Dialect,
        *,
        variant: Variant = "compact",
        parent: Parent | None = None,
        background: bool = False,
    ) -> JsonObject:
        """Return the tool's definition in a host's dialect, with the current limits of `parent`'s run.

        The text changes as the limits are used up, and a change of its tools invalidates a parent's prompt cache. To
        keep the cache, create the definition once per run: a call beyond a limit is refused at no cost.

        `background` is for hosts that run calls by `background.start_call` where the parent asks for it.
        """
        settings, context = self.settings, self._runs.context(parent)
        tasks_left, deepest = context.ledger.left("children"), context.run.settings.max_depth
        limits = Limits(
            max_steps=settings.max_steps,
            timeout_seconds=settings.timeout_seconds,
            tasks_left=None if tasks_left is None else int(tasks_left),
            usd_left=context.ledger.left("cost_usd") if context.ledger.is_limited("cost_usd") else None,
            depth_left=deepest - context.depth - 1 if deepest > 1 else None,
        )
        return contract.tool(
            dialect,
            name=settings.tool_name,
            variant=variant,
            limits=limits,
            background=background,
            roles={name: role.description for name, role in settings.roles.items()},
            fields=settings.call_fields,
        )

    async def call(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        cancellation: Cancellation | None = None,
    ) -> RunResult:
        """Execute one tool call as the parent's model wrote it.

        A call that can't be executed is returned as `RunResult.error`. Calls whose `parent` has the same `run_id` share
        one ledger.
        """
        from delegate.engine.scope import CallOptions

        try:
            arguments, scratch = contract.take_flag(arguments, "scratch")
            tasks = self._admission.parse(arguments)
            context = self._runs.context(parent, author="model", on_approval=on_approval, on_question=on_question)
            options = CallOptions("model", context, cancellation=cancellation, scratch=scratch)
            return await self._admission.execute(tasks, options, as_consumer(on_event))
        except CallError as error:
            return refusal(error)

    async def answer(
        self,
        arguments: Arguments,
        *,
        parent: Parent | None = None,
        on_event: EventSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> str:
        """Execute one tool call and return its result as text for the parent's model, with the verdict first."""
        return self.render(await self.call(arguments, parent=parent, on_event=on_event, cancellation=cancellation))

    def render(self, result: RunResult) -> str:
        """Return a result as text for the parent's model, as `answer` does."""
        return contract.render(result, limit=self.settings.result_chars)

    think_tool = staticmethod(contract.think_tool)
    """Returns the definition of `think` in a host's dialect, with which a parent checks a thought against its criteria.

    A call and its result can be removed from the conversation, together, after the model's next turn.
    """

    async def think_answer(self, arguments: Arguments) -> str:
        """Execute a call of `think`. Returns a checklist, or the call's error. No model is called."""
        try:
            return think.render_thought(think.parse_think(arguments))
        except CallError as error:
            return self.render(refusal(error))

    def root_run(self, parent: Parent | None = None) -> AbstractContextManager[str]:
        """Put all calls made inside `with delegator.root_run() as run_id: …` in one run, including concurrent calls."""
        return self._runs.root_run(parent)

    async def run(
        self,
        *tasks: Task,
        parent: Parent | None = None,
        scratch: bool = False,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        cancellation: Cancellation | None = None,
    ) -> RunResult:
        """Run any number of tasks written by a person or a program. They can use every field of `Task`.

        With `scratch`, the children can leave each other texts, which are marked as another child's word.

        Raises:
            CallError: The tasks can't be run, such as without a key for a model. None of them was started.
        """
        from delegate.engine.scope import CallOptions

        context = self._runs.context(parent, on_approval=on_approval, on_question=on_question)
        options = CallOptions("person", context, cancellation=cancellation, scratch=scratch)
        return await self._admission.execute(tasks, options, as_consumer(on_event))

    async def resume(
        self,
        handle: str,
        *,
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        cancellation: Cancellation | None = None,
    ) -> RunResult:
        """Go on with a task whose process was lost, in its workspace as it is and within what is left of its limits.

        The child reads in its record what it did so far, and which calls may have been made whose end isn't known. None
        of them is made again by delegate. The work is measured against what there was before the child began.

        Raises:
            CallError: It can't be resumed; the error says why.
        """
        return await self._go_on(handle, on_event=on_event, on_approval=on_approval, cancellation=cancellation)

    async def _go_on(
        self,
        handle: str,
        message: str | None = None,
        criteria: Sequence[Any] | None = None,
        *,
        parent: Parent | None = None,
        author: Author = "person",
        on_event: EventSink | None = None,
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
        cancellation: Cancellation | None = None,
    ) -> RunResult:
        """Continue a task that has ended with a message, or, without one, resume a task whose process was lost."""
        from delegate.engine import resume  # loaded only where it is needed
        from delegate.engine.scope import CallOptions

        services, process = self._admission.executor.services, await self._records.lost_process(handle)
        records, task, run, written_by = await self._on_record(handle, is_lost=message is None)
        # Where nothing was done yet of what continues, this has the start of what it continues.
        goes_back = message is None and records[-1]["workspace"] is None and len(records) > 1
        start = await self._records.start(records[-2 if goes_back else -1]["handle"])
        if message is None:
            if not services.runner_has("reads_record"):
                hint = "resume it without `runner`"
                raise CallError("cannot_resume", "this runner can't go on from a record", field="handle", hint=hint)
            if current_context() is not None:  # whose remaining budget doesn't limit it
                hint = "resume it outside of `root_run`, and not in a child"
                raise CallError("cannot_resume", "a task can't be resumed inside a run", hint=hint)
            resumed = resume.read_record(records, start, process)
        else:
            resumed = resume.continued(records, start or {}, message, criteria)
            if await self._records.read(resumed.handle) is not None:
                hint = f"send the message to {resumed.handle}"
                raise CallError("cannot_message", f"{handle} was continued before", field="handle", hint=hint)
        # Nobody else than a model has read what its checks run.
        author = written_by if message is None or (criteria is None and written_by == "model") else author
        caller = (parent or Parent()).model_copy(update={"run_id": None, "workspace": None})
        context = self._runs.context(caller, author=author, on_approval=on_approval, on_question=on_question)
        context = self._runs.continued(run, context, author, start or {})
        options = CallOptions(author, context, task.task_index, cancellation=cancellation, resumed=resumed)
        return await self._admission.execute((resumed.task,), options, as_consumer(on_event))

    async def _on_record(self, handle: str, *, is_lost: bool) -> "tuple[list[JsonObject], TaskSummary, Run, Author]":
        """A task to go on with: the records of those that it continues, oldest first, and its own; its summary, its
        run, and who wrote it. Raises CallError if it can't be gone on with.
        """
        from delegate.engine.resume import spent  # loaded only where it is needed

        code = "cannot_resume" if is_lost else "cannot_message"
        if (record := await self._records.read(handle)) is None:
            hint = "`delegate runs` lists them"
            raise CallError("unknown_handle", "there is no such record", field="handle", hint=hint)
        if is_lost and (state := record["state"]) != "outcome_unknown":
            why = {"running": "it is running", "ended": "it has ended"}.get(state, "its record is damaged")
            hint = "`delegate message` continues it" if state == "ended" else None
            raise CallError(code, f"{handle} can't be resumed: {why}", field="handle", hint=hint)
        run_id = record["run_id"]
        tasks = {task.handle: task for task in await self._records.tasks(run_id)}
        if (task := tasks.get(handle)) is None or task.depth:
            what = "resumed" if is_lost else "continued"
            raise CallError(code, f"only a parent's own tasks can be {what}", field="handle")
        author = await self._records.author(handle)
        takes_them = is_lost or self._admission.executor.services.runner_has("takes_messages")
        if author not in ("person", "model") or not takes_them:
            raise CallError(code, "the runner of its child takes no messages", field="handle")
        if (run := self._runs.known(run_id)) is None:
            any_lost = any(one.state == "outcome_unknown" for one in tasks.values() if not one.depth)
            counted = [one.handle for one in tasks.values() if any_lost or not one.depth]
            used = spent((await self._records.endings(counted)).values())
            number = await self._records.next_number(run_id)
            run = self._runs.restored(run_id, number=number, spent={**used, "children": len(tasks)})
        records = [record]
        while (earlier := continued_from(records[0]["handle"])) is not None:
            if not (found := await self._records.read(earlier)) or found["run"] is None:
                break
            records.insert(0, found)
        return records, task, run, author

    async def judge(
        self,
        *,
        goal: str,
        acceptance_criteria: Sequence[Any],
        report: str | None = None,
        workspace: str | Path | None = None,
        receipts: Sequence[Receipt | Mapping[str, Any]] | None = None,
        recorded: bool = True,
        author: Literal["model", "person"] = "person",
        status: RunStatus = "completed",
        conversation: str | Sequence[str | Mapping[str, Any]] = "",
        tools: Sequence[Tool] = (),
        worker_model: str | None = None,
        parent: Parent | None = None,
        cancellation: Cancellation | None = None,
    ) -> Verdict:
        """Judge existing work, regardless of who did it.

        Args:
            goal: The goal of the work.
            acceptance_criteria: The criteria, as in `Task`.
            report: The report to judge. None means that there is none: the files and the tool calls are judged alone.
                An empty report is a FAIL with the code `empty_report`.
            workspace: The folder with the work's files. All of them count as artifacts.
            receipts: The tool calls that were made, in order. They need only `tool`, `args`, `status` and `output`. An
                empty list means that no tool was called, None that tool calls weren't recorded. The messages of a
                transcript, in the format of OpenAI's chat completions or of Anthropic, are accepted too.
            recorded: Whether the receipts were recorded where the worker can't write. Those that weren't are listed,
                and prove nothing.
            author: Who wrote the criteria. The setting `commands` applies to the checks of a `model`.
            status: How the work ended. Work that wasn't `completed` is a FAIL with the code `run_failed`.
            conversation: All that was said, as text or as messages. It is evidence for what a user was told or
                confirmed, and proves no other deed.
            tools: The tools of the work. Their descriptions tell what its criteria are about, and `probe` criteria may
                call those that are `read_only`.
            worker_model: The model that did the work. No judge is above its tier. If it is unknown, the setting
                `max_tier` applies.
            parent: The calling parent, if there is one.
            cancellation: Cancels the judging.

        Raises:
            CallError: A criterion, a receipt or the workspace is invalid. The error names the field and how to fix it.
        """
        from delegate.judging import standalone  # loaded only where existing work is judged

        judging = self._admission.executor.services.judging
        context = self._runs.context(parent)
        submission = await standalone.submission_of(
            goal,
            acceptance_criteria,
            report,
            workspace=workspace,
            receipts=receipts,
            recorded=recorded,
            author=author,
            status=status,
            conversation=conversation,
            tools=tools,
            worker=self.catalog.find(worker_model) if worker_model else None,
            ceiling=context.bounds(self.settings).ceiling,
            strict_commands=judging.commands if self.settings.strict_checks else None,
        )
        return await standalone.judge(judging, submission, context, cancellation)

    call_sync = blocking(
        call, "Synchronous version of `call`. It also works inside a running event loop, which it then blocks."
    )
    answer_sync = blocking(answer, "Synchronous version of `answer`.")
    run_sync = blocking(run, "Synchronous version of `run`.")

    def wait_for(self, work: Coroutine[Any, Any, T], *, on_poll: Callable[[], None] | None = None) -> T:
        """Run any coroutine of the delegator from synchronous code, on the delegator's own event loop, and wait for it.

        `on_poll` is called on the waiting thread about twenty times per second. A host can check there whether it was
        stopped, and cancel the call.
        """
        return self._own_loop.run(work, on_poll=on_poll)

    async def aclose(self) -> None:
        """Stop what runs in the background, and close all connections and files. No other calls should be running.

        Connections that were opened on other event loops are closed when those end.
        """
        await self.background.aclose()
        await asyncio.to_thread(self._own_loop.stop)
        if self._servers is not None:
            await self._servers.aclose()
        await self.connections.aclose()
        await self._records.aclose()
        if "batches" in vars(self):  # it was used
            await self.batches.aclose()

    def close(self) -> None:
        """Synchronous version of `aclose`. It also works inside a running event loop, which it then blocks."""
        closer = LoopThread()
        try:
            closer.run(self.aclose())
        finally:
            closer.stop()
        with suppress(RuntimeError):  # outside of an event loop
            self.connections.close_soon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _child_delegate_tool(self) -> Tool:
        definition = self.tool("mcp")

        async def call(arguments: Mapping[str, Any]) -> ToolOutput:
            result = await self.call(arguments)
            return ToolOutput(self.render(result), "error" if result.error else "ok")

        name, description, parameters = definition["name"], definition["description"], definition["inputSchema"]
        return Tool(name, description, parameters, call, effects=frozenset({"delegation"}))


def _servers_of(settings: Settings, tools: Sequence[Tool] | None) -> "McpServers | None":
    """The MCP servers of the settings. Raises ConfigError if a tool has a name that one of theirs could have."""
    server, _, tool = settings.web_search.partition(".")
    if tool and server not in settings.mcp_servers:
        hint = f"add [mcp_servers.{server}], or use off or provider"
        raise ConfigError(f"web_search: there is no MCP server {server[:80]!r}; {hint}")
    if not settings.mcp_servers:
        return None
    from delegate.child.mcp_servers import McpServers  # only where it is needed

    names = (*(tool.name for tool in tools or ()), settings.tool_name)
    return McpServers(settings.mcp_servers, names, web_search=settings.web_search)


def _refuse_unenforceable(settings: Settings, runner: "ChildRunner") -> None:
    """Raise ConfigError for a policy over a runner that wouldn't ask it about its calls."""
    asks = getattr(runner, "uses_job_tools", False) or getattr(runner, "asks_permission", False)
    if settings.policy.restricts and not asks:
        name = getattr(runner, "name", type(runner).__qualname__)
        raise ConfigError(
            f"policy: it can't be enforced on the runner {name}, which calls tools of its own; unset `policy`, or use "
            "the built-in child, or a runner with `uses_job_tools = True`, which calls only `job.tools`"
        )


def _load_assembly() -> ModuleType:
    """The module that builds what executes calls. It takes as long to import as all else, so it isn't at the top."""
    from delegate.engine import assembly

    return assembly


def engine_of(settings: Settings, concurrency: int) -> "Backend":
    """Return a backend with its own `Delegator`, for the worker processes of a batch engine."""
    return Delegator(settings).batches.backend(concurrency)
