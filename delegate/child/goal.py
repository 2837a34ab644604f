"""Runs the built-in child in goal mode: it can't just stop, but claims to be done, and goes on if the claim is refused.

    model ──▶ tools ──▶ claim_complete ──▶ full verdict ──▶ PASS: verified
      ▲                                         └──▶ FAIL: what failed, as the tool's reply ──▶ model
      └──────────────────────────────────────────────────────────────────────────────────────┘
    model ──▶ abort_with_report: aborted

It is a control loop whose state is the latest claim and whose actions are the model's turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from delegate._util.fencing import one_line
from delegate.child.conversation import Conversation
from delegate.child.goal_tools import ABORT, CLAIM, GOAL_TOOLS
from delegate.child.job import ClaimReply, Claims, Job, MadeClaim
from delegate.child.replies import FAILURES, MAX_REPLIES_PER_TURN, Recovery, failed, finish
from delegate.child.tool_calls import END_AT, ToolCalls
from delegate.control.loop import LoopLimits, LoopResult, Stop, run_loop
from delegate.types import ChildRun, ErrorDetail, GoalEnd
from delegate.types.ports import ChatReply, ToolCall, ToolOutput

MAX_REPEATED_CLAIMS = 2
"""How many times in a row a claim may repeat the one before, with nothing changed."""
MAX_IDLE_TURNS = 3
"""How many turns in a row may call no tool. One more ends the run."""
_NOT_OVER = (
    f"[A message without a tool call ends nothing. If every criterion holds, call {CLAIM} with your report as its "
    f"rationale. If the task can't be done, call {ABORT}. Else go on.]"
)
_ONE_CLAIM = f"not judged: a turn can have one {CLAIM}"


async def run(job: Job, claims: Claims) -> ChildRun:
    """Make model calls until a claim is verified, the child gives up, or a limit ends it."""
    child = _GoalChild(job, claims)
    limits = LoopLimits(
        max_steps=job.max_steps, max_no_progress_steps=MAX_REPEATED_CLAIMS, max_repeated_actions=MAX_IDLE_TURNS
    )

    def idleness(action: _Turn | _Notice) -> str | None:
        return "idle" if isinstance(action, _Notice) and action.idle else None

    # Errors aren't recorded here and gone past: what a provider or the ledger raises is how a child ends.
    loop = await run_loop(child, limits, state_digest=child.claimed_state, action_digest=idleness, raises=(Exception,))
    return child.ended(loop)


@dataclass(slots=True)
class _Turn:
    reply: ChatReply
    rationale: str | None = None
    """That of its claim, if it has one."""
    claim_at: int = 0
    """The position of the claim among the calls."""
    outputs: list[ToolOutput] = field(default_factory=list[ToolOutput])


@dataclass(frozen=True, slots=True)
class _Notice:
    """A turn of the model that calls no tool, and what it is told."""

    reply: ChatReply
    text: str
    idle: bool
    """Whether it only stopped, where it should have claimed or given up."""


class _GoalChild:
    def __init__(self, job: Job, claims: Claims) -> None:
        self._job, self._claims = job, claims
        self._conversation, self._recovery = Conversation(job), Recovery()
        self._tools = ToolCalls(job, self._conversation.own_tools)
        self._turn: _Turn | None = None
        """The latest turn with tool calls, until the conversation has its results."""
        self._rationale = ""
        self._reply: ClaimReply | None = None
        self._ended: ChildRun | None = None

    async def observe(self) -> MadeClaim | None:
        """The claim of the latest turn, whose other tools have all ended."""
        if self._turn is None or self._turn.rationale is None:
            return None
        self._rationale = self._turn.rationale
        return await self._claims.make(self._turn.rationale)

    async def validate(self, state: MadeClaim | None) -> bool:
        if state is None or self._turn is None:
            return False
        with self._job.waiting():
            self._reply = reply = await self._claims.judge(state)
        self._turn.outputs[self._turn.claim_at] = ToolOutput(reply.text, "ok" if reply.verified else "error")
        return reply.verified

    async def decide(self, state: MadeClaim | None) -> _Turn | _Notice | Stop:
        job = self._job
        if self._reply is not None and self._reply.out_of_budget is not None:
            run = job.recorder.finish("budget_exceeded", output=self._rationale, error=self._reply.out_of_budget)
            return self._stopped(run, "budget_limited")
        if self._claims.left <= 0:
            return self._stopped(self._without_claims(), "budget_limited")
        if self._tools.in_circles:
            message = f"the child made the same tool call {END_AT} times, with one result"
            return self._stopped(failed(job, "no_progress", message), "no_progress")
        if self._turn is not None:
            self._conversation.add_results(self._turn.reply, self._turn.outputs)
            self._turn = None
        if job.recorder.steps >= job.max_steps:  # summaries of the conversation count too
            return Stop("max_steps", "budget_limited")
        await self._conversation.hear()
        reply = await self._conversation.ask()
        if (notice := self._recovery.notice(reply, self._conversation)) is not None:
            return _Notice(reply, notice, idle=False)
        if reply.stop in FAILURES or (not reply.tool_calls and reply.stop not in ("end", "tool_calls")):
            return self._stopped(finish(job, reply))
        if not reply.tool_calls:
            return _Notice(reply, _NOT_OVER, idle=True)
        if (count := len(reply.tool_calls)) > MAX_REPLIES_PER_TURN:
            message = f"the model called {count:,} tools in one turn; at most {MAX_REPLIES_PER_TURN} are allowed"
            return self._stopped(failed(job, "too_many_tool_calls", message))
        return self._aborted(reply) or _Turn(reply)

    async def act(self, action: _Turn | _Notice) -> None:
        """Call the tools of a turn. A claim among them waits until the others have ended."""
        if isinstance(action, _Notice):
            self._conversation.add_notice(action.reply, action.text)
            return
        self._turn, calls = action, action.reply.tool_calls
        others = [call for call in calls if call.name not in GOAL_TOOLS]
        outputs = iter(await self._tools.run(others) if others else ())
        for n, call in enumerate(calls):
            action.outputs.append(self._goal_tool(action, n, call) if call.name in GOAL_TOOLS else next(outputs))

    def claimed_state(self, claim: MadeClaim | None) -> str | None:
        """What tells whether a claim repeats the one before; None where that says nothing."""
        return claim.state if claim is not None and self._reply is not None and self._reply.examined else None

    def ended(self, loop: LoopResult) -> ChildRun:
        job = self._job
        if loop.end == "verified":
            return job.recorder.finish("completed", output=self._rationale)
        if self._ended is not None:
            return self._ended
        if loop.end == "no_progress":
            return failed(job, "no_progress", f"the child only claimed or stopped, again and again: {loop.reason}")
        return failed(job, "max_steps", f"no claim was verified in {job.max_steps} turns", "max_steps")

    def _goal_tool(self, turn: _Turn, n: int, call: ToolCall) -> ToolOutput:
        """Take a claim; what is wrong with a call otherwise."""
        name = "reason" if call.name == ABORT else "rationale"
        text = _text(call.arguments, name)
        if not text:
            return ToolOutput(f"not done: `{name}` is missing; send it as a text", "error")
        if turn.rationale is not None:
            return ToolOutput(_ONE_CLAIM, "denied")
        turn.rationale, turn.claim_at = text, n
        return ToolOutput("")  # replaced when the claim is judged

    def _aborted(self, reply: ChatReply) -> Stop | None:
        """How it ends if the child gives up. An honest end counts before a claim in the same turn."""
        for call in reply.tool_calls:
            if call.name == ABORT and (reason := _text(call.arguments, "reason")):
                learned = _text(call.arguments, "learned")
                report = f"{reason}\n\nLearned: {learned}" if learned else reason
                error = ErrorDetail(code="aborted", message=one_line(reason, 400))
                return self._stopped(self._job.recorder.finish("failed", output=report, error=error), "aborted")
        return None

    def _without_claims(self) -> ChildRun:
        """The run of a child that has used up its claims, the last of which has the verdict."""
        if self._reply is not None:
            return self._job.recorder.finish("completed", output=self._rationale)
        message = f"all {self._claims.max_claims} claims were made before its process was lost"
        return failed(self._job, "budget_exceeded", message, "budget_exceeded")

    def _stopped(self, run: ChildRun, end: GoalEnd = "aborted") -> Stop:
        self._ended = run
        return Stop(run.status, end)


def _text(arguments: Mapping[str, Any] | None, name: str) -> str:
    value = (arguments or {}).get(name)
    return value.strip() if isinstance(value, str) else ""
