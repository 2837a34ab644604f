"""Runs the built-in child in goal mode: it can't just stop, but claims to be done, and goes on if the claim is refused.

model ──▶ tools ──▶ claim_complete ──▶ full verdict ──▶ PASS: verified
  ▲                                         └──▶ FAIL: what failed, as the tool's reply ──▶ model
  └──────────────────────────────────────────────────────────────────────────────────────┘
model ──▶ abort_with_report: aborted
"""

from collections.abc import Mapping
from typing import Any

from delegate._util.fencing import one_line
from delegate.child.conversation import Conversation
from delegate.child.goal_tools import ABORT, CLAIM, GOAL_TOOLS
from delegate.child.job import ClaimReply, Claims, Job, failed
from delegate.child.replies import FAILURES, MAX_REPLIES_PER_TURN, Recovery, finish
from delegate.child.tool_calls import END_AT, ToolCalls
from delegate.types import ChildRun, ErrorDetail
from delegate.types.ports import ChatReply, ToolOutput

MAX_REPEATED_CLAIMS = 2
"""How many times in a row a claim may repeat the one before, with nothing changed."""
MAX_IDLE_TURNS = 3
"""How many turns in a row may call no tool. One more ends the run."""
_NOT_OVER = (
    f"[A message without a tool call ends nothing. If every criterion holds, call {CLAIM} with your report as its "
    f"rationale. If the task can't be done, call {ABORT}. Else go on.]"
)


async def run(job: Job, claims: Claims) -> ChildRun:
    """Make model calls until a claim is verified, the child gives up, or a limit ends it."""
    child = _GoalChild(job, claims)
    for _ in range(job.max_steps):
        if (ended := child.out_of_limits() or await child.turn()) is not None:
            return ended
    return child.out_of_steps()


class _GoalChild:
    def __init__(self, job: Job, claims: Claims) -> None:
        self._job, self._claims = job, claims
        self._conversation, self._recovery = Conversation(job), Recovery()
        self._tools = ToolCalls(job, self._conversation.own_tools)
        self._rationale = ""
        self._reply: ClaimReply | None = None
        """What came of the latest claim."""
        self._repeated = self._idle = 0
        """How many claims in a row repeated the one before, and how many turns in a row called no tool."""

    def out_of_limits(self) -> ChildRun | None:
        """How it ends if there is no room for another turn."""
        job, reply = self._job, self._reply
        if reply is not None and reply.out_of_budget is not None:
            return job.recorder.finish("budget_exceeded", report=self._rationale, error=reply.out_of_budget)
        if self._claims.left <= 0:
            return self._without_claims()
        if self._tools.in_circles:
            return failed(job, "no_progress", f"the child made the same tool call {END_AT} times, with one result")
        # Summaries of the conversation count too.
        return self.out_of_steps() if job.recorder.steps >= job.max_steps else None

    def out_of_steps(self) -> ChildRun:
        return failed(self._job, "max_steps", f"no claim was verified in {self._job.max_steps} turns")

    async def turn(self) -> ChildRun | None:
        """Ask the model, and call its tools. Returns how the child ends, if it does."""
        job, conversation = self._job, self._conversation
        await conversation.hear()
        reply = await conversation.ask()
        if (notice := self._recovery.notice(reply, conversation)) is not None:
            self._idle = 0
            conversation.add_notice(reply, notice)
            return None
        if reply.stop in FAILURES or (not reply.tool_calls and reply.stop not in ("end", "tool_calls")):
            return finish(job, reply)
        if not reply.tool_calls:
            self._idle += 1
            if self._idle > MAX_IDLE_TURNS:
                return self._stuck(f"the same action was chosen {self._idle} times in a row")
            conversation.add_notice(reply, _NOT_OVER)
            return None
        self._idle = 0
        if (count := len(reply.tool_calls)) > MAX_REPLIES_PER_TURN:
            message = f"the model called {count:,} tools in one turn; at most {MAX_REPLIES_PER_TURN} are allowed"
            return failed(job, "too_many_tool_calls", message)
        return self._aborted(reply) or await self._call_tools(reply)

    async def _call_tools(self, reply: ChatReply) -> ChildRun | None:
        """Call the tools of a turn. A claim among them waits until the others have ended."""
        others = [call for call in reply.tool_calls if call.name not in GOAL_TOOLS]
        outputs = iter(await self._tools.run(others) if others else ())
        results, claim_at, rationale = list[ToolOutput](), None, ""
        for n, call in enumerate(reply.tool_calls):
            name = "reason" if call.name == ABORT else "rationale"
            if call.name not in GOAL_TOOLS:
                results.append(next(outputs))
            elif not (text := _text(call.arguments, name)):
                results.append(ToolOutput(f"not done: `{name}` is missing; send it as a text", "error"))
            elif claim_at is not None:
                results.append(ToolOutput(f"not judged: a turn can have one {CLAIM}", "denied"))
            else:
                claim_at, rationale = n, text
                results.append(ToolOutput(""))  # replaced when the claim is judged
        ended = None
        if claim_at is not None:
            results[claim_at], ended = await self._claim(rationale)
        self._conversation.add_results(reply, results)
        return ended

    async def _claim(self, rationale: str) -> tuple[ToolOutput, ChildRun | None]:
        """Have a claim judged. Returns what the model is told, and how the child ends, if it does."""
        with self._job.waiting():
            self._reply = reply = await self._claims.judge(rationale)
        self._rationale = rationale
        if reply.verified:
            return ToolOutput(reply.text), self._job.recorder.finish("completed", report=rationale)
        self._repeated = self._repeated + 1 if reply.repeats else 0
        ended = None
        if self._repeated >= MAX_REPEATED_CLAIMS:
            ended = self._stuck(f"nothing changed in {self._repeated} steps")
        return ToolOutput(reply.text, "error"), ended

    def _aborted(self, reply: ChatReply) -> ChildRun | None:
        """How it ends if the child gives up. An honest end counts before a claim in the same turn."""
        for call in reply.tool_calls:
            if call.name == ABORT and (reason := _text(call.arguments, "reason")):
                learned = _text(call.arguments, "learned")
                report = f"{reason}\n\nLearned: {learned}" if learned else reason
                error = ErrorDetail(code="aborted", message=one_line(reason, 400))
                return self._job.recorder.finish("failed", report=report, error=error)
        return None

    def _without_claims(self) -> ChildRun:
        """The run of a child that has used up its claims, the last of which has the verdict."""
        if self._reply is not None:
            return self._job.recorder.finish("completed", report=self._rationale)
        message = f"all {self._claims.max_claims} claims were made before its process was lost"
        return failed(self._job, "budget_exceeded", message)

    def _stuck(self, why: str) -> ChildRun:
        return failed(self._job, "no_progress", f"the child only claimed or stopped, again and again: {why}")


def _text(arguments: Mapping[str, Any] | None, name: str) -> str:
    value = (arguments or {}).get(name)
    return value.strip() if isinstance(value, str) else ""
