"""Formats the recorded events of a task as a transcript with times.

Their text comes from a child, its tools or a judge, so it is cleaned before it is shown.
"""

import time
from collections.abc import Iterator

from rich.text import Text

from delegate._util.fencing import clean, one_line
from delegate.pages.amounts import when
from delegate.pages.transcript import approval_words, transcript_event
from delegate.types import JsonObject


def when_shortly(at: float) -> str:
    """A timestamp in local time, without the year and the seconds."""
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def transcript_lines(record: JsonObject) -> Iterator[Text]:
    """The lines of every event; its first line has the seconds since the task started."""
    yield Text("transcript:", "dim")
    began_at = float(record["began_at"])
    yield _line("0.00", "started", when(began_at))
    for event in (transcript_event(event, began_at) for event in record["events"]):
        yield _line(event.at, event.label, event.detail)
        for line in clean(event.text.strip()).text.split("\n") if event.text.strip() else ():
            yield Text(f"{'':>14}").append(line)
        for more in event.more:
            yield Text(f"{'':>14}").append(clean(" ".join(more.split())).text, "dim")
    if record["result"]:
        yield _line(f"{record['ended_at'] - began_at:.2f}", "ended", record["result"]["status"])
    else:
        notes = {"running": "still running", "outcome_unknown": "nothing more is recorded"}
        yield Text(f"{'':>12}{notes.get(record['state'], '')}", "dim")


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


def _line(at: str, label: str, detail: str) -> Text:
    line = Text(f"{f'+{at}':>9} s ", "dim").append(label, "bold")
    return line.append(": ").append(one_line(detail, 400)) if detail else line
