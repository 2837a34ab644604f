"""Validates every task of a call and selects its model, before anything is spent on one of them."""

import math
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from functools import partial
from itertools import cycle, islice
from typing import cast

from delegate._util.cancellation import Cancellation, run_to_completion
from delegate._util.redaction import logger
from delegate.budget.runs import RunContext
from delegate.child.goal_tools import GOAL_TOOLS, STEP_TOOLS
from delegate.child.toolbox import toolbox_definitions
from delegate.contract import Arguments, parse_call
from delegate.contract.amounts import counted
from delegate.contract.problems import unknown_name
from delegate.engine.consumers import Consumer, settle
from delegate.engine.executor import Executor
from delegate.engine.needs import check_together, of_task
from delegate.engine.roles import in_role, role_of
from delegate.engine.scope import CallOptions
from delegate.engine.working_folder import in_workspace, located
from delegate.judging.checks.json_schema import check_schema
from delegate.judging.validate import refuse_undecidable
from delegate.models.catalog import Catalog, Model
from delegate.models.connections import Connection, Connections
from delegate.models.routing import ChildRequest, choose_child, other_children
from delegate.policy.rules import Rule
from delegate.policy.settings import Settings
from delegate.telemetry import operations
from delegate.types import CONDITIONS, Author, RunResult, Task
from delegate.types.codes import CallErrorCode
from delegate.types.errors import BudgetExceeded, CallError, ConfigError
from delegate.types.events import Event
from delegate.types.ports import SEARCH_WEB
from delegate.types.request import not_tasks

_log = logger(__name__)
_OWN = {*(one.name for one in toolbox_definitions()), "think", SEARCH_WEB, *GOAL_TOOLS, *STEP_TOOLS}
"""The tools of delegate's own that a child may have, also where the settings don't offer them."""


