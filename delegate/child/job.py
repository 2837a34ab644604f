"""Defines `Job` and `ChildRunner`, the interface for running a host's own agent as a child."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from delegate._util.cancellation import contained
from delegate._util.fencing import quoted
from delegate.budget.costs import Charge
from delegate.budget.ledger import Amounts, Ledger
from delegate.child import prompt
from delegate.child.project_notes import ProjectNotes
from delegate.models.connections import Connection
from delegate.records.recorder import MAX_OUTPUT_CHARS, Recorder, ends
from delegate.sandbox.workspace.folder import Folder
from delegate.types import ChildRun, CriterionReading, Effort, ErrorDetail, JsonObject, Provenance, Task, Tier, Usage
from delegate.types.codes import ChildCode
from delegate.types.errors import DelegateError, ToolDenied, ToolError
from delegate.types.events import ChildToolStarted, Notify, WaitReason
from delegate.types.ports import Incoming, Tool, ToolOutput

current_workspace: ContextVar[Path | None] = ContextVar("delegate_workspace", default=None)
"""The folder of the task that runs here."""


def workspace() -> Path:
    """The folder of the child that this code works for, a real path: what a tool writes there is the child's work.

    It is known in the calls of a child's tools, those that a judge or a `probe` criterion makes too, in its runner, and
    in what these start as asyncio tasks or with `asyncio.to_thread`. No other thread knows it: pass the folder on.

    Raises:
        DelegateError: no child is running here.
    """
    folder = current_workspace.get()
    if folder is None:
        raise DelegateError(
            "delegate.workspace() was called outside of a child: only a child's tools and its runner have a workspace. "
            "A thread of your own doesn't inherit it: call workspace() before you start it, and pass the folder on"
        )
    return folder


ASK = "ask_parent"
"""The tool by which a child asks its parent."""


class Heard(NamedTuple):
    """A message that a child has read. Judges read the text alone, since the child wrote the question."""

    text: str
    question: str
    """The question that it answers, if it answers one."""

    def __str__(self) -> str:
        """How the child reads it: with the question, since the rest of its conversation may be shortened."""
        return f"Answer to your question {quoted(self.question, 300)}:\n{self.text}" if self.question else self.text


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """What came of a claim."""

    verified: bool
    text: str
    repeats: bool = False
    """Whether nothing has changed since the claim before was refused."""
    out_of_budget: ErrorDetail | None = None
    """The limit that leaves no room to judge a claim."""


class Claims(Protocol):
    """Judges the claims of a child in goal mode."""

    @property
    def max_claims(self) -> int: ...

    @property
    def left(self) -> int:
        """How many more claims the child may make."""
        ...

    async def judge(self, rationale: str) -> ClaimReply:
        """Give the full verdict on what the child claims to be done. No tool of it may be running. Only cancellation is
        raised.
        """
        ...


class Waiting(Protocol):
    """Returns a context manager for a wait. With a reason, the wait is reported as an event."""

    def __call__(self, reason: WaitReason | None = None) -> AbstractContextManager[object]: ...


async def _nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Job:
    """One task for one child, with everything that its runner needs."""

    task: Task
    task_index: int
    run_id: str
    connection: Connection | None
    """The model to use and the connection to its provider; None if the runner has its own."""
    ceiling: Tier | None
    """The parent's tier: no model above it may answer, whichever was requested. None if it is unknown."""
    folder: Folder
    tools: tuple[Tool, ...]
    recorder: Recorder
    ledger: Ledger
    max_steps: int
    seconds: float
    """The time until the job's deadline when it started."""
    max_output_tokens: int
    effort: Effort | None
    """The reasoning effort to ask for, if the model has such a setting."""
    notify: Notify
    waiting: Waiting = lambda reason=None: nullcontext()
    """Returns a context manager in which time isn't the child's own: `with job.waiting("rate_limit"): …`."""
    claims: Claims | None = None
    """In goal mode: judges the child's claims. The child ends when one is verified."""
    readings: Mapping[str, CriterionReading] = field(default_factory=dict[str, CriterionReading])
    """What is known of what the criteria are about, by their ids. A model may still be reading them."""
    done_before: str = ""
    """What the child did before its process was lost, or before it ended, as text, if it goes on from its record."""
    heard: Sequence[str] = ()
    """The messages of the parent that the child has read before."""
    continues: bool = False
    """Whether the child goes on with a task that had ended, since its parent said more."""
    messages: Callable[[], Awaitable[Sequence[str]]] = _nothing
    """Takes the messages that the parent has sent since the last call, to be read before the child's next turn."""
    ask_parent: Tool | None = None
    """By which the built-in child asks its parent; None if nobody could answer."""
    flush: Callable[[], Awaitable[object]] = _nothing
    """Commits what is recorded so far. To be called before calls that may change something, so that after a crash it
    is known that they may have been made."""
    notes: ProjectNotes | None = None
    """What the project says to agents."""
    guarded: Callable[[Tool], Tool] = lambda tool: tool
    """Makes a tool of the runner's own ask the policy, and a person, as those in `tools` do."""
    incoming: Incoming = field(default_factory=Incoming)
    """What comes of the model's replies while they are written. The child makes one model call at a time."""

    @property
    def workspace(self) -> Path:
        """The folder to work in, a real path. The files left in it are the task's artifacts."""
        return self.folder.root

    @property
    def working_folder(self) -> Path:
        """The folder in the workspace that the parent works in, if it is there; else the workspace."""
        given = self.task.workspace
        folder = self.workspace / (given.folder or "" if given is not None else "")
        return folder if folder.is_dir() and folder.resolve() == folder else self.workspace  # no link leads elsewhere

    @property
    def prompt(self) -> str:
        """The whole prompt for the child in one text: rules, criteria, goal and context."""
        return prompt.whole(
            self.task, self.workspace, seconds=self.seconds, readings=self.readings, inputs=self.folder.inputs
        )

    def record_tool(
        self, tool: str, args: Mapping[str, Any], answer: ToolOutput | str = "", *, seconds: float = 0
    ) -> None:
        """Write the receipt of a finished tool call, which is an event too. An `answer` given as text means success.

        Receipts count only if the runner has `records_tools`: see `ChildRunner`. For a call that hasn't started yet,
        use `tool_call`, which writes a receipt however the call ends.
        """
        output = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
        self.recorder.tool_called(self.recorder.next_receipt(), tool, args, output, seconds)

    def tool_call(self, tool: str, args: Mapping[str, Any]) -> "PendingReceipt":
        """The receipt of a tool call that starts now: `with job.tool_call(name, args) as receipt: receipt.output = …`.

        It is written when the block ends; if no output was set, it states that the call was stopped before it ended.
        """
        command = args.get("command")
        text = command if isinstance(command, str) and command.strip() else tool
        self.notify(ChildToolStarted, tool=tool, text=text)
        return PendingReceipt(self, self.recorder.next_receipt(), tool, args)

    def record_usage(
        self,
        usage: Usage,
        cost_usd: float | None = None,
        *,
        provenance: Provenance = "observed",
        model: str | None = None,
        text: str = "",
        calls: Sequence[JsonObject] = (),
    ) -> None:
        """Add model calls that the runner made itself to the child's costs and to the run's ledger.

        Without `cost_usd`, the child's whole cost is unknown. `model` is the name that the provider returned. `text` is
        what the model said in the last of these calls, and `calls` are the tools that it says to have called, each with
        `tool` and `args`: for the record, and no receipts.
        """
        charge = Charge(usage, cost_usd, cost_usd or 0, "unknown" if cost_usd is None else provenance)
        self.recorder.usage_reported(charge, model=model, text=text, calls=calls)
        amounts: Amounts = {"model_calls": usage.model_calls, "tokens": usage.total_tokens, "cost_usd": cost_usd or 0}
        self.ledger.reserve({}).settle(amounts)


