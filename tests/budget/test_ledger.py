"""The ledger reserves and spends within its limits, in any order of events."""

import gc
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar, cast

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from delegate.budget.ledger import LEAST_OUTPUT, ROUNDING, Amounts, Ledger, LimitName, Output, Reservation, Window
from delegate.types.errors import BudgetExceeded

T = TypeVar("T")


def per_token(usd: float = 0) -> Amounts:
    return {"tokens": 1, "cost_usd": usd}


def test_a_refusal_says_which_limit_and_what_is_left_and_costs_nothing() -> None:
    ledger = Ledger({"cost_usd": 1.0})
    ledger.reserve({"cost_usd": 0.6}).settle({"cost_usd": 0.5})
    pending = ledger.reserve({"cost_usd": 0.3})
    with pytest.raises(
        BudgetExceeded, match=r"cost_usd: \$0\.5 of \$1 spent, \$0\.3 reserved, \$0\.2 left, \$0\.25 needed"
    ):
        ledger.reserve({"cost_usd": 0.25})
    pending.settle()
    ledger.reserve({"cost_usd": 0.5}).settle({"cost_usd": 0.5})
    assert ledger.spent["cost_usd"] == 1.0


def test_a_limit_of_the_run_stops_every_child_of_it() -> None:
    run = Ledger({"tokens": 100})
    first, second = Ledger({}, parent=run), Ledger({"tokens": 1_000}, parent=run)
    first.reserve({"tokens": 60}).settle({"tokens": 60})
    assert second.left("tokens") == 40
    with pytest.raises(BudgetExceeded):
        second.reserve({"tokens": 50})
    second.reserve({"tokens": 40}).settle({"tokens": 40})
    assert (run.spent, first.spent, second.spent) == ({"tokens": 100}, {"tokens": 60}, {"tokens": 40})


def test_a_window_frees_what_was_spent_before_it_and_says_when() -> None:
    now = 0.0
    run = Ledger({"tokens": 100}, window=Window(60, lambda: now))
    child = Ledger(parent=run)
    for moment, tokens in ((0.0, 40), (20.0, 30), (30.0, 30)):
        now = moment
        child.reserve({"tokens": tokens}).settle({"tokens": tokens})
    for needed, frees_in in ((10, 30), (40, 30), (41, 50), (101, None)):
        with pytest.raises(BudgetExceeded) as refused:
            child.reserve({"tokens": needed})
        assert refused.value.frees_in == frees_in
    now = 60.0
    assert child.left("tokens") == 40
    assert run.used() == {"tokens": 60}
    child.reserve({"tokens": 40}).settle({"tokens": 40})
    now = 89.0
    assert child.left("tokens") == 30
    now = 150.0
    assert run.used() == {"tokens": 0}
    assert child.spent == {"tokens": 140}


def test_a_limit_of_one_child_does_not_bind_its_siblings() -> None:
    run = Ledger({"tokens": 100})
    poor, rich = Ledger({"tokens": 10}, parent=run), Ledger(parent=run)
    with pytest.raises(BudgetExceeded):
        poor.reserve({"tokens": 11})
    rich.reserve({"tokens": 100}).settle({"tokens": 100})


def test_settling_twice_counts_once() -> None:
    ledger = Ledger({"model_calls": 2})
    reservation = ledger.reserve({"model_calls": 1})
    reservation.settle({"model_calls": 1})
    reservation.settle({"model_calls": 1})
    assert ledger.spent["model_calls"] == 1


def test_a_failed_step_releases_its_reservation() -> None:
    ledger = Ledger({"tokens": 10})
    with pytest.raises(RuntimeError), ledger.reserve({"tokens": 10}):
        raise RuntimeError("no answer came")
    assert (ledger.left("tokens"), ledger.spent) == (10, {})


def test_a_call_gets_the_output_that_a_limit_still_buys() -> None:
    ledger = Ledger({"cost_usd": 1.0, "tokens": 50_000})
    assert ledger.reserve({"cost_usd": 0.1, "tokens": 10}, Output(90_000, per_token(0.0001))).output_tokens == 9_000
    assert ledger.left("cost_usd") == pytest.approx(0)


