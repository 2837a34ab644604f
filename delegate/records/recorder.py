"""The runtime's own record of one child, which the child cannot write.

It holds at every moment all that is known, so that a run which fails, times out or is cancelled still leaves its
output so far, its receipts and its bill.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from delegate._util.redaction import Redactor
from delegate.budget.costs import Charge
from delegate.ports import ChatReply, ToolOutput
from delegate.types import Artifact, ChildRun, ErrorDetail, Receipt, RunStatus

RECEIPT_CHARS = 4_000
"""How much of a tool's answer a receipt keeps; digest and size are those of the whole."""


class Recorder:
    """Receipts, output, usage and cost of one child. A host's own runner writes to it as the built-in loop does."""

    def __init__(
        self,
        charge: Charge | None = None,
        *,
        journal: Callable[[str, str], None] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """`charge` is where the bill begins: `bill.UNSEEN` for a runner whose model calls aren't seen here.

        `journal` is told of each model call and tool call in JSON. `redactor` keeps secrets out of it all.
        """
        self._journal = journal
        self._redactor = redactor or Redactor()
        self.output = ""
        self.charge = charge or Charge()
        self.model: str | None = None
        self.substituted = False
        self.steps = 0
        self._receipts: dict[int, Receipt] = {}
        self._receipts_begun = 0
        self._started = time.monotonic()
        self._finished: ChildRun | None = None
        self._said = ("", "")
        """What the model said last, as it came and as it was recorded."""

    def model_called(self, reply: ChatReply, charge: Charge, *, substituted: bool = False) -> str:
        """Book one model call, and give its text as it was recorded. An unknown cost makes the whole run's unknown."""
        self.steps += 1
        self.charge += charge
        self.model = reply.model_served or self.model
        self.substituted |= substituted
        said = self._recordable(reply.text)
        self._said = (reply.text, said)
        if said.strip():
            self.output = said
        if self._journal is not None:
            calls = [{"tool": encodable(call.name), "args": encodable(call.arguments)} for call in reply.tool_calls]
            tokens = [charge.usage.input_tokens, charge.usage.output_tokens]
            call = {"text": said, "calls": calls, "tokens": tokens, "cost_usd": charge.cost_usd}
            self._journal("model_called", self._redactor.json(_JOURNAL.encode(call)))
        return said

    def next_receipt(self) -> int:
        """Number a tool call that begins now; calls that run side by side keep the order they were asked in."""
        self._receipts_begun += 1
        return self._receipts_begun

    def tool_called(self, n: int, tool: str, args: Mapping[str, Any], answer: ToolOutput, seconds: float) -> None:
        """Write the receipt of the tool call that `next_receipt` numbered `n`."""
        text = encodable(answer.text)
        whole = text.encode()
        receipt = Receipt(
            n=n,
            tool=encodable(tool),
            args=encodable(dict(args)),
            status=answer.status,
            output=text if len(text) <= RECEIPT_CHARS else _bounded(self._redactor.text(text)),
            args_sha256=hashlib.sha256(_canonical(args)).hexdigest(),
            output_sha256=hashlib.sha256(whole).hexdigest(),
            output_bytes=len(whole),
            seconds=round(seconds, 6),
            sandbox=answer.sandbox,
        )
        as_given = receipt.model_dump_json()
        record = self._redactor.json(as_given)  # one look at all of it
        self._receipts[n] = receipt if record is as_given else Receipt.model_validate_json(record)
        if self._journal is not None:
            self._journal("tool_called", record)

    def finish(
        self,
        status: RunStatus,
        *,
        output: str | None = None,
        error: ErrorDetail | None = None,
        artifacts: tuple[Artifact, ...] = (),
    ) -> ChildRun:
        """The run as it stands now, under `status`."""
        self._finished = ChildRun(
            status=status,
            output=self._output(output),
            receipts=tuple(self._receipts[n] for n in sorted(self._receipts)),
            artifacts=artifacts,
            error=error and error.model_copy(update={"message": self._recordable(error.message)}),
            model=self.model,
            substituted=self.substituted,
            usage=self.charge.usage,
            cost_usd=self.charge.cost_usd,
            cost_known_usd=self.charge.known_usd,
            cost_provenance=self.charge.provenance,
            steps=self.steps,
            seconds=round(time.monotonic() - self._started, 6),
        )
        return self._finished

    def redacted(self, run: ChildRun) -> ChildRun:
        """What a runner gave back, which may have made it without `finish`."""
        if run is self._finished:
            return run
        return ChildRun.model_validate(encodable(self._redactor.value(run.model_dump(exclude_defaults=True))))

    def _output(self, output: str | None) -> str:
        """What goes on record as the output; what the model said is there already, what a runner set isn't."""
        output = self.output if output is None else output
        return self._said[1] if output in self._said else self._recordable(output)

    def _recordable(self, value: Any) -> Any:
        return self._redactor.value(encodable(value))


_JOURNAL = json.JSONEncoder(ensure_ascii=False, default=str)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def _canonical(args: Mapping[str, Any]) -> bytes:
    return _CANONICAL.encode(args).encode("utf-8", "surrogatepass")


def encodable(value: Any) -> Any:
    """The value without half surrogate pairs, which models and file names can have and JSON in UTF-8 can't."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {encodable(name): encodable(part) for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [encodable(part) for part in cast("list[Any]", value)]
    return value


def _bounded(text: str) -> str:
    if len(text) <= RECEIPT_CHARS:
        return text
    half = RECEIPT_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