@dataclass(slots=True)
class PendingReceipt:
    """The receipt of one tool call in progress."""

    job: Job
    n: int
    tool: str
    args: Mapping[str, Any]
    output: ToolOutput = field(default_factory=lambda: ToolOutput("stopped before it ended", "timeout"))
    _started: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.write()

    def write(self) -> None:
        self.job.recorder.tool_called(self.n, self.tool, self.args, self.output, time.monotonic() - self._started)


def failed(job: Job, code: ChildCode, message: str, *, report: str | None = None) -> ChildRun:
    """A run that a limit has ended, or that failed, with what was said so far unless `report` is another."""
    status = code if code in ("max_steps", "budget_exceeded") else "failed"
    return job.recorder.finish(status, report=report, error=ErrorDetail(code=code, message=message))


async def call_tool(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a tool. An exception becomes its output, since a host's tool may raise anything and the child continues."""
    try:
        answer = await contained(tool.call(arguments))
    except ToolDenied as error:
        return ToolOutput(str(error), "denied")
    except ToolError as error:
        return ToolOutput(str(error), "error")
    except Exception as error:
        return ToolOutput(f"{tool.name} failed: {type(error).__name__}: {error}", "error")
    output = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
    is_short = len(output.text) <= MAX_OUTPUT_CHARS
    return output if is_short else replace(output, text=ends(output.text, MAX_OUTPUT_CHARS))


class ChildRunner(Protocol):
    """Runs one child until it ends.

    Exceptions that it raises become the child's result, so it needs no error handling of its own. The caller enforces
    the deadline; on `CancelledError` it only has to stop. One that goes on for ten seconds after its cancel is left
    behind: the call returns without it, its result is `timeout` or `cancelled`, and the log has a warning. Nothing
    sees or stops what it does then, and `asyncio.run` waits for it at its end.

    Receipts are written to `job.recorder` as tools are called, so that they are kept however the run ends;
    `job.recorder.finish("completed", report=…)` creates the `ChildRun`.
    """

    needs_model: bool
    """Whether it needs `job.connection`."""
    records_tools: bool
    """Whether every tool call gets a receipt. If not, the verdict's `receipts` are `unavailable`, or `reported` if
    there are any. Neither they nor their lack prove anything then, and only checks can show that an action was done. A
    runner without this attribute records none."""
    # Optional: `uses_job_tools` (it gives the child exactly `job.tools`), `makes_claims` (it can do goal mode, by
    # `job.claims`), `takes_messages` (its child reads `job.messages()` between two turns), `reads_record` (its child
    # goes on from `job.done_before`, and `job.flush()` is awaited before its calls), `records_some_tools` (it records
    # only calls that it makes itself, and its child has other tools besides) and `asks_permission` (its child asks
    # before calls of those). A runner without an attribute doesn't.

    async def run(self, job: Job) -> ChildRun:
        """Do the task."""
        ...