def test_a_call_that_would_get_less_than_the_least_output_is_refused() -> None:
    ledger = Ledger({"tokens": LEAST_OUTPUT + 9})
    with pytest.raises(BudgetExceeded, match=r"0 of 509 spent, 0 reserved, 509 left, 510 needed"):
        ledger.reserve({"tokens": 10}, Output(90_000, per_token()))
    assert ledger.reserve({"tokens": 10}, Output(499, per_token())).output_tokens == 499


def test_a_call_that_hangs_leaves_the_others_of_its_limit_room() -> None:
    ledger = Ledger({"tokens": 10_000})
    ledger.join(3)
    hanging = ledger.reserve({}, Output(90_000, per_token()))
    others = [ledger.reserve({}, Output(90_000, per_token())) for _ in range(2)]
    assert [one.output_tokens for one in (hanging, *others)] == [5_000, 2_500, 2_000]
    with pytest.raises(BudgetExceeded):
        ledger.reserve({}, Output(90_000, per_token()))
    for one in others:
        one.settle({"tokens": 100})
        ledger.join(-1)
    ledger.reserve({}, Output(90_000, per_token())).settle({"tokens": 2_000})
    hanging.settle({"tokens": 0})
    assert ledger.reserve({}, Output(90_000, per_token())).output_tokens == 7_800, "the last task may have all of it"


def test_rounding_errors_do_not_refuse_amounts_that_reach_a_limit() -> None:
    ledger = Ledger({"cost_usd": 0.3})
    for _ in range(3):  # 0.1 + 0.1 + 0.1 > 0.3
        ledger.reserve({"cost_usd": 0.1}).settle({"cost_usd": 0.1})
    with pytest.raises(BudgetExceeded):
        ledger.reserve({"cost_usd": 1e-6})


def test_free_steps_continue_when_the_cost_limit_is_used_up() -> None:
    ledger = Ledger({"cost_usd": 1.0, "model_calls": 5})
    ledger.reserve({"cost_usd": 1.0}).settle({"cost_usd": 1.5})
    ledger.reserve({"model_calls": 1, "cost_usd": 0}, Output(90_000, per_token(0))).settle({"model_calls": 1})
    assert ledger.spent == {"cost_usd": 1.5, "model_calls": 1}


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Make threads switch as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(number: int, work: Callable[[], T]) -> list[T]:
    """Start this many threads at the same moment, and raise what any of them raises."""
    together = threading.Barrier(number)

    def run() -> T:
        together.wait()
        return work()

    with ThreadPoolExecutor(number) as pool:
        return [done.result() for done in [pool.submit(run) for _ in range(number)]]


@pytest.mark.usefixtures("quick_switches")
def test_concurrent_threads_lose_no_amount_and_settle_nothing_twice() -> None:
    run = Ledger({"tokens": 2_000})
    shared = [run.reserve({"tokens": 1}) for _ in range(200)]

    def spend() -> None:
        own = Ledger(parent=run)
        for one in shared:
            own.reserve({"tokens": 1}).settle({"tokens": 1})
            one.settle({"tokens": 0.5})
            assert run.left("tokens") is not None

    in_threads(4, spend)
    assert run.spent == {"tokens": 4 * 200 + 100}
    assert run.left("tokens") == 1_100


def test_only_one_of_two_threads_gets_the_rest_of_a_limit() -> None:
    ledger = Ledger({"children": 1, "tokens": 1})
    meeting = threading.Barrier(2)

    class Meeting(dict[LimitName, float]):
        """Amounts that wait, once they fit under the first limit, until the other thread is at the same point."""

        def get(self, key: LimitName, default: float = 0) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
            if key == "tokens":
                with suppress(threading.BrokenBarrierError):
                    meeting.wait(timeout=0.1)
            return super().get(key, default)

    def want() -> bool:
        try:
            ledger.reserve(Meeting({"children": 1}))
        except BudgetExceeded:
            return False
        return True

    assert sorted(in_threads(2, want)) == [False, True]


