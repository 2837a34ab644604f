"""Records one child's run. The child itself can't write to this record.

The record is always up to date, so a run that fails, times out or is cancelled still has its report so far, receipts
and its cost.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from delegate._util.encoding import json_bytes
from delegate._util.redaction import redactor
from delegate.budget.costs import UNOBSERVED, Charge
from delegate.types import MAX_ARTIFACTS, Artifact, ChildRun, ErrorDetail, JsonObject, Receipt, RunStatus
from delegate.types.events import ChildTool, ChildUsage, TaskEvent
from delegate.types.ports import ChatReply, ToolOutput

RECEIPT_CHARS = 4_000
"""How many characters of a tool's output a receipt keeps. Its digest and size are those of the whole output."""
WHOLE_CHARS = 200_000
"""Up to this length, the whole output is kept in memory for the checks."""
MAX_REPORT_CHARS = 500_000
"""Length of a report. A longer one fails the run, and its beginning and end are kept."""
BROKE_OFF = "[… the reply broke off here]"
MAX_OUTPUT_CHARS = 2_000_000
"""Length of a tool's output. Of a longer one, only the beginning and the end are kept."""
LARGE_CHARS = 50_000
"""Work on longer texts is done in a thread."""
_MANY = 100
_KEPT_CHARS = 100_000
"""How much of both together."""
_LONGEST_SECRET = 25_000
_DIGESTS = {"args_sha256": True, "output_sha256": True}

Journal = Callable[[Callable[..., TaskEvent], str], None]
"""Receives events: their class, and their fields as JSON text without secrets."""


class Recorder:
    """Collects the receipts, report, usage and cost of one child. Custom runners use it as the built-in loop does."""

    def __init__(self, charge: Charge | None = None, *, journal: Journal | None = None) -> None:
        """`charge` is the initial charge: `costs.UNOBSERVED` for a runner whose model calls can't be observed.

        `journal` gets a `ChildUsage` for each model call and a `ChildTool` for each tool call, as JSON text.
        """
        self._journal = journal
        self.report = ""
        self.charge = charge or Charge()
        self.model: str | None = None
        self.substituted = False
        self.steps = 0
        self._receipts: dict[int, Receipt] = {}
        self._last_receipt = 0
        self._started = time.monotonic()
        self._finished: ChildRun | None = None
        self._last_text = ("", "")
        """The model's last text, as received and as recorded."""

    def model_called(
        self, reply: ChatReply, charge: Charge, *, substituted: bool = False, seconds: float | None = None
    ) -> None:
        """Record one model call. An unknown cost makes the run's cost unknown."""
        self.steps += 1
        self.substituted |= substituted
        text = self._ends(reply.text, MAX_REPORT_CHARS)
        self._last_text = (reply.text, text)
        self.report = text if text.strip() else self.report
        calls = [{"tool": call.name, "args": call.arguments} for call in reply.tool_calls]
        self._charged(
            charge, reply.model_served or self.model, text, calls, None if seconds is None else round(seconds, 6)
        )

    def usage_reported(
        self, charge: Charge, *, model: str | None = None, text: str = "", calls: Sequence[JsonObject] = ()
    ) -> None:
        """Record model calls that a runner made itself, with the text of the last reply, and the tools that the child
        says to have called, if they are known.
        """
        if self.charge is UNOBSERVED:  # the runner reports its calls after all
            self.charge = Charge()
        self._charged(charge, model, self._ends(text, MAX_REPORT_CHARS), calls)

    def _charged(
        self, charge: Charge, model: str | None, text: str, calls: Sequence[JsonObject], seconds: float | None = None
    ) -> None:
        """`text` is redacted already."""
        self.charge += charge
        self.model = model or self.model
        if self._journal is None:
            return
        values = {"model": redactor.value(encodable(model)), **charge.usage.model_dump(), "cost_usd": charge.cost_usd}
        shown = json_bytes({**values, "seconds": seconds, "text": text}).decode()
        called = redactor.json(json_bytes(encodable(list(calls)), fallback=str).decode()) if calls else "[]"
        self._journal(ChildUsage, f'{shown[:-1]},"calls":{called}}}')

    def restore(self, receipts: Sequence[Receipt], charge: Charge, *, steps: int, report: str, seconds: float) -> None:
        """Continue the record of a child whose process was lost after `seconds`. To be called before anything else."""
        self._receipts = {receipt.n: receipt for receipt in receipts}
        self._last_receipt = max(self._receipts, default=0)
        self.charge, self.steps, self.report = charge, steps, report
        self._started -= seconds

    @property
    def receipts(self) -> Sequence[Receipt]:
        """The receipts of the calls that have ended so far, in the order in which they ended."""
        return tuple(self._receipts.values())

    def call_lost(self, charge: Charge) -> None:
        """Record the estimated charge of a model call that was sent and got no reply."""
        self.charge += charge

    def reply_broke_off(self, text: str) -> None:
        """Keep what came of the last reply, which no other one follows."""
        if text.strip():
            self.report = f"{self._ends(text, MAX_REPORT_CHARS)}\n{BROKE_OFF}"

    def next_receipt(self) -> int:
        """Number a tool call that starts now, so that the receipts of parallel calls keep the requested order."""
        self._last_receipt += 1
        return self._last_receipt

    def tool_called(self, n: int, tool: str, args: Mapping[str, Any], answer: ToolOutput, seconds: float) -> None:
        """Record the receipt of a tool call. `n` is its number from `next_receipt`."""
        text = encodable(ends(answer.text, MAX_OUTPUT_CHARS))
        data = text.encode()
        is_long = len(text) > RECEIPT_CHARS
        # Redacted first: a cut would make a secret unrecognizable.
        whole = self._ends(text, WHOLE_CHARS) if is_long else text
        receipt = Receipt(
            n=n,
            tool=encodable(tool),
            args=encodable(dict(args)),
            status=answer.status,
            output=ends(whole, RECEIPT_CHARS, kept=RECEIPT_CHARS, chars=max(len(text), len(whole))),
            args_sha256=args_digest(args),
            output_sha256=hashlib.sha256(data).hexdigest(),
            output_bytes=len(data),
            seconds=round(seconds, 6),
            sandbox=answer.sandbox,
        )
        receipt = redactor.model(receipt, apart=_DIGESTS)
        self._receipts[n] = (
            receipt.with_whole_output(whole) if RECEIPT_CHARS < len(whole) <= WHOLE_CHARS >= len(text) else receipt
        )
        if self._journal is not None:
            self._journal(ChildTool, receipt.model_dump_json())

    def finish(
        self,
        status: RunStatus,
        *,
        report: str | None = None,
        error: ErrorDetail | None = None,
        artifacts: tuple[Artifact, ...] = (),
    ) -> ChildRun:
        """The run in its current state, with `status`; it has failed if its report is longer than one may be."""
        text = self.report if report is None else report
        if len(text) > MAX_REPORT_CHARS and status == "completed":
            status, error = "failed", _too_long(text)
        self._finished = ChildRun(
            status=status,
            # The model's last text is redacted already; a runner's own report isn't.
            report=self._last_text[1] if text in self._last_text else self._ends(text, MAX_REPORT_CHARS),
            receipts=tuple(self._receipts[n] for n in sorted(self._receipts)),
            artifacts=artifacts[:MAX_ARTIFACTS],
            error=error and error.model_copy(update={"message": self._ends(error.message, WHOLE_CHARS)}),
            model=self.model,
            substituted=self.substituted,
            steps=self.steps,
            seconds=round(time.monotonic() - self._started, 6),
            **self.charge.fields,
        )
        return self._finished

    def redacted(self, run: ChildRun) -> ChildRun:
        """A runner's return value, redacted unless it comes from `finish`."""
        if run is self._finished:
            return run
        is_too_long = len(run.report) > MAX_REPORT_CHARS and run.status == "completed"
        failure = {"status": "failed", "error": _too_long(run.report)} if is_too_long else {}
        cut = {"report": self._ends(run.report, MAX_REPORT_CHARS), "artifacts": run.artifacts[:MAX_ARTIFACTS]}
        run = run.model_copy(update={**cut, **failure})
        return ChildRun.model_validate(encodable(redactor.value(run.model_dump(exclude_defaults=True))))

    def _ends(self, text: str, limit: int) -> str:
        """The text redacted; if it is longer than `limit`, only its beginning and end, with a note between them.

        A secret is recognized only as a whole, so what is next to the cut is left out after it was searched.
        """
        if len(text) <= limit:
            return redactor.text(encodable(text))
        half = _KEPT_CHARS // 2
        start = redactor.text(encodable(text[: half + _LONGEST_SECRET]))
        end = redactor.text(encodable(text[-half - _LONGEST_SECRET :]))
        start, end = start[: min(half, max(len(start) - _LONGEST_SECRET, 0))], end[_LONGEST_SECRET:][-half:]
        return f"{start}{_note(len(text) - 2 * half)}{end}"


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def canonical(args: Mapping[str, Any]) -> str:
    """The arguments of a call as JSON that depends only on what they are."""
    return _CANONICAL.encode(args)


