"""Says what the recorded events of a task were, for its transcript on a page or in a terminal.

Their text comes from a child, its tools or a judge, so it has to be cleaned before it is shown.
"""

import json
from functools import partial
from typing import Any

from delegate._util.fencing import one_line
from delegate.contract.amounts import counted
from delegate.pages.amounts import duration
from delegate.pages.values import TranscriptEvent
from delegate.types import JsonObject
from delegate.types.money import usd


def transcript_event(event: JsonObject, began_at: float) -> TranscriptEvent:  # noqa: C901 - one case for each kind
    """What an event was, and how many seconds after its task began."""
    say = partial(TranscriptEvent, f"{max(0.0, float(event['at']) - began_at):.2f}")
    match event["kind"]:
        case "child.usage":
            tokens = f"{event['input_tokens']:,} tokens in, {event['output_tokens']:,} out, {usd(event['cost_usd'])}"
            calls = [f"calls {call['tool']} {_json(call['args'])}" for call in event["calls"]]
            return say("model", tokens, str(event["text"]), calls)
        case "child.tool":
            how = f"{event['status']}, {counted(event['output_bytes'], 'byte')}, {event['seconds']:.2f} s"
            text = f"with {_json(event['args'])}\n{event['output']}"
            return say(f"tool {event['n']}", f"{event['tool']}: {how}", text)
        case "child.started":
            more = [f"instead of {event['instead_of']}, which failed: {event['reason']}"] if event["instead_of"] else []
            return say("the child starts", event["model"] or "", "", more)
        case "child.waiting" | "judge.waiting" as kind if event["seconds"] is None:
            return say(f"the {kind.partition('.')[0]} waits", event["reason"].replace("_", " "))
        case "child.waiting" | "judge.waiting":
            return say("waited", f"{duration(event['seconds'])}, {event['reason'].replace('_', ' ')}")
        case "child.done":
            return say("the child ended", event["status"])
        case "approval.asked":
            what = f"{event['tool']}: {event['reason']} ({event['code']})"
            return say(f"asks {event['n']}", what, str(event["text"]), [f"sha256 {event['sha256']}"])
        case "approval.answered":
            return say(f"answer {event['n']}", approval_words(event))
        case "step.declared":
            what = f"{event['goal']} (with {', '.join(event['tools'])})"
            return say(f"step {event['n']}", what, "", [f"expects: {event['expected']}"])
        case "step.verified":
            held = "holds, by its own word" if event["held"] else "does not hold"
            called = f"called: {', '.join((*event['called'], *event['outside'])) or 'nothing'}"
            return say(f"step {event['n']} ends", f"{held}: {event['outcome']}", "", [called])
        case "question.asked":
            options = (f"{n}. {option}" for n, option in enumerate(event["options"], 1))
            return say(f"question {event['n']}", "to its parent", "\n".join((event["text"], *options)))
        case "question.answered":
            words = event["outcome"].replace("_", " ")
            return say(f"question {event['n']}", f"{words}, after {event['seconds']:.1f} s", event["text"])
        case "message.delivered":
            return say("its parent says", "", str(event["text"]))
        case "claim.made":
            return say("claims to be done", event["rationale"])
        case "claim.judged":
            words = "verified" if event["verdict"] == "PASS" else f"refused, {event['code']}"
            refused = [f"{one['id']} {one['text']}: {one['reason'] or one['code']}" for one in event["refused"]]
            return say(f"claim {event['n']}", words, "", refused)
        case "check.done":
            return say("check", f"{event['id']} {event['text']}: {event['outcome']}")
        case "judge.asked":
            return say("asking a judge", event["model"])
        case "judge.done" if event["fault"]:
            return say("no reply", f"{event['model']}: {event['fault']}")
        case "judge.done":
            return say("the judge replied", event["model"])
        case "verdict":
            level = f" ({event['level'].replace('_', ' ')})" if event["verdict"] == "PASS" and event["level"] else ""
            return say("verdict", f"{event['verdict'] or 'no criteria'}{level}")
        case kind:  # recorded by a newer version
            return say(str(kind))


def approval_words(answer: JsonObject) -> str:
    """How an approval was answered, by whom, and after how long."""
    by = f" by {one_line(answer['by'], 80)}" if answer["by"] else ""
    again = ", also for the same call again" if answer["same_again"] and answer["approved"] else ""
    note = f": {one_line(answer['note'], 300)}" if answer["note"] else ""
    return f"{answer['outcome'].replace('_', ' ')}{by}{again}, after {answer['seconds']:.1f} s{note}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
