"""Root runs: everything under one root call, and where in it a call stands.

Calls belong to one run when their host gives them one `run_id`, when they are made inside `RunRegistry.root_run`, or
when a child makes them. Any other call is a run of its own.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from weakref import WeakValueDictionary

from delegate._util.semaphore import FairSemaphore, Permit
from delegate.budget.ledger import Ledger
from delegate.errors import BudgetExceeded, CallError
from delegate.models.catalog import Catalog
from delegate.models.tiers import Bounds, weaker
from delegate.settings import Settings
from delegate.types import Parent, Tier, Totals

KEPT_RUNS = 10_000
"""Host runs that are remembered; the one that was called longest ago makes room for a new one."""


def new_run_id() -> str:
    """An id for one run: 12 hexadecimal digits."""
    return secrets.token_hex(6)


class Run:
    """What everything under one root call shares: its ledger, its places for children, and its deadline.

    A batch of a person's is one with places of its own number, `concurrent`: what it may ask for isn't counted, and
    each of its tasks has its own `max_children` (see `RunRegistry.batch`).
    """

    def __init__(self, settings: Settings, *, id: str | None = None, concurrent: int | None = None) -> None:
        self.id = id or new_run_id()
        self.ledger = Ledger(
            {
                "children": settings.max_children if concurrent is None else None,
                "model_calls": settings.max_run_model_calls,
                "tokens": settings.max_run_tokens,
                "cost_usd": settings.max_cost_usd,
            }
        )
        self.permits = FairSemaphore(concurrent or settings.max_concurrent)
        self._numbers = count()
        self._started: float | None = None
        self._allowed = settings.run_timeout_seconds

    def next_handle(self) -> str:
        """The handle of the run's next task."""
        return f"{self.id}-{next(self._numbers)}"

    def resume(self, *, number: int, spent_usd: float) -> None:
        """Stand where an earlier process left this run: the next handle's number, and what is spent."""
        self._numbers = count(number)
        self.ledger.settle(self.ledger.reserve({}), {"cost_usd": spent_usd})

    def seconds_left(self) -> float | None:
        """Wall time that is left; None: there is no limit."""
        if self._allowed is None or self._started is None:
            return self._allowed
        return self._started + self._allowed - time.monotonic()

    def refuse_if_over(self) -> None:
        """Raise BudgetExceeded when the run's wall time is used up. The clock starts when this is first asked."""
        self._started = self._started or time.monotonic()
        allowed, left = self._allowed, self.seconds_left()
        if allowed is not None and left is not None and left <= 0:
            raise BudgetExceeded("run_timeout_seconds", allowed=allowed, spent=round(allowed - left, 3))


@dataclass(slots=True)
class RunContext:
    """Who calls: the root, or a child at its depth. What it delegates lies under its ledger and its tier."""

    run: Run
    ledger: Ledger
    depth: int = 0
    """0 for the root, 1 for its children."""
    tier: Tier | None = None
    """The caller's own tier; None when unknown."""
    permit: Permit | None = None
    """The child's place among those at work, which it lends to its own children while it waits for them."""
    tools: frozenset[str] | None = None
    """Names of the child's tools, beyond which its children get none; None: no such limit."""
    deadline: float | None = None
    """When the caller's own time is up, on the monotonic clock; None: it has none."""
    delegated: list[Totals] = field(default_factory=list[Totals])
    """What each task that it delegated came to."""

    def book(self, totals: Totals) -> None:
        """Put one delegated task on the child's bill. The root has none: its reports say what was spent."""
        if self.depth:
            self.delegated.append(totals)

    def for_one_task(self, settings: Settings) -> "RunContext":
        """The same for one task of a batch, which has a `max_children` of its own for what is delegated below it."""
        return replace(self, ledger=Ledger({"children": settings.max_children}, parent=self.ledger), delegated=[])

    def seconds_left(self) -> float | None:
        """Wall time that its children have: what is left of the run's and of its own; None: there is no limit."""
        own = None if self.deadline is None else self.deadline - time.monotonic()
        return min((left for left in (own, self.run.seconds_left()) if left is not None), default=None)

    def refuse_if_over(self) -> None:
        """Raise BudgetExceeded when the run's time is used up, or the caller's own."""
        self.run.refuse_if_over()
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise BudgetExceeded("seconds_left", allowed=0, spent=0)

    def bounds(self, settings: Settings) -> Bounds:
        """The tiers that its children may have."""
        return Bounds.under(self.tier, max_tier=settings.max_tier, min_tier=settings.min_tier)


