"""Formats the recorded events of a task as a transcript with times.

Their text comes from a child, its tools or a judge, so it is cleaned before it is shown.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from delegate._util.fencing import clean, one_line
from delegate.contract.amounts import counted
from delegate.report.amounts import when
from delegate.types import JsonObject
from delegate.types.money import usd


def when_shortly(at: float) -> str:
    """A timestamp in local time, without the year and the seconds."""
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def transcript_lines(record: JsonObject) -> Iterator[Text]:
    """The lines of every event; its first line has the seconds since the task started."""
    yield Text("transcript:", "dim")
    yield _at(0, "started", when(record["began_at"]))
    for event in record["events"]:
        yield from _event(event, float(event["at"]) - float(record["began_at"]))
    if record["result"]:
        yield _at(record["ended_at"] - record["began_at"], "ended", record["result"]["status"])
    else:
        notes = {"running": "still running", "outcome_unknown": "nothing more is recorded"}
        yield Text(f"{'':>12}{notes.get(record['state'], '')}", "dim")


def _event(event: JsonObject, seconds: float) -> Iterator[Text]:  # noqa: C901 - one case for each kind
    match event["kind"]:
        case "child.usage":
            tokens_in, tokens_out = event["input_tokens"], event["output_tokens"]
            yield _at(seconds, "model", f"{tokens_in:,} tokens in, {tokens_out:,} out, {usd(event['cost_usd'])}")
            yield from _block(str(event["text"]))
            yield from (_line(f"calls {call['tool']} {_json(call['args'])}") for call in event["calls"])
        case "child.tool":
            how = f"{event['status']}, {counted(event['output_bytes'], 'byte')}, {event['seconds']:.2f} s"
            yield _at(seconds, f"tool {event['n']}", f"{event['tool']}: {how}")
            yield _line(f"with {_json(event['args'])}")
            yield from _block(str(event["output"]))
        case "child.started":
            yield _at(seconds, "the child starts", event["model"] or "")
            if event["instead_of"]:
                yield _line(f"instead of {event['instead_of']}, which failed: {event['reason']}")
        case "child.waiting" | "judge.waiting" if event["seconds"] is not None:
            yield _at(seconds, "waited", f"{event['seconds']:.2f} s ({event['reason']})")
        case "child.done":
            yield _at(seconds, "the child ended", event["status"])
        case "approval.asked":
            yield _at(seconds, f"asks {event['n']}", f"{event['tool']}: {event['reason']} ({event['code']})")
            yield from _block(str(event["text"]))
            yield _line(f"sha256 {event['sha256']}")
        case "approval.answered":
            yield _at(seconds, f"answer {event['n']}", approval_words(event))
        case "step.declared":
            yield _at(seconds, f"step {event['n']}", f"{event['goal']} (with {', '.join(event['tools'])})")
            yield _line(f"expects: {event['expected']}")
        case "step.verified":
            held = "holds, by its own word" if event["held"] else "does not hold"
            yield _at(seconds, f"step {event['n']} ends", f"{held}: {event['outcome']}")
            yield _line(f"called: {', '.join((*event['called'], *event['outside'])) or 'nothing'}")
        case "question.asked":
            yield _at(seconds, f"question {event['n']}", "to its parent")
            yield from _block("\n".join((event["text"], *(f"{n}. {one}" for n, one in enumerate(event["options"], 1)))))
        case "question.answered":
            words = event["outcome"].replace("_", " ")
            yield _at(seconds, f"question {event['n']}", f"{words}, after {event['seconds']:.1f} s")
            yield from _block(event["text"])
        case "message.delivered":
            yield _at(seconds, "its parent says", "")
            yield from _block(str(event["text"]))
        case "claim.made":
            yield _at(seconds, "claims to be done", event["rationale"])
        case "claim.judged":
            words = "verified" if event["verdict"] == "PASS" else f"refused, {event['code']}"
            yield _at(seconds, f"claim {event['n']}", words)
            for one in event["refused"]:
                yield _line(f"{one['id']} {one['text']}: {one['reason'] or one['code']}")
        case "check.done":
            yield _at(seconds, "check", f"{event['id']} {event['text']}: {event['outcome']}")
        case "judge.asked":
            yield _at(seconds, "asking a judge", event["model"])
        case "judge.done" if event["fault"]:
            yield _at(seconds, "no reply", f"{event['model']}: {event['fault']}")
        case "verdict":
            level = f" ({event['level'].replace('_', ' ')})" if event["verdict"] == "PASS" and event["level"] else ""
            yield _at(seconds, "verdict", f"{event['verdict'] or 'no criteria'}{level}")
        case "child.waiting" | "judge.waiting" | "judge.done":
            pass
        case kind:  # recorded by a newer version
            yield _at(seconds, str(kind), "")


def approvals(record: JsonObject) -> list[Text]:
    """A line for each approval that was asked for: what for, and the answer."""
    answers = {event["n"]: event for event in record["events"] if event["kind"] == "approval.answered"}
    lines: list[Text] = []
    for question in (event for event in record["events"] if event["kind"] == "approval.asked"):
        answer = answers.get(question["n"])
        words = approval_words(answer) if answer else "no answer is recorded"
        mark, style = ("✓", "green") if answer and answer["approved"] else ("✗", "red")
        line = Text(f"{mark} ", style).append(one_line(str(question["text"]), 200))
        lines.append(line.append(f"  {words} ({question['code']}, {question['sha256'][:12]})", "dim"))
    return lines


def approval_words(answer: JsonObject) -> str:
    """How an approval was answered, by whom, and after how long."""
    by = f" by {one_line(answer['by'], 80)}" if answer["by"] else ""
    again = ", also for the same call again" if answer["same_again"] and answer["approved"] else ""
    note = f": {one_line(answer['note'], 300)}" if answer["note"] else ""
    return f"{answer['outcome'].replace('_', ' ')}{by}{again}, after {answer['seconds']:.1f} s{note}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _at(seconds: float, label: str, detail: str) -> Text:
    line = Text(f"{seconds:>+9.2f} s ", "dim").append(label, "bold")
    return line.append(": ").append(one_line(detail, 400)) if detail else line


def _line(text: str) -> Text:
    return Text(f"{'':>14}").append(clean(" ".join(text.split())).text, "dim")


def _block(text: str) -> Iterator[Text]:
    for line in clean(text.strip()).text.split("\n") if text.strip() else ():
        yield Text(f"{'':>14}").append(line)
