"""Groups calls into runs, and knows the limits that apply to a call within its run.

Calls belong to the same run if their host gives them the same `run_id`, if they are made inside one
`RunRegistry.root_run`, or if a child makes them. Any other call is a run of its own.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from delegate._util import forking
from delegate._util.semaphore import FairSemaphore, Permit
from delegate.budget.ledger import Amounts, Ledger, Window
from delegate.models.catalog import Catalog
from delegate.models.tiers import Bounds, weaker
from delegate.policy.settings import Settings
from delegate.types import Author, Parent, Tier, Totals, Workspace
from delegate.types.errors import BudgetExceeded, CallError

if TYPE_CHECKING:
    from delegate.budget.shared import SharedAmounts
    from delegate.policy.approvals import OnApproval, OnQuestion

KEPT_RUNS = 10_000
"""The number of host runs that are remembered. The least recently used one is dropped first."""


def new_run_id() -> str:
    """A random run ID: 20 hexadecimal digits. Handles begin with it, and these 80 bits are what can't be guessed."""
    return secrets.token_hex(10)


class Run:
    """The state that all calls of one run share: ledger, limit on concurrent children, and deadline.

    `concurrent` is given for a batch and sets how many of its tasks may run at once. A batch may have any number of
    tasks; `max_children` applies to each of them (see `RunRegistry.batch`). With `window_seconds`, the limits count
    only what was used in the last this many seconds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        id: str | None = None,
        concurrent: int | None = None,
        window_seconds: float | None = None,
    ) -> None:
        self.id = id or new_run_id()
        self.ledger = Ledger(
            {
                "children": settings.max_children if concurrent is None else None,
                "model_calls": settings.max_run_model_calls,
                "tokens": settings.max_run_tokens,
                "cost_usd": settings.max_cost_usd,
            },
            window=Window(window_seconds) if window_seconds else None,
        )
        if concurrent is not None:  # its items join one after the other
            self.ledger.join(concurrent)
        self.permits = FairSemaphore(concurrent or settings.max_concurrent)
        self.settings = settings
        self.is_one_call = False
        """Whether no call can join it later, other than those of its children."""
        self.shared: SharedAmounts | None = None
        """What the processes of the run share, once there may be several."""
        self._task_numbers = count()
        self._started: float | None = None
        self._timeout_seconds = settings.run_timeout_seconds
        self._window_seconds = window_seconds

    def limit_calls_of_models(self) -> None:
        """Limit the cost of a run in which a model makes a call, if nobody has."""
        if (limit := self.settings.default_max_cost_usd) is not None:
            self.ledger.limit_by_default("cost_usd", limit, "default_max_cost_usd")

    def next_handle(self) -> str:
        """The handle of the run's next task."""
        return f"{self.id}-{self.next_number()}"

    def next_number(self) -> int:
        """The number of the run's next task, over all of its processes."""
        return self.shared.next_number() if self.shared else next(self._task_numbers)

    def resume(self, *, number: int, spent: Amounts) -> None:
        """Continue the run of an earlier process: the next handle gets `number`, and what was `spent` counts."""
        self._task_numbers = count(number)
        self.ledger.reserve({}).settle(spent)

    def seconds_left(self) -> float | None:
        """The wall time left, or None if there is no limit."""
        if self._timeout_seconds is None or self._started is None:
            return self._timeout_seconds
        return self._started + self._timeout_seconds - time.monotonic()

    def refuse_if_over(self) -> None:
        """Raise BudgetExceeded if the run's wall time is used up.

        The clock starts at the first call of this method, and again after each window.
        """
        now, window = time.monotonic(), self._window_seconds
        if self._started is None or (window and now - self._started >= window):
            self._started = now
        limit, seconds = self._timeout_seconds, self.seconds_left()
        if limit is not None and seconds is not None and seconds <= 0:
            frees_in = self._started + window - now if window else None
            spent = round(limit - seconds, 3)
            raise BudgetExceeded("run_timeout_seconds", allowed=limit, spent=spent, frees_in=frees_in)