_current: ContextVar[RunContext | None] = ContextVar("delegate_caller", default=None)


@contextmanager
def use_context(context: RunContext) -> Generator[None]:
    """Calls made inside are made by `context`, also those of tasks that are started there, and of threads to which the
    context is copied, as `asyncio.to_thread` does.
    """
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def note_served_tier(tier: Tier) -> None:
    """The child that is at work here really runs at `tier`, which bounds what it may give its own children."""
    if context := _current.get():
        context.tier = weaker(context.tier, tier)


class RunRegistry:
    """Finds the run that a call belongs to."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._of_hosts: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._kept: OrderedDict[str, Run] = OrderedDict()
        self._lock = threading.Lock()

    def context(self, parent: Parent | None = None) -> RunContext:
        """Who makes this call. A child stays a child, and in its run, whatever its host says of it."""
        parent = parent or Parent()
        current = _current.get()
        tier = weaker(current.tier if current else None, self._tier_of(parent))
        deadline = None if parent.seconds_left is None else time.monotonic() + parent.seconds_left
        tools = None if parent.tools is None else frozenset(parent.tools)
        if current is None:
            run = self._of_host(parent.run_id) if parent.run_id else Run(self._settings)
            return RunContext(run, run.ledger, tier=tier or self._settings.parent_tier, tools=tools, deadline=deadline)
        deadlines = [one for one in (deadline, current.deadline) if one is not None]
        if current.tools is not None:
            tools = current.tools if tools is None else current.tools & tools
        return replace(current, tier=tier, tools=tools, deadline=min(deadlines, default=None))

    def batch(self, *, concurrency: int, id: str | None = None, max_cost_usd: float | None = None) -> RunContext:
        """Who asks for a batch: a run of its own, with so many places for its tasks, and this limit on its cost too.

        Raises CallError inside a run, since a batch isn't bounded by what is left of one.
        """
        if _current.get() is not None:
            message = "a batch can't be started inside a run"
            raise CallError("batch_in_a_run", message, hint="start it outside of `root_run`, and not in a child")
        costs = [one for one in (max_cost_usd, self._settings.max_cost_usd) if one is not None]
        settings = self._settings.model_copy(update={"max_cost_usd": min(costs, default=None)})
        run = Run(settings, id=id, concurrent=concurrency)
        return RunContext(run, run.ledger, tier=settings.parent_tier)

    def known_run(self, parent: Parent | None = None) -> str | None:
        """The id of the run that a call belongs to; None where it would be one of its own."""
        if _current.get() is not None or (parent and parent.run_id):
            return self.context(parent).run.id
        return None

    @contextmanager
    def root_run(self, parent: Parent | None = None) -> Generator[str]:
        """All calls made inside belong to one run. Gives its id."""
        context = self.context(parent)
        with use_context(context):
            yield context.run.id

    def _of_host(self, run_id: str) -> Run:
        """The run of that name. It is found as long as it is kept, and as long as anything is at work in it."""
        with self._lock:
            run = self._of_hosts.get(run_id) or Run(self._settings)
            self._of_hosts[run_id] = self._kept[run_id] = run
            self._kept.move_to_end(run_id)
            if len(self._kept) > KEPT_RUNS:
                self._kept.popitem(last=False)
            return run

    def _tier_of(self, parent: Parent) -> Tier | None:
        model = self._catalog.find(parent.model) if parent.model else None
        return weaker(model.tier if model else None, parent.tier)
