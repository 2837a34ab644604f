"""Runs the built-in child: a loop over a model and tools, until the model stops calling tools or reaches a limit."""

from delegate.child.conversation import Conversation
from delegate.child.job import Job, failed
from delegate.child.replies import FAILURES, MAX_REPLIES_PER_TURN, Recovery, finish
from delegate.child.tool_calls import END_AT, ToolCalls
from delegate.types import ChildRun


class AgentLoop:
    """Runs a child on `job.connection` with `job.tools`. Keeps no state between jobs."""

    needs_model = True
    records_tools = True
    uses_job_tools = True
    makes_claims = True
    takes_messages = True
    reads_record = True

    async def run(self, job: Job) -> ChildRun:
        """Make model calls until the model reports, or until none are left; in goal mode, until a claim is verified."""
        if job.claims is not None:
            from delegate.child import goal  # loaded only where it is used

            return await goal.run(job, job.claims)
        conversation, recovery = Conversation(job), Recovery()
        tools = ToolCalls(job, conversation.own_tools)
        while job.recorder.steps < job.max_steps:
            await conversation.hear()
            reply = await conversation.ask()
            notice = recovery.notice(reply, conversation)
            if notice is not None and job.recorder.steps < job.max_steps:
                conversation.add_notice(reply, notice)
                continue
            if not reply.tool_calls or reply.stop in FAILURES:
                is_report = reply.stop in ("end", "tool_calls") and job.recorder.steps < job.max_steps
                if is_report and await conversation.hear(reply):
                    continue  # what the parent has said since is still to be done
                return finish(job, reply)
            if (count := len(reply.tool_calls)) > MAX_REPLIES_PER_TURN:
                message = f"the model called {count:,} tools in one turn; at most {MAX_REPLIES_PER_TURN} are allowed"
                return failed(job, "too_many_tool_calls", message)
            conversation.add_results(reply, await tools.run(reply.tool_calls))
            if tools.in_circles:
                return failed(job, "no_progress", f"the child made the same tool call {END_AT} times, with one result")
        return failed(job, "max_steps", f"the child still called tools after {job.max_steps} turns")