@dataclass(slots=True)
class RunContext:
    """Identifies the caller (the root, or a child at some depth) and the limits on what it delegates."""

    run: Run
    ledger: Ledger
    depth: int = 0
    """0 for the root, 1 for its children."""
    tier: Tier | None = None
    """The caller's own tier; None when unknown."""
    permit: Permit | None = None
    """The child's permit to run, which is released while the child waits for its own children."""
    tools: frozenset[str] | None = None
    """Names of the tools that its children may have at most; None if there is no such limit."""
    deadline: float | None = None
    """The caller's own deadline on the monotonic clock, or None."""
    workspace: Workspace | None = None
    """The workspace of the children that a model asks for; None for a fresh one."""
    on_approval: "OnApproval | None" = None
    """Asks a person about what its children want to do; None for whom the operator has named."""
    on_question: "OnQuestion | None" = None
    """Answers what its children ask; None if nobody does."""
    delegated: list[Totals] = field(default_factory=list[Totals])
    """The totals of each task that it delegated."""

    def for_one_task(self, settings: Settings) -> "RunContext":
        """A copy for one task of a batch, with its own `max_children` for what that task delegates."""
        return replace(self, ledger=Ledger({"children": settings.max_children}, parent=self.ledger), delegated=[])

    def seconds_left(self) -> float | None:
        """The wall time left for its children: the lesser of the run's and its own, or None if there is no limit."""
        own = None if self.deadline is None else self.deadline - time.monotonic()
        return min((seconds for seconds in (own, self.run.seconds_left()) if seconds is not None), default=None)

    def refuse_if_over(self) -> None:
        """Raise BudgetExceeded if the run's or the caller's own time is used up."""
        self.run.refuse_if_over()
        seconds = self.seconds_left()
        if seconds is not None and seconds <= 0:
            raise BudgetExceeded("seconds_left", allowed=0, spent=0)

    def bounds(self, settings: Settings) -> Bounds:
        """The tiers that its children may run at."""
        return Bounds.under(self.tier, max_tier=settings.max_tier, min_tier=settings.min_tier)


_current: ContextVar[RunContext | None] = ContextVar("delegate_caller", default=None)


def current_context() -> RunContext | None:
    """The caller of calls that are made now; None outside of a run."""
    return _current.get()


@contextmanager
def use_context(context: RunContext) -> Generator[None]:
    """Makes `context` the caller of all calls inside the block, including those of tasks started there and of threads
    that inherit its context variables, as with `asyncio.to_thread`.
    """
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def note_served_tier(tier: Tier) -> None:
    """Record that a model of `tier` serves the current child. It limits the tiers of the child's own children."""
    if context := _current.get():
        context.tier = weaker(context.tier, tier)


