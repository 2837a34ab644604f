"""The tools `read_delegation`, `stop_delegation`, `message_delegation` and `merge_delegation`: a parent waits for a
task, reads its report, stops it, sends it a message, or merges its changes.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from delegate._util.fencing import clean, fence, new_nonce, one_line
from delegate.contract.progress import CallProgress
from delegate.contract.reading import Arguments, join, kind_of, read_object, show
from delegate.contract.render import data_notice, mark_verdicts, verdict_line
from delegate.types import JsonObject, ParentQuestion, TaskResult
from delegate.types.errors import CallError

_EXAMPLE = 'send {"handle": "1f2e3d4c5b6a7f8e9d0c-0"}, with the handle from the result'


class ReadRequest(NamedTuple):
    """What a parent asks for: the list of its tasks, the result of one, or a part of its report."""

    handle: str | None
    """None for the list."""
    offset: int | None
    """In characters. None for the result."""
    wait_seconds: float | None
    """How long to wait for a task that is still running. None: as long as the caller can."""


def run_of(handle: str) -> str:
    """Return the id of the run that the handle belongs to. It is part of the handle (see `Run.next_handle`)."""
    return handle.rpartition("-")[0]


def parse_read(arguments: Arguments) -> ReadRequest:
    """Parse the arguments of one call of `read_delegation`.

    Raises:
        CallError: The arguments are invalid. The error says how to fix them.
    """
    # `attempt` only makes repeated calls different: some hosts end a conversation after several identical ones.
    fields = _fields(arguments, ("handle", "wait_seconds", "attempt", "offset"))
    handle = fields.get("handle")
    wait = _number(fields, "wait_seconds", "seconds")
    if handle is None or handle == "":
        return ReadRequest(None, None, wait)
    start = _number(fields, "offset", "characters")
    return ReadRequest(_handle(handle), None if start is None else int(start), wait)


def parse_stop(arguments: Arguments) -> str:
    """Parse the arguments of one call of `stop_delegation`, and return the handle. Raises CallError."""
    return _handle(_fields(arguments, ("handle",)).get("handle"))


def parse_message(arguments: Arguments) -> tuple[str, str]:
    """Parse the arguments of one call of `message_delegation`, and return the handle and the text. Raises CallError."""
    fields = _fields(arguments, ("handle", "text"))
    text = fields.get("text")
    if not isinstance(text, str):
        message = f"`text` is {kind_of(text)}, not a string" if text is not None else "`text` is missing"
        raise CallError("wrong_type", message, field="text", hint="say what the child should do")
    return _handle(fields.get("handle")), text


def parse_merge(arguments: Arguments) -> tuple[list[str], str | None]:
    """Parse the arguments of a call of `merge_delegation`, and return the handles and the branch. Raises CallError."""
    fields = _fields(arguments, ("handles", "onto"))
    given, onto = fields.get("handles"), fields.get("onto") or None
    handles = cast("list[object]", given) if isinstance(given, list) else []
    if not handles:
        message = "`handles` is not a list of handles" if given else "`handles` is empty"
        raise CallError("wrong_type", message, field="handles", hint='send {"handles": ["1f2e3d4c5b6a7f8e9d0c-0"]}')
    if not isinstance(onto, str | None):
        hint = "name a branch, or leave it out"
        raise CallError("wrong_type", f"`onto` is {kind_of(onto)}, not a string", field="onto", hint=hint)
    return [_handle(one) for one in handles], onto


def _fields(arguments: Arguments, known: Sequence[str]) -> Mapping[str, object]:
    fields = read_object(arguments, _EXAMPLE)
    if unknown := [name for name in fields if name not in known]:
        name = join("", str(unknown[0]))
        raise CallError("unknown_field", f"`{name}` is not a field of this tool", field=name, hint=_EXAMPLE)
    return fields


def _handle(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise CallError("empty", "`handle` is missing", field="handle", hint=_EXAMPLE)
    return value.strip()


def report_in(record: JsonObject | None, *, is_own: bool) -> tuple[TaskResult, str]:
    """Return the result and the whole report from a task's record (see `Records.read`).

    Raises:
        CallError: There is no record or no result yet, or it isn't of the reader's own run.
    """
    if record is None:
        raise unknown_handle()
    if not is_own:
        raise other_run()
    if record["run"] is None:
        states = {"running": "is still running", "outcome_unknown": "was lost before it returned a result"}
        message = f"the child of this handle {states[record['state']]}"
        raise CallError(record["state"], message, field="handle", hint="there is no report to read")
    return TaskResult.model_validate(record["result"]), record["run"]["report"]


def other_run() -> CallError:
    """Return the error for a handle of another run than that of its reader."""
    hint = "use a handle from one of your own results"
    return CallError("other_run", "this handle belongs to another run", field="handle", hint=hint)


def unknown_handle() -> CallError:
    """Return the error for a handle that doesn't exist, or that its reader may not use."""
    hint = "use a handle from one of your own results"
    return CallError("unknown_handle", "there is no record with this handle", field="handle", hint=hint)