def test_the_garbage_collector_may_release_a_reservation_during_a_call() -> None:
    """A reservation in a reference cycle is released by the allocation that starts the collector."""
    ledger = Ledger({"tokens": 200})

    class Collecting(dict[LimitName, float]):
        """Amounts that collect garbage when they are read, which happens while the ledger is locked."""

        def get(self, key: LimitName, default: float = 0) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
            gc.collect()
            return super().get(key, default)

    def call(itself: list[object]) -> Iterator[None]:
        with ledger.reserve({"tokens": 60}):
            yield
            itself.clear()

    kept = ledger.reserve(Collecting({"tokens": 10}))
    cycle: list[object] = []
    running = call(cycle)
    next(running)
    cycle.append(running)
    del running, cycle
    ledger.reserve({"tokens": 50}).settle({"tokens": 50})
    kept.settle({"tokens": 10})
    assert (ledger.spent, ledger.left("tokens")) == ({"tokens": 60}, 140)


# --------------------------------------------------------------------------------------- in any order whatever


LIMITS: tuple[LimitName, ...] = ("children", "model_calls", "tokens", "cost_usd")
counts, money = st.integers(0, 12), st.floats(0, 1.5, allow_subnormal=False)
UNCERTAIN: Mapping[str, st.SearchStrategy[float]] = {"tokens": counts, "cost_usd": money}


def amounts(**of: st.SearchStrategy[float]) -> st.SearchStrategy[dict[LimitName, float]]:
    """Some of these amounts, or none."""
    return cast("st.SearchStrategy[dict[LimitName, float]]", st.fixed_dictionaries({}, optional=of))


some_limits = some_sure = amounts(children=counts, **UNCERTAIN)
some_output = st.builds(Output, st.integers(0, 30), amounts(tokens=st.just(1), cost_usd=st.floats(0.001, 0.1)))
part = st.sampled_from([0.0, 0.3, 0.5, 1.0])


@dataclass(eq=False)
class Node:
    """One ledger, with everything that was ever requested of it."""

    ledger: Ledger
    above: "Node | None" = None
    open: list["Step"] = field(default_factory=list["Step"])
    beyond: dict[LimitName, float] = field(default_factory=dict[LimitName, float])
    """The total that steps took beyond their reservations."""

    def chain(self) -> list["Node"]:
        return [self, *(self.above.chain() if self.above else [])]

    def set_aside(self, limit: LimitName) -> float:
        """The most that open steps can take."""
        return sum(step.at_most(limit) for step in self.open)


@dataclass(eq=False)
class Step:
    """An admitted step, and what it may take."""

    node: Node
    reservation: Reservation
    sure: Amounts
    output: Output

    def at_most(self, limit: LimitName) -> float:
        return self.sure.get(limit, 0) + self.reservation.output_tokens * self.output.each.get(limit, 0)


