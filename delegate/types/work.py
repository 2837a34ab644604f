"""What a child did: `ChildRun`, with its receipts, its files and what it cost."""

from typing import Annotated, Literal, Self, cast

from pydantic import Field

from delegate.types.base import AS_TEXT, JsonObject, Value
from delegate.types.codes import CallErrorCode, Code, OwnCode
from delegate.types.errors import CallError

RunStatus = Literal["completed", "failed", "timeout", "cancelled", "budget_exceeded", "max_steps"]
ReceiptStatus = Literal["ok", "error", "denied", "timeout", "unknown"]
"""`unknown`: the child's process was lost before the call ended, which may have been made, or may still go on."""


class Usage(Value):
    """The tokens of one or more model calls, as reported by the providers.

    `input_tokens` include `cached_tokens` (read from the provider's cache) and `cache_write_tokens` (written to it, at
    a separate price). `output_tokens` include `reasoning_tokens`.
    """

    model_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        # Sums begin with nothing, and many end with it.
        if not any(other.__dict__.values()):
            return self
        if not any(self.__dict__.values()):
            return other
        return Usage(
            model_calls=self.model_calls + other.model_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


Provenance = Literal[
    "observed",  # the provider's token counts, at the price of the model that it reported
    "estimated",  # tokens or price are estimated: a call got no reply, no or impossible counts were reported, or the
    # model served isn't in the catalog
    "unknown",  # a price is missing; the cost is null
]
"""How a cost was determined. A sum has the least certain provenance of its parts."""


class Receipt(Value):
    """The runtime's record of one tool call. A child cannot write receipts."""

    n: int = 0
    tool: str
    args: JsonObject = Field(default_factory=dict)
    status: ReceiptStatus
    output: str = ""
    """The tool's output, truncated to a limit. `output_bytes` and `output_sha256` describe the whole output."""
    args_sha256: str = ""
    output_sha256: str = ""
    output_bytes: int = 0
    seconds: float = 0
    sandbox: str | None = None
    """For commands: the sandbox mechanism (`bubblewrap`, `landlock`, `process`)."""
    _whole_output: str | None = None

    @property
    def whole_output(self) -> str:
        """The output before it was truncated, while the process that ran the tool still has it; else `output`.

        It isn't part of the receipt's JSON.
        """
        return self.output if self._whole_output is None else self._whole_output

    def with_whole_output(self, text: str) -> Self:
        """Return a copy of a truncated receipt that also has the whole output."""
        receipt = self.model_copy()
        receipt._whole_output = text
        return receipt


class Artifact(Value):
    """A file that the child created, changed or deleted. `path` is relative to the workspace.

    For a worktree with changes, the first artifact is the diff against its base, in a file next to the workspace.
    """

    path: str
    change: Literal["created", "changed", "deleted"]
    bytes: int = 0
    sha256: str | None = None
    """Digest of the current content. None for links, deleted files, unreadable files and files above a size limit."""
    link_to: str | None = None
    """The target of a symbolic link. Links aren't followed."""


class ErrorDetail(Value):
    """An error as data. For a refused call, `field` names the field to fix and `hint` says how to fix it."""

    code: Annotated[Code | OwnCode, AS_TEXT]
    message: str
    field: str | None = None
    hint: str | None = None

    def as_raised(self) -> CallError:
        """The error of a refused call."""
        return CallError(cast("CallErrorCode", self.code), self.message, field=self.field, hint=self.hint)


class PlanStep(Value):
    """One step of a plan reported by a runner."""

    text: str
    done: bool


MAX_ARTIFACTS = 5_000
"""Files that a run lists."""


class ChildRun(Value):
    """The outcome of one child's run and all that it produced, even if it failed, timed out or was cancelled.

    `plan`, `pending` and `observations` are for runners that track them. The gate evaluates them.
    """

    status: RunStatus
    report: str = ""
    receipts: tuple[Receipt, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    error: ErrorDetail | None = None
    model: str | None = None
    """The model that answered, as named by the provider."""
    substituted: bool = False
    """Whether the provider served a different model than the one requested."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None if a price is unknown. An unknown cost is never reported as 0."""
    cost_known_usd: float = 0
    """The sum of all known costs; equal to `cost_usd` unless that is None."""
    cost_provenance: Provenance = "unknown"
    steps: int = 0
    seconds: float = 0
    project_notes: str | None = None
    """The file of the workspace that the child was given with its task, such as `AGENTS.md`."""
    plan: tuple[PlanStep, ...] = ()
    """The child's plan and which of its steps are done."""
    pending: tuple[str, ...] = ()
    """Values that the child had not filled in yet, such as form fields."""
    observations: tuple[str, ...] = ()
    """The state of the child's environment after each step, as texts or digests that can be compared."""