class RunRegistry:
    """Determines the run and the caller of each call."""

    def __init__(self, settings: Settings, catalog: Catalog, on_question: "OnQuestion | None" = None) -> None:
        self._settings = settings
        self._catalog = catalog
        self.on_question = on_question
        """Answers what is asked in calls that have none of their own."""
        self._host_runs: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._recent_runs: OrderedDict[str, Run] = OrderedDict()
        self._by_id: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._lock = threading.Lock()
        forking.watch(self)

    def after_fork(self) -> None:
        """Start over: what is reserved and which children run belongs to the parent process."""
        self._lock = threading.Lock()
        self._host_runs.clear()
        self._recent_runs.clear()
        self._by_id.clear()
        _current.set(None)

    def context(
        self,
        parent: Parent | None = None,
        *,
        author: Author = "person",
        on_approval: "OnApproval | None" = None,
        on_question: "OnQuestion | None" = None,
    ) -> RunContext:
        """The context of a call made now. A child keeps its depth and run, whatever its host reports in `parent`.

        A call that a model wrote has a parent, which counts as `standard` if nothing is known about it, and its run has
        a limit of cost, if nobody has set another one. `on_approval` asks a person about what the call's children want
        to do; None asks the same one as the call around it. `on_question` answers what its children ask.
        """
        if not isinstance(cast("object", parent), Parent | None):
            message = f"parent: {parent!r:.60} is not a Parent; write Parent(model=…)"
            raise CallError("bad_task", message, field="parent")
        parent = parent or Parent()
        if (caller := _current.get()) is None:
            run = self._host_run(parent.run_id, parent.window_seconds) if parent.run_id else Run(self._settings)
            run.is_one_call = not parent.run_id
            self._by_id[run.id] = run
            caller = RunContext(run, run.ledger)
        usual = self._settings.parent_tier
        model = self._catalog.find(parent.model) if parent.model else None
        if parent.model and model is None:  # the catalog doesn't know it
            told = parent.tier or usual or "standard"
        else:
            told = weaker(model.tier if model else None, parent.tier)
        tools = None if parent.tools is None else frozenset(parent.tools)
        if caller.tools is not None:
            tools = caller.tools if tools is None else caller.tools & tools
        deadline = None if parent.seconds_left is None else time.monotonic() + parent.seconds_left
        deadlines = [moment for moment in (deadline, caller.deadline) if moment is not None]
        if author == "model" and not caller.depth:
            caller.run.limit_calls_of_models()
        return replace(
            caller,
            tier=weaker(caller.tier, told) or usual or ("standard" if author == "model" else None),
            tools=tools,
            deadline=min(deadlines, default=None),
            # A child's own children get fresh folders: the host's project is for the parent's children.
            workspace=None if caller.permit else parent.workspace,
            on_approval=on_approval or caller.on_approval,
            on_question=on_question or self.on_question,
        )

    def batch(self, *, concurrency: int, id: str | None = None, max_cost_usd: float | None = None) -> RunContext:
        """The context of a batch: a new run that executes `concurrency` tasks at once and may also limit its cost.

        Raises CallError inside a run, since the remaining budget of that run doesn't limit a batch.
        """
        if _current.get() is not None:
            message = "a batch can't be started inside a run"
            raise CallError("batch_in_a_run", message, hint="start it outside of `root_run`, and not in a child")
        costs = [cost for cost in (max_cost_usd, self._settings.max_cost_usd) if cost is not None]
        settings = self._settings.model_copy(update={"max_cost_usd": min(costs, default=None)})
        run = Run(settings, id=id, concurrent=concurrency)
        return RunContext(run, run.ledger, tier=settings.parent_tier, on_question=self.on_question)

    def known(self, run_id: str) -> Run | None:
        """The run with this ID, if it had a call in this process."""
        return self._by_id.get(run_id)

    def restored(self, run_id: str, *, number: int, spent: Amounts) -> Run:
        """A run of an earlier process, whose next task has this `number`, with what was `spent` of its limits."""
        run = self._by_id[run_id] = Run(self._settings, id=run_id)
        run.resume(number=number, spent=spent)
        return run

    def continued(self, run: Run, context: RunContext, author: Author, start: Mapping[str, Any]) -> RunContext:
        """The context of a task that goes on here, on the run's own ledger: one that another process started, or one
        that continues another.

        `context` is that of the call, and `start` has the tier of that task's caller and the tools that this one had.
        Raises CallError inside another run.
        """
        if _current.get() is not None and context.run is not run:
            raise CallError("other_run", "this handle belongs to another run", field="handle")
        if author == "model":
            run.limit_calls_of_models()
        tools = context.tools
        if (had := start.get("tools")) is not None:
            tools = frozenset(had) if tools is None else tools.intersection(had)
        ledger = context.ledger if _current.get() is not None else run.ledger
        return replace(context, run=run, ledger=ledger, tier=weaker(context.tier, start.get("tier")), tools=tools)

    def known_run(self, parent: Parent | None = None) -> str | None:
        """The ID of the run that a call made now would join; None if it would be a run of its own."""
        if _current.get() is not None or (parent and parent.run_id):
            return self.context(parent).run.id
        return None

    @contextmanager
    def root_run(self, parent: Parent | None = None) -> Generator[str]:
        """Make all calls inside the block belong to one run. Yields its ID."""
        context = self.context(parent)
        context.run.is_one_call = False
        with use_context(context):
            yield context.run.id

    def _host_run(self, run_id: str, window_seconds: float | None) -> Run:
        """The run with that ID: an existing one while it is remembered or still in use, else a new one."""
        with self._lock:
            run = self._host_runs.get(run_id) or Run(self._settings, window_seconds=window_seconds)
            self._host_runs[run_id] = self._recent_runs[run_id] = run
            self._recent_runs.move_to_end(run_id)
            if len(self._recent_runs) > KEPT_RUNS:
                self._recent_runs.popitem(last=False)
            return run