class LedgerMachine(RuleBasedStateMachine):
    """Trees of ledgers, whose steps are admitted, refused, settled, settled again and abandoned in any order.

    They take more or less than they reserved.
    """

    nodes = Bundle("nodes")
    steps = Bundle("steps")
    done = Bundle("done")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Node] = []

    @initialize(target=nodes, limits=some_limits)
    def a_run_begins(self, limits: dict[LimitName, float]) -> Node:
        return self.added(Node(Ledger(limits)))

    @rule(target=nodes, above=nodes, limits=some_limits)
    def a_child_begins(self, above: Node, limits: dict[LimitName, float]) -> Node:
        return self.added(Node(Ledger(limits, parent=above.ledger), above))

    def added(self, node: Node) -> Node:
        self.all.append(node)
        return node

    @rule(target=steps, node=nodes, sure=some_sure, output=some_output)
    def reserve(self, node: Node, sure: Amounts, output: Output) -> object:
        before = self.state()
        try:
            step = Step(node, node.ledger.reserve(sure, output), sure, output)
        except BudgetExceeded as error:
            assert self.state() == before, "a refusal changes nothing in any ledger"
            self.was_right(node, sure, output, error)
            return cast("object", multiple())
        assert output.least <= step.reservation.output_tokens <= output.most
        for one in node.chain():
            one.open.append(step)
            for limit, allowed in one.ledger.limits.items():
                if step.at_most(limit):
                    assert one.ledger.spent.get(limit, 0) + one.set_aside(limit) <= rounded(allowed)
        return step

    def was_right(self, node: Node, sure: Amounts, output: Output, error: BudgetExceeded) -> None:
        """Check that a refusal was right, and that its text is about the ledger that refused."""
        limit = cast("LimitName", error.limit)
        refused_by = [one for one in node.chain() if is_that_of(one, limit, error)]
        assert refused_by
        assert close(error.left, max(0, error.allowed - error.spent - error.reserved))
        assert error.left < error.needed <= rounded(sure.get(limit, 0) + output.most * output.each.get(limit, 0))
        told = [float(number) for number in re.findall(r"\d[\d.e+-]*", str(error))]
        known = (error.spent, error.allowed, error.reserved, error.left, error.needed)
        assert limit in str(error)
        assert told == pytest.approx(known, abs=1e-6)

    @rule(target=done, step=consumes(steps), of_sure=part, of_output=part)
    def settle(self, step: Step, of_sure: float, of_output: float) -> Step:
        limits: list[LimitName] = [*step.sure, *step.output.each]
        return self.settled(step, {limit: self.taken(step, limit, of_sure, of_output) for limit in limits})

    def taken(self, step: Step, limit: LimitName, of_sure: float, of_output: float) -> float:
        sure = step.sure.get(limit, 0)
        amount = sure * of_sure * 3 + (step.at_most(limit) - sure) * of_output * 2
        return amount if limit == "cost_usd" else int(amount)

    def settled(self, step: Step, spent: Amounts) -> Step:
        step.reservation.settle(spent)
        for one in step.node.chain():
            one.open.remove(step)
            for limit, amount in spent.items():
                one.beyond[limit] = one.beyond.get(limit, 0) + max(0, amount - step.at_most(limit))
        return step

    @rule(target=done, step=consumes(steps))
    def fail(self, step: Step) -> Step:
        with pytest.raises(KeyboardInterrupt), step.reservation:
            raise KeyboardInterrupt
        return self.settled(step, {})

    @rule(step=done)
    def settle_again(self, step: Step) -> None:
        before = self.state()
        step.reservation.settle({"tokens": 1_000, "cost_usd": 1_000})
        assert self.state() == before

    @invariant()
    def no_limit_is_passed_by_steps_that_keep_to_what_they_reserved(self) -> None:
        for node in self.all:
            for limit, allowed in node.ledger.limits.items():
                assert node.ledger.spent.get(limit, 0) <= rounded(allowed + node.beyond.get(limit, 0))

    @invariant()
    def what_is_left_is_the_least_that_is_left_in_the_ledgers_above(self) -> None:
        for node in self.all:
            for limit in LIMITS:
                rooms = [
                    max(0, one.ledger.limits[limit] - one.ledger.spent.get(limit, 0) - one.set_aside(limit))
                    for one in node.chain()
                    if limit in one.ledger.limits
                ]
                left = node.ledger.left(limit)
                assert left is None if not rooms else left is not None and close(left, min(rooms))

    def teardown(self) -> None:
        """Check that nothing stays reserved: what is left of a limit is the limit minus what was spent."""
        for step in {id(step): step for node in self.all for step in node.open}.values():
            self.settled(step, {})
        for node in self.all:
            rooms = [
                max(0, one.ledger.limits["tokens"] - one.ledger.spent.get("tokens", 0))
                for one in node.chain()
                if "tokens" in one.ledger.limits
            ]
            assert node.ledger.left("tokens") == min(rooms, default=None)

    def state(self) -> list[object]:
        return [(dict(one.ledger.spent), [one.ledger.left(limit) for limit in LIMITS]) for one in self.all]


def rounded(limit: float) -> float:
    return limit * (1 + 4 * ROUNDING) + 1e-12


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def is_that_of(node: Node, limit: LimitName, error: BudgetExceeded) -> bool:
    """Whether the amounts of a refusal are those of this ledger."""
    amounts_at_refusal = (node.ledger.limits.get(limit), node.ledger.spent.get(limit, 0))
    return amounts_at_refusal == (error.allowed, error.spent) and close(error.reserved, node.set_aside(limit))


_PHASES = (Phase.generate, Phase.shrink)
TestAnyOrder = LedgerMachine.TestCase
TestAnyOrder.settings = settings(
    max_examples=20, stateful_step_count=30, derandomize=True, database=None, deadline=None, phases=_PHASES
)