def render_slice(
    handle: str, start: int, result: TaskResult, report: str, *, limit: int, nonce: str | None = None
) -> str:
    """Return a part of a report that begins at `start`: the verdict, its position, and the child's text as data.

    Raises:
        CallError: The report is shorter than the offset.
    """
    handle, length = one_line(handle, 80), len(report)
    end = min(start + limit, length)
    if start >= length and length:
        message = f"the report has only {length:,} characters"
        raise CallError("past_the_end", message, field="offset", hint="send a smaller offset")
    head = f"{verdict_line(result)}\n"
    if not report.strip():
        return f"{head}the report of {handle} is empty"
    nonce, cleaned = nonce or new_nonce(), clean(report[start:end])
    rest = f"the next part starts at offset {end}" if end < length else "this is the end"
    removed = "\n- hidden characters were removed from this part" if cleaned.hidden else ""
    return (
        f"{head}report of {handle}, characters {start:,} to {end:,} of {length:,}; {rest}\n"
        f"{data_notice(nonce)}\n"
        f"{fence(f'report of {handle}', mark_verdicts(cleaned.text), nonce)}{removed}"
    )


def render_running(
    progress: CallProgress, questions: Sequence[ParentQuestion] = (), *, keeps_running: bool = False
) -> str:
    """Return what the tasks of a call are doing, what their children ask, and how the parent gets their results.

    `keeps_running` says that they go on after the session that delegated them.
    """
    end = "They go on if your session ends" if keeps_running else "If you end your turn now, they may be stopped"
    line = f"{'needs_input' if questions else 'running in the background'}: {progress.line()}"
    return "\n".join(
        [
            line,
            *progress.lines(),
            *(_asked(question) for question in questions),
            f"There is no verdict yet. {end}: go on with other work, then call read_delegation with a handle and "
            "attempt, which waits. Don't delegate the same task again. stop_delegation stops a task.",
            line,
        ]
    )


def _asked(question: ParentQuestion) -> str:
    """What a child asks, as data, and how the parent answers."""
    nonce, handle = new_nonce(), one_line(question.handle, 80)
    options = (f"{n}. {one_line(option, 300)}" for n, option in enumerate(question.options, 1))
    text = mark_verdicts(clean("\n".join([question.text, *options])).text)
    minutes = max(question.answer_before - time.time(), 0) / 60
    choice = ", or the number of an option" if question.options else ""
    return (
        f"task {question.task_index + 1} (handle {handle}) asks you a question. {data_notice(nonce)}\n"
        f"{fence(f'question of {handle}', text, nonce)}\n"
        f"Answer it with message_delegation: this handle, and your answer as text{choice}. It waits {minutes:.0f} min, "
        "and decides itself then. Your answer is no proof for its verdict."
    )


def _number(fields: Mapping[str, object], name: str, unit: str) -> float | None:
    """Parse a number. Models also write numbers as strings, and null for an omitted field."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1
    if not 0 <= number < math.inf or (unit == "characters" and number % 1):
        message = f"`{name}` is {show(value)}, not a number of {unit}"
        raise CallError("wrong_type", message, field=name, hint="leave it out")
    return number
