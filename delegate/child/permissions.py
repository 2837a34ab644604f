"""Asks the policy before each call of a child that may change something, and a person where the policy says so.

    call ──▶ decide ──▶ allow ──────────────────────────▶ tool
                   ├──▶ ask ──▶ person ──▶ yes, to exactly this call ──▶ tool
                   │               └──▶ no, silence, an error, no person ─────▶ denied
                   └──▶ deny ───────────────────────────────────────────────▶ denied

What is asked, hashed and called is one copy of the arguments, so that nothing can change them in between. The files of
the workspace that a call runs are hashed with it, and again after the answer.
"""

import asyncio
import copy
import inspect
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from delegate._util.fencing import one_line
from delegate._util.redaction import logger
from delegate._util.threads import run_in_thread
from delegate.budget.ledger import Ledger
from delegate.child.job import Waiting
from delegate.child.steps import Steps
from delegate.policy.approvals import ApprovalAnswer, ApprovalRequest, OnApproval, digest_of, files_of, shown
from delegate.policy.decide import Action, BudgetLeft, Decision, decide
from delegate.policy.rules import Policy
from delegate.records.recorder import args_digest
from delegate.sandbox.commands.commands import Approve
from delegate.types.errors import ToolDenied
from delegate.types.events import ApprovalAnswered, ApprovalAsked, ApprovalOutcome, Notify, read_only
from delegate.types.ports import Tool, ToolOutput

EXPECTED = "expected_outcome"
"""The argument in which a child says what is to come of a call. The tool doesn't get it."""
SHELL = "run_shell"
CHECK = "shell criterion"
"""What a person is told is called, where a check is to run without a sandbox."""
RECORDED_CHARS = 4_000
"""How much of each text in the arguments the event of a request has. The receipt of the call has all of it."""
_EXPECTED_SPEC = {"type": "string", "description": "What is to come of this call, in one sentence."}

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom a child may ask, about which task, and how it waits for the answer."""

    on_approval: OnApproval | None
    run_id: str
    handle: str
    task_index: int
    goal: str
    workspace: str
    notify: Notify
    waiting: Waiting
    """Its time isn't the child's own."""
    waiting_for_check: Waiting
    """As long as a check waits, after the child has ended."""
    while_waiting: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    """Lets other children of the run go on."""


class Permissions:
    """What one child may do. Keeps the approvals that it has."""

    def __init__(
        self,
        policy: Policy,
        asker: Asker,
        *,
        ledger: Ledger | None = None,
        seconds_left: Callable[[], float | None] = lambda: None,
        steps: Steps | None = None,
    ) -> None:
        """`seconds_left` is the time until the child's deadline. `steps` are those that the child declares."""
        self._policy, self._asker, self._steps = policy, asker, steps
        self._ledger, self._seconds_left = ledger, seconds_left
        self._asking = asyncio.Lock()
        self._asked = 0
        self._again: dict[str, bool] = {}
        """By digest: what a person said about the same call made again in this task."""
        self._approved_commands = Counter[str]()
        """The commands in calls that a person approved, and that run now."""

    def guarded(self, tool: Tool) -> Tool:
        """The tool, asking for permission before each call that may change something."""
        if tool.read_only or (tool.effects is not None and not tool.effects and not tool.irreversible):
            return tool
        if self._policy.no_expected_outcome != "allow" and EXPECTED not in tool.parameters.get("properties", {}):
            properties = {**tool.parameters.get("properties", {}), EXPECTED: _EXPECTED_SPEC}
            schema = {"type": "object", **tool.parameters, "properties": properties}
            return replace(tool, parameters=schema, call=partial(self._call, tool, takes_expected=True))
        return replace(tool, call=partial(self._call, tool, takes_expected=False))

    async def _call(self, tool: Tool, values: Mapping[str, Any], *, takes_expected: bool) -> str | ToolOutput:
        arguments = copy.deepcopy(dict(values))
        value = arguments.pop(EXPECTED, "") if takes_expected else arguments.get(EXPECTED, "")
        expected = value if isinstance(value, str) else ""
        step = self._steps.open if self._steps is not None else None
        seconds = arguments.get("timeout_seconds")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds):
            seconds = 0.0
        action = Action(
            tool.name,
            arguments,
            effects=tool.effects,
            irreversible=tool.irreversible,
            cost_usd=tool.cost_usd,
            seconds=float(seconds),
            expected=expected or (step.expected if step else ""),
            in_scope=self._steps is None or (step is not None and tool.name in step.tools),
            workspace=self._asker.workspace,
        )
        budget = BudgetLeft(self._ledger.left("cost_usd") if self._ledger else None, self._seconds_left())
        decision = decide(action, self._policy, budget)
        if decision.permission == "allow":
            return await tool.call(arguments)
        if decision.permission == "deny":
            raise ToolDenied(f"not called ({decision.code}): {decision.reason}")
        if problem := await self._ask(action, decision, receipt_args=values):
            raise ToolDenied(f"not called ({decision.code}): {decision.reason}; {problem}")
        commands = [str(arguments.get("command"))] if tool.name == SHELL else []
        self._approved_commands.update(commands)
        try:
            return await tool.call(arguments)
        finally:
            self._approved_commands.subtract(commands)

    def command_approval(self) -> Approve | None:
        """Asks about a command of the child that nothing would confine. None without `on_approval`."""

        async def approve(command: str) -> str | None:
            if self._approved_commands[command] > 0:
                return None
            return await self._ask(Action(SHELL, {"command": command}, workspace=self._asker.workspace), _NO_SANDBOX)

        return approve if self._asker.on_approval is not None else None

    def check_approval(self) -> Approve | None:
        """Asks about a criterion's command that nothing would confine. None without `on_approval`.

        One verdict may need several runs of a command, in the workspace and in a copy. It asks once.
        """
        answers: dict[str, str | None] = {}
        asker = replace(self._asker, waiting=self._asker.waiting_for_check, while_waiting=nullcontext)

        async def approve(command: str) -> str | None:
            action = Action(CHECK, {"command": command}, workspace=asker.workspace)
            files = await run_in_thread(partial(files_of, action))
            digest = digest_of(CHECK, action.arguments, asker.workspace, files)
            if digest not in answers:
                answers[digest] = await self._ask(action, _NO_SANDBOX, asker=asker)
            return answers[digest]

        return approve if self._asker.on_approval is not None else None

    async def _ask(
        self,
        action: Action,
        decision: Decision,
        *,
        receipt_args: Mapping[str, Any] | None = None,
        asker: Asker | None = None,
    ) -> str | None:
        """Ask a person. Why it isn't approved, or None if it is. Asks of one child wait for each other."""
        assert decision.code is not None
        async with self._asking:
            files = await run_in_thread(partial(files_of, action))
            digest = digest_of(action.tool, action.arguments, self._asker.workspace, files)
            if (is_approved := self._again.get(digest)) is not None:
                return None if is_approved else "it was refused before"
            if self._asker.on_approval is None:
                return "it needs an approval, and nobody is there to give one"
            if self._asked >= self._policy.max_requests:
                return f"it needs an approval, and this task has asked {self._asked} times, which is its limit"
            self._asked += 1
            request = ApprovalRequest(
                tool=action.tool,
                arguments=read_only(dict(action.arguments), chars=None),
                sha256=digest,
                workspace=self._asker.workspace,
                code=decision.code,
                reason=decision.reason,
                expected=action.expected,
                run_id=self._asker.run_id,
                handle=self._asker.handle,
                task_index=self._asker.task_index,
                goal=self._asker.goal,
                answer_seconds=self._policy.answer_seconds,
                files=MappingProxyType(files),
            )
            args_sha256 = args_digest(receipt_args or action.arguments)
            problem = await self._answered(request, args_sha256, asker or self._asker)
            if problem is None and await run_in_thread(partial(files_of, action)) != files:
                self._again.pop(digest, None)
                return "a file that it runs has changed since it was shown; it has to be approved again"
            return problem

    async def _answered(self, request: ApprovalRequest, args_sha256: str, asker: Asker) -> str | None:
        start = time.monotonic()
        asker.notify(
            ApprovalAsked,
            n=self._asked,
            tool=request.tool,
            text=shown(request.command) if request.command is not None else request.tool,
            arguments=_thawed(read_only(_thawed(request.arguments), RECORDED_CHARS)),
            args_sha256=args_sha256,
            sha256=request.sha256,
            workspace=request.workspace,
            code=request.code,
            reason=request.reason,
            expected=request.expected,
        )
        answer = ApprovalAnswer(approved=False)
        outcome: ApprovalOutcome = "cancelled"
        try:
            with asker.waiting("approval"):
                async with asker.while_waiting():
                    assert self._asker.on_approval is not None
                    answer, outcome = await answer_to(self._asker.on_approval, request)
        finally:
            asker.notify(
                ApprovalAnswered,
                n=self._asked,
                tool=request.tool,
                sha256=request.sha256,
                args_sha256=args_sha256,
                approved=answer.approved,
                outcome=outcome,
                by=one_line(answer.by, 200),
                same_again=answer.same_again,
                note=one_line(answer.note, 1_000),
                seconds=round(time.monotonic() - start, 6),
            )
        if answer.approved and answer.same_again:
            self._again[request.sha256] = True
        if outcome == "refused":
            self._again[request.sha256] = False
        note = f": {one_line(answer.note, 1_000)}" if answer.note else ""
        return None if answer.approved else f"{WHY_NOT[outcome]}{note}"