def args_digest(args: Mapping[str, Any]) -> str:
    """The digest of a call's arguments, as its receipt has it."""
    return hashlib.sha256(canonical(args).encode("utf-8", "surrogatepass")).hexdigest()


def argument_chars(args: Mapping[str, Any] | None) -> int:
    """How long the texts in a call's arguments are, without those in lists and objects."""
    return sum(len(value) for value in args.values() if isinstance(value, str)) if args else 0


def encodable(value: Any) -> Any:
    """The value without lone surrogates, which model output and file names can contain and UTF-8 can't encode."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {encodable(name): encodable(part) for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [encodable(part) for part in cast("list[Any]", value)]
    return value


def is_large(run: ChildRun) -> bool:
    """Whether work on all of a run takes so long that it needs a thread."""
    if len(run.report) > LARGE_CHARS or len(run.artifacts) > _MANY or len(run.receipts) > _MANY:
        return True
    # Not by the whole outputs, which are private attributes of the receipts, and slow to get.
    outputs = sum(receipt.output_bytes or len(receipt.output) for receipt in run.receipts)
    return outputs + sum(argument_chars(receipt.args) for receipt in run.receipts) > LARGE_CHARS


def is_cut(receipt: Receipt) -> bool:
    """Whether a receipt has only a part of the tool's output."""
    return receipt.output_bytes > RECEIPT_CHARS and _CUT.search(receipt.whole_output) is not None


_CUT = re.compile(r"\n\[… \d+ characters left out …\]\n")


def ends(text: str, limit: int, *, kept: int = _KEPT_CHARS, chars: int = 0) -> str:
    """The text; if it is longer than `limit`, only its beginning and end, with a note between them. `chars` is how long
    it was.
    """
    if len(text) <= limit:
        return text
    half = kept // 2
    return f"{text[:half]}{_note((chars or len(text)) - 2 * half)}{text[-half:]}"


def _note(left_out: int) -> str:
    return f"\n[… {left_out} characters left out …]\n"


def _too_long(report: str) -> ErrorDetail:
    message = f"the report has {len(report):,} characters; at most {MAX_REPORT_CHARS:,} are allowed"
    return ErrorDetail(code="report_too_long", message=message, hint="have the child write a file and report its path")
