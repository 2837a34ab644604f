"""What a reply of the model means for a child: how its run ends, or what the model is told before it is asked again."""

from collections.abc import Mapping

from delegate.child.conversation import Conversation
from delegate.child.job import Job, failed
from delegate.types import ChildRun
from delegate.types.codes import ChildCode
from delegate.types.ports import ChatReply

MAX_REPLIES_PER_TURN = 256
"""A turn with more tool calls than this fails the child: every call needs a reply, which the next request contains."""
MAX_CUT_OFF = 3
"""The child fails at this many replies in a row that were cut off by the output limit."""
CHARS_PER_TOKEN = 3
"""A cautious estimate for code and JSON, to tell a model how long its message may be."""
FAILURES: Mapping[str, ChildCode] = {
    "length": "truncated",
    "context": "truncated",
    "refusal": "refused",
    "malformed_call": "malformed_call",
}


class Recovery:
    """Decides how a child goes on after a reply that is neither a tool call nor a report.

    A reply that was cut off by the output limit never has its tool calls run, since they may be incomplete. An empty
    reply, a tool call that can't be parsed and an unknown end get one notice; after the second in a row, the
    reply stands as it is.
    """

    def __init__(self) -> None:
        self._cut_off = 0
        self._noticed = False

    def notice(self, reply: ChatReply, conversation: Conversation) -> str | None:
        """What to tell the model before it is asked again; None if the reply stands.

        An empty notice asks again without a word: reasoning that fills the limit needs only more room.
        """
        if reply.stop in ("length", "context"):
            self._cut_off += 1
            return None if self._cut_off == MAX_CUT_OFF else self._after_cut_off(reply, conversation)
        self._cut_off = 0
        problem = _problem(reply)
        noticed, self._noticed = self._noticed, problem is not None
        return None if noticed else problem

    def _after_cut_off(self, reply: ChatReply, conversation: Conversation) -> str:
        limit = conversation.output_limit
        only_thoughts = not reply.text.strip() and not reply.tool_calls
        if only_thoughts or self._cut_off > 1:
            conversation.raise_output_limit()
        if only_thoughts and conversation.output_limit > limit:
            return ""
        if reply.tool_calls:
            names = ", ".join(dict.fromkeys(call.name for call in reply.tool_calls))
            advice = "Send them again, shorter: write a long file in several calls."
            advice = f"Its tool calls ({names}) were not run. {advice}"
        elif reply.text.strip():
            advice = "If it was your report, send the whole report again, shorter."
        else:
            advice = "It had only reasoning. Think less before you call a tool or report."
        limit = reply.output_limit or conversation.output_limit
        about = f"{limit:,} tokens, reasoning included: about {limit * CHARS_PER_TOKEN:,} characters"
        return f"[Your last message was cut off by the output limit. {advice} One message may have {about}.]"


def _problem(reply: ChatReply) -> str | None:
    if reply.stop == "malformed_call":
        detail = f" ({reply.stop_detail[:200]})" if reply.stop_detail else ""
        return f"[Your tool call could not be parsed{detail}. Send it again, with one JSON object as its arguments.]"
    if reply.stop in ("end", "tool_calls") and not reply.tool_calls and not reply.text.strip():
        return "[Your last message was empty. Go on with the task, or send your report.]"
    if reply.stop == "other" and not reply.tool_calls:
        return "[Your last message may have ended early. Go on with the task, or send your report again, whole.]"
    return None


def finish(job: Job, reply: ChatReply) -> ChildRun:
    """The run with the status that the last message implies: only a clean end is `completed`."""
    if reply.stop in ("end", "tool_calls"):
        return job.recorder.finish("completed", report=reply.text)
    detail = f" ({reply.stop_detail})" if reply.stop_detail else ""
    code = FAILURES.get(reply.stop, "unexpected_stop")
    return failed(job, code, f"the model's last message ended as {reply.stop}{detail}")