def _check_rule(rule: Rule, field: str, known: Collection[str]) -> None:
    """Raise ConfigError if the rule has the name of a tool misspelled. Log a rule that applies to no call."""
    # Patterns match other names, and tools of MCP servers aren't known before these run.
    unknown = [name for name in rule.tools if name not in known and not {*"*?[."} & {*name}]
    message = f"{field}.tools: there is no tool {', '.join(map(repr, unknown))}"
    others = {*known} - {*rule.tools}
    for name in unknown:
        if similar := get_close_matches(name, others, 1, 0.85):
            raise ConfigError(f"{message}; did you mean `{similar[0]}`?")
    if len(unknown) == len(rule.tools):
        _log.warning("%s, so the rule applies to no call", message)


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits the calls of one delegator: all tasks of a call or, where one can't be run, none."""

    settings: Settings
    catalog: Catalog
    connections: Connections
    executor: Executor
    consumer: Consumer[Event] | None = None
    """The operator's consumer, which receives the events of every call."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a rule on a tool that is misspelled, and for a result's schema that is none.

        Other rules on tools that aren't there get a warning: several programs may share the settings.
        """
        services = self.executor.services
        for tool in services.host_tools or ():
            schema = tool.succeeded
            if schema is not None and not callable(schema) and (fault := check_schema(schema)):
                raise ConfigError(f"the tool {tool.name}: succeeded is not a JSON Schema: {fault}")
        policies = {f"roles.{name}.policy": role.policy for name, role in self.settings.roles.items()}
        known = {*services.known_tools(), *_OWN}
        for field, policy in {"policy": self.settings.policy, **policies}.items():
            for n, rule in enumerate(policy.rules if policy and services.uses_job_tools else ()):
                _check_rule(rule, f"{field}.rules[{n}]", known)

    def parse(self, arguments: Arguments) -> tuple[Task, ...]:
        """The tasks of a call as the parent's model wrote it. Raises CallError if they can't be read."""
        return parse_call(arguments, check_schema=check_schema, has_roles=bool(self.settings.roles))

    async def execute(
        self,
        tasks: Sequence[Task],
        options: CallOptions,
        consumer: Consumer[Event] | None = None,
    ) -> RunResult:
        """Run all tasks. `consumer` receives the events.

        Raises:
            CallError: A task can't be run. None of them was started.
        """
        context, services = options.context, self.executor.services
        tasks, connections = await self.admitted(tasks, options)
        # The operator's consumer receives only the events of top-level tasks.
        consumers = tuple(filter(None, (self.consumer if context.depth == 0 else None, consumer)))
        servers = services.servers if services.uses_job_tools else None
        name, run = self.settings.tool_name, context.run
        async with (
            servers.of_run(run, tasks, context.tools) if servers else nullcontext(()) as server_tools,
            context.permit.released() if context.permit else nullcontext(),
        ):
            if options.resumed is None or not options.resumed.process:  # it was counted when it began
                _reserve_children(sum(map(len, connections)), options.author, context)
            with (
                operations.workflow(name, run_id=run.id, tasks=len(tasks), depth=context.depth),
                (options.cancellation or Cancellation()).part() as own,
            ):
                work = self.executor.run(
                    tasks, connections, options, own, consumers=consumers, server_tools=server_tools
                )
                result = await run_to_completion(work, own)
        if options.is_run:
            await settle(consumers)
        return result

    async def admitted(
        self, tasks: Sequence[Task], options: CallOptions
    ) -> tuple[Sequence[Task], list[list[Connection | None]]]:
        """The tasks as they are run, and the connections of the attempts at each of them. Raises CallError."""
        author, context, resumed = options.author, options.context, options.resumed
        services = self.executor.services
        if context.depth >= (deepest := context.run.settings.max_depth):
            message = f"a child at depth {context.depth} can't delegate: the setting max_depth (DELEGATE_MAX_DEPTH)"
            raise CallError("too_deep", f"{message} of its run is {deepest}", hint="do the work yourself")
        if not tasks:
            raise CallError("no_task", "there is no task to run", field="tasks", hint="write run(Task(goal=…))")
        if wrong := [task for task in tasks if not isinstance(cast("object", task), Task)]:
            raise not_tasks(wrong[0])
        if services.host_tools is None:
            await services.commands.probe()  # decides whether the toolbox has `run_shell`
        if author == "model" and context.workspace is not None:
            tasks = [in_workspace(task, context.workspace) for task in tasks]
        tasks = self.in_roles(list(map(located, tasks)), context, are_resumed=resumed is not None)
        if resumed is None:
            check_together(tasks, scratch=options.scratch)
        if options.scratch:
            why = "only children that call nothing but delegate's tools can share a scratch folder"
            able, hint = services.uses_job_tools, "leave out `scratch`"
            self._refuse_unable("no_scratch", "scratch", ("scratch",), able=able, why=why, hint=hint)
        models = self._select_models(tasks, context, alone=resumed is not None)
        await self.refuse_vacuous(tasks, author)
        if author == "model" and self.settings.ask_above_usd is not None:
            from delegate.engine.expensive import refuse_unapproved  # loaded only where it is asked for

            each = list(zip(tasks, models, strict=True))
            await refuse_unapproved(each, context, services, self.settings.ask_above_usd)
        return tasks, [
            [await self._connect(model, task, context) if model else None for model in of_task]
            for of_task, task in zip(models, tasks, strict=True)
        ]

    def admit(self, task: Task, context: RunContext) -> Model | None:
        """Return the model selected for the task, or None if the runner brings its own.

        Raises:
            CallError: The task can't be run.
        """
        services = self.executor.services
        if task.tools and services.knows_tools:  # a runner's own aren't known
            self._refuse_unknown_tools(task.tools, "tools")
        if task.mode == "goal":
            hint = "use mode `once`, or `delegate.control.run_shots`, which runs the task again until it is verified"
            why, able = "only the built-in child can do goal mode", services.runner_has("makes_claims")
            self._refuse_unable("no_goal_mode", "mode", GOAL_TOOLS, able=able, why=why, hint=hint)
        if task.steps:
            why = "only a child that calls nothing but delegate's tools can be held to steps"
            hint = "leave out `steps`, or use the built-in child"
            self._refuse_unable("no_steps", "steps", STEP_TOOLS, able=services.uses_job_tools, why=why, hint=hint)
        tools = services.probe_tools(task, context)
        child_tools = partial(self._tools_of_child, task) if services.uses_job_tools else None
        refuse_undecidable(task, tools=tools, child_tools=child_tools)
        if not services.runner.needs_model:
            return None
        try:
            return choose_child(self.catalog, self._child_request(task, context))
        except CallError as error:
            if task.model is None and self.settings.model is not None:
                fix = "change the setting `model` (DELEGATE_MODEL)"
                bounded = error.code in ("tier_above_parent", "tier_below_floor")
                hint = f"{fix}, max_tier or min_tier" if bounded else f"{fix}: {error.hint}"
                raise CallError(error.code, error.message, field=error.field, hint=hint) from None
            raise

    def in_roles(self, tasks: Sequence[Task], context: RunContext, *, are_resumed: bool = False) -> list[Task]:
        """The tasks in their roles. The record of one that is resumed has what its role adds.

        Raises:
            CallError: There is no such role, or the runner wouldn't keep to it.
        """

        def callable_model(name: str) -> Model | None:
            model = self.catalog.find(name)
            return model if model and (model.provider, model.endpoint) in self.connections.available else None

        done, services = list[Task](), self.executor.services
        for n, task in enumerate(tasks):
            with of_task(n, tasks):
                role = role_of(task, self.settings)
                if role and role.limits_tools and not services.uses_job_tools:
                    message = f"the role {task.role} narrows the child's tools, and its runner has tools of its own"
                    raise CallError("no_role", message, field="role", hint="leave out `role`")
                for field in ("tools", "without_tools") if role and not are_resumed else ():
                    names = [name for name in getattr(role, field) or () if "." not in name and name not in _OWN]
                    self._refuse_unknown_tools(names, f"roles.{task.role}.{field}")
            if role is not None and not are_resumed:
                task = in_role(task, role, context.bounds(self.settings), services.known_tools, callable_model)
            done.append(task)
        return done

    def _refuse_unknown_tools(self, asked: Sequence[str], field: str) -> None:
        """Raise CallError if one of the tools doesn't exist.

        A tool that exists may still not be offered, because the parent lacks it or the settings forbid it.
        """
        names = self.executor.services.known_tools(asked)
        for n, name in enumerate(asked):
            if name not in names:
                raise unknown_name("unknown_tool", name, names, f"{field}[{n}]")

    def _tools_of_child(self, task: Task, asked: Sequence[str]) -> Collection[str]:
        """The tools that a child may have receipts of. Any of `asked` may be a server's."""
        known = self.executor.services.known_tools((*asked, *(task.tools or ())))
        own = [name for name in dict.fromkeys(known) if task.tools is None or name in task.tools]
        return (*own, *sorted(STEP_TOOLS)) if task.steps else own

    async def refuse_vacuous(self, tasks: Sequence[Task], author: Author) -> None:
        """Raise CallError if a criterion can't fail, as far as that can be found out by trying. Commands are tried only
        with `strict_checks`.
        """
        strict = self.settings.strict_checks
        for n, task in enumerate(tasks):
            if not strict and not any(isinstance(criterion, CONDITIONS) for criterion in task.acceptance_criteria):
                continue
            from delegate.judging.checks import can_fail  # loaded only where there is something to try

            folder = task.workspace.path if task.workspace is not None else None
            with of_task(n, tasks):
                commands = self.executor.services.commands if strict else None
                await can_fail.refuse_vacuous(task, commands, author=author, folder=folder)

    def _refuse_unable(
        self, code: CallErrorCode, field: str, own_tools: Collection[str], *, able: bool, why: str, hint: str
    ) -> None:
        """Raise CallError if the runner isn't `able` to do what is asked for in `field`, or if a tool of the host has a
        name of those that it needs.
        """
        if not able:
            raise CallError(code, why, field=field, hint=hint)
        if taken := [tool.name for tool in self.executor.services.host_tools or () if tool.name in own_tools]:
            message = f"`{field}` needs a tool {taken[0]} of its own, and a tool of the host has the same name"
            raise CallError(code, message, field=field, hint=f"rename the host's tool, or leave out `{field}`")

    def _select_models(self, tasks: Sequence[Task], context: RunContext, *, alone: bool) -> list[list[Model | None]]:
        """The models of each task: one for each attempt, unless there is only one (`alone`)."""
        models: list[list[Model | None]] = []
        for n, task in enumerate(tasks):
            with of_task(n, tasks):
                first = self.admit(task, context)
                models.append([first] if alone else self.models_of_attempts(task, first, context))
        return models

    def models_of_attempts(self, task: Task, first: Model | None, context: RunContext) -> list[Model | None]:
        """The models of a task's attempts: the one selected for it and others of its tier, in turn."""
        if first is None or task.attempts == 1:
            return [first] * task.attempts
        in_turn = cycle((first, *other_children(self.catalog, self._child_request(task, context))))
        return list(islice(in_turn, task.attempts))

    def _child_request(self, task: Task, context: RunContext) -> ChildRequest:
        return ChildRequest(
            tier=task.tier,
            model=task.model or self.settings.model,
            usual_tier=self.settings.tier,
            bounds=context.bounds(self.settings),
            available=self.connections.available,
            on=date.today(),
            priced_only=task.max_cost_usd is not None or context.ledger.is_limited("cost_usd"),
        )

    async def _connect(self, model: Model, task: Task, context: RunContext) -> Connection:
        others = () if task.attempts > 1 else other_children(self.catalog, self._child_request(task, context))
        return replace(await self.connections.open(model), others=others)


def _reserve_children(count: int, author: Author, context: RunContext) -> None:
    """Count the children requested by a model. If the run has too few left for the whole call, none is counted."""
    try:
        context.refuse_if_over()
        if author == "model":
            context.ledger.reserve({"children": count}).settle({"children": count})
    except BudgetExceeded as error:
        advice = f"send at most {error.left:g}" if error.limit == "children" and error.left else "do the work yourself"
        if error.frees_in is not None:
            minutes = counted(max(1, math.ceil(error.frees_in / 60)), "minute")
            advice += f", or call again in {minutes}"
        raise CallError("budget_exceeded", str(error), hint=f"nothing was run; {advice}") from None