async def answer_to(ask: OnApproval, request: ApprovalRequest) -> tuple[ApprovalAnswer, ApprovalOutcome]:
    """A person's answer, and what came of it. Only cancellation of the caller is raised."""
    no = ApprovalAnswer(approved=False)
    try:
        async with asyncio.timeout(request.answer_seconds):
            answer: Any = ask(request)
            answer = await answer if inspect.isawaitable(answer) else answer
    except TimeoutError:
        return no, "no_answer"
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return no, "no_answer"
    except (Exception, SystemExit):
        _log.exception("nobody could be asked for an approval")
        return no, "failed"
    if answer is None:
        return no, "failed"
    if isinstance(answer, bool):
        answer = ApprovalAnswer(approved=answer)
    if not isinstance(answer, ApprovalAnswer) or answer.approved not in (True, False):
        _log.warning("an approval was answered by a %s, which is no answer", type(answer).__name__)
        return no, "failed"
    if answer.sha256 is not None and answer.sha256 != request.sha256:
        return replace(answer, approved=False), "other_call"
    return answer, "approved" if answer.approved else "refused"


_NO_SANDBOX = Decision("ask", "no_sandbox", "there is no sandbox here that confines the command")
WHY_NOT: Mapping[str, str] = {
    "refused": "a person refused it",
    "no_answer": "it needs an approval, and nobody answered",
    "failed": "it needs an approval, and nobody could be asked",
    "other_call": "what was approved is another call",
}


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _thawed(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return [_thawed(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value
