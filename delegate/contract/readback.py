"""The tool `read_delegation`, with which a parent reads a child's whole report in parts."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from delegate._util.fencing import clean, fence, new_nonce, one_line
from delegate.contract.reading import decode, join, kind_of, show
from delegate.contract.render import data_notice, mark_verdicts, verdict_line
from delegate.errors import CallError
from delegate.types import JsonObject, TaskResult

_EXAMPLE = 'send {"handle": "1f2e3d4c5b6a-0"}, with the handle from the result'


class Slice(NamedTuple):
    """The part of a report that a parent asks for."""

    handle: str
    offset: int
    """In characters."""

    @property
    def run_id(self) -> str:
        """The id of the run that the handle belongs to. It is part of the handle (see `Run.next_handle`)."""
        return self.handle.rpartition("-")[0]


def parse_read(arguments: Mapping[str, Any] | str | bytes) -> Slice:
    """Parse the arguments of one call.

    Raises:
        CallError: The arguments are invalid. The error says how to fix them.
    """
    value = decode(arguments) if isinstance(arguments, (str, bytes)) else arguments
    if not isinstance(value, Mapping):
        raise CallError("not_an_object", f"the arguments are {kind_of(value)}, not a JSON object", hint=_EXAMPLE)
    fields = cast("Mapping[str, object]", value)
    if unknown := [name for name in fields if name not in ("handle", "offset")]:
        name = join("", str(unknown[0]))
        raise CallError("unknown_field", f"`{name}` is not a field of this tool", field=name, hint=_EXAMPLE)
    handle = fields.get("handle")
    if not isinstance(handle, str) or not handle.strip():
        raise CallError("empty", "`handle` is missing", field="handle", hint=_EXAMPLE)
    return Slice(handle.strip(), _offset(fields.get("offset")))


def report_in(record: JsonObject | None, run_id: str | None) -> tuple[TaskResult, str]:
    """Return the result and the whole report from a task's record (see `Records.read`).

    Raises:
        CallError: There is no record or no report yet, or the record belongs to another run than `run_id`. With None,
            records of all runs can be read.
    """
    hint = "use a handle from one of your own results"
    if record is None:
        raise CallError("unknown_handle", "there is no record with this handle", field="handle", hint=hint)
    if run_id is not None and record["run_id"] != run_id:
        raise CallError("other_run", "this handle belongs to another run", field="handle", hint=hint)
    if record["run"] is None:
        states = {"running": "is still running", "outcome_unknown": "was lost before it returned a result"}
        message = f"the child of this handle {states[record['state']]}"
        raise CallError(record["state"], message, field="handle", hint="there is no report to read")
    return TaskResult.model_validate(record["result"]), record["run"]["output"]


def render_slice(wanted: Slice, result: TaskResult, report: str, *, limit: int, nonce: str | None = None) -> str:
    """Return the tool's result: the verdict, the position of the part, and the child's text as data.

    Raises:
        CallError: The report is shorter than the offset.
    """
    start, length = wanted.offset, len(report)
    handle, end = one_line(wanted.handle, 80), min(start + limit, length)
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


def _offset(value: object) -> int:
    """Parse the offset. Models also write numbers as strings, and null for an omitted field."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if value is None or value == "":
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        message = f"`offset` is {show(value)}, not a number of characters"
        raise CallError("wrong_type", message, field="offset", hint="leave it out to read from the beginning")
    return value
