"""The fair semaphore never has too many holders and is first start, first served, on any number of event loops."""

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate._util.semaphore import FairSemaphore, Permit

T = TypeVar("T")
Step = Sequence[tuple[Callable[[T, int], None], int]]
"""Actions that run barrier, before any other task is scheduled."""


async def run_until_blocked() -> None:
    """Let all tasks run until they are blocked."""
    for _ in range(15):
        await asyncio.sleep(0)


def steps_of(*actions: Callable[[T, int], None]) -> st.SearchStrategy[list[Step[T]]]:
    one = st.lists(st.tuples(st.sampled_from(actions), st.integers(0, 11)), min_size=1, max_size=4)
    return st.lists(one, max_size=25)


bounded = settings(max_examples=50, derandomize=True, database=None, deadline=None)


# --------------------------------------------------------------------------------------------------------- semaphore


@asynccontextmanager
async def acquired(semaphore: FairSemaphore) -> AsyncGenerator[Permit]:
    permit = Permit(semaphore)
    try:
        await permit.acquire()
        yield permit
    finally:
        permit.release()


class Holders:
    """Tasks that acquire, hold and release the semaphore, or are cancelled."""

    def __init__(self, limit: int) -> None:
        self.semaphore = FairSemaphore(limit)
        self.tasks: list[asyncio.Task[None]] = []
        self.may_release: list[asyncio.Event] = []
        self.holding: list[int] = []
        self.acquired: set[int] = set()

    async def hold(self, n: int) -> None:
        async with self.semaphore:
            self.holding.append(n)
            self.acquired.add(n)
            try:
                await self.may_release[n].wait()
            finally:
                self.holding.remove(n)

    def start(self, _: int) -> None:
        self.may_release.append(asyncio.Event())
        self.tasks.append(asyncio.create_task(self.hold(len(self.tasks))))

    def finish(self, which: int) -> None:
        if self.holding:
            self.may_release[self.holding[which % len(self.holding)]].set()

    def cancel(self, which: int) -> None:
        if self.tasks:
            self.tasks[which % len(self.tasks)].cancel()

    @property
    def waiting(self) -> list[int]:
        return [n for n, holder in enumerate(self.tasks) if not holder.done() and n not in self.acquired]


HOLDER_STEPS = steps_of(Holders.start, Holders.start, Holders.finish, Holders.cancel)


@bounded
@given(st.integers(1, 3), HOLDER_STEPS)
def test_no_permit_is_held_twice_or_lost_and_no_waiter_is_skipped(limit: int, plan: list[Step[Holders]]) -> None:
    async def run_plan() -> None:
        holders = Holders(limit)
        for step in plan:
            for action, which in step:
                action(holders, which)
            await run_until_blocked()
            assert len(holders.holding) == holders.semaphore.held <= limit
            if holders.waiting:
                assert holders.semaphore.held == limit, "a permit is free although a task waits for it"
                assert max(holders.acquired) < min(holders.waiting), "first start, first served"
        for holder in holders.tasks:
            holder.cancel()
        await asyncio.gather(*holders.tasks, return_exceptions=True)
        assert holders.semaphore.held == 0

    asyncio.run(run_plan())


async def test_a_permit_granted_to_a_cancelled_waiter_goes_to_the_next() -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire()
    first, second = asyncio.create_task(semaphore.acquire()), asyncio.create_task(semaphore.acquire())
    await run_until_blocked()
    semaphore.release()
    first.cancel()
    await asyncio.wait_for(second, 20)
    assert (first.cancelled(), semaphore.held) == (True, 1)


def waiting_in_another_loop(semaphore: FairSemaphore) -> tuple[asyncio.AbstractEventLoop, "asyncio.Task[None]"]:
    """A stopped loop with a task that waits for the semaphore."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # ignore the expected message about a pending task
    task = loop.create_task(semaphore.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    return loop, task


def test_a_waiter_whose_loop_is_closed_is_skipped() -> None:
    semaphore = FairSemaphore(1)
    asyncio.run(semaphore.acquire())
    loop, task = waiting_in_another_loop(semaphore)
    loop.close()
    semaphore.release()
    assert semaphore.held == 0
    asyncio.run(semaphore.acquire())
    del task, loop
    gc.collect()
    assert semaphore.held == 1, "a waiter that never acquired must not release"


def test_a_waiter_whose_loop_closes_after_the_grant_releases_it() -> None:
    semaphore = FairSemaphore(1)
    asyncio.run(semaphore.acquire())
    loop, task = waiting_in_another_loop(semaphore)
    semaphore.release()
    assert semaphore.held == 1
    loop.close()
    del task, loop
    gc.collect()
    assert semaphore.held == 0


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Make threads switch as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_switches")
def test_loops_in_several_threads_share_the_semaphore() -> None:
    semaphore, lock = FairSemaphore(3), threading.Lock()
    barrier = threading.Barrier(3)
    holding, most, acquisitions = 0, 0, 0

    async def hold() -> None:
        nonlocal holding, most, acquisitions
        for _ in range(50):
            async with semaphore:
                with lock:
                    holding += 1
                    most, acquisitions = max(most, holding), acquisitions + 1
                try:
                    await asyncio.sleep(0)
                finally:
                    with lock:
                        holding -= 1

    async def many() -> None:
        visitors = [asyncio.create_task(hold()) for _ in range(14)]
        await asyncio.sleep(0)
        for visitor in visitors[::7]:
            visitor.cancel()
        await asyncio.wait_for(asyncio.gather(*visitors, return_exceptions=True), 20)

    def run() -> None:
        barrier.wait()
        asyncio.run(many())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, semaphore.held) == (3, 0)
    assert acquisitions >= 3 * 12 * 50


# ------------------------------------------------------------------------------------------------------------ permit


class Family:
    """Children that share few permits, and release and reacquire theirs."""

    def __init__(self, limit: int) -> None:
        self.semaphore = FairSemaphore(limit)
        self.children: list[asyncio.Task[None]] = []
        self.may_end: list[asyncio.Event] = []
        self.releases: list[list[asyncio.Event]] = []
        self.permits: dict[int, Permit] = {}
        self.groups: dict[int, asyncio.TaskGroup] = {}

    async def child(self, n: int) -> None:
        async with acquired(self.semaphore) as permit:
            self.permits[n] = permit
            try:
                async with asyncio.TaskGroup() as group:
                    self.groups[n] = group
                    await self.may_end[n].wait()
            finally:
                del self.permits[n]

    async def released_until(self, n: int, event: asyncio.Event) -> None:
        async with self.permits[n].released():
            await event.wait()
        self.releases[n].remove(event)

    def begin(self, _: int) -> None:
        self.may_end.append(asyncio.Event())
        self.releases.append([])
        self.children.append(asyncio.create_task(self.child(len(self.children))))

    def release(self, which: int) -> None:
        candidates = [n for n in self.permits if not self.may_end[n].is_set() and not self.children[n].cancelling()]
        if candidates:
            n = candidates[which % len(candidates)]
            self.releases[n].append(asyncio.Event())
            self.groups[n].create_task(self.released_until(n, self.releases[n][-1]))

    def reacquire(self, which: int) -> None:
        active = [event for releases in self.releases for event in releases]
        if active:
            active[which % len(active)].set()

    def end(self, which: int) -> None:
        if self.children:
            self.may_end[which % len(self.children)].set()

    def cancel(self, which: int) -> None:
        if self.children:
            self.children[which % len(self.children)].cancel()

    @property
    def active_holders(self) -> int:
        """The number of children inside their block without an active release (one that has not reacquired)."""
        return sum(not self.releases[n] for n in self.permits)

    @property
    def wanted(self) -> int:
        """The number of children that would hold a permit if there were enough."""
        releases = [self.releases[n] for n, child in enumerate(self.children) if not child.done()]
        return sum(all(event.is_set() for event in each) for each in releases)


FAMILY = steps_of(
    Family.begin, Family.release, Family.release, Family.reacquire, Family.reacquire, Family.end, Family.cancel
)


@bounded
@given(st.integers(1, 3), FAMILY)
def test_released_permits_are_never_held_twice_lost_or_left_unused(limit: int, plan: list[Step[Family]]) -> None:
    async def run_plan() -> None:
        family = Family(limit)
        for step in plan:
            for action, which in step:
                action(family, which)
            await run_until_blocked()
            assert family.active_holders <= family.semaphore.held <= limit
            assert family.semaphore.held == min(limit, family.wanted)
        for ending in (*family.may_end, *(event for releases in family.releases for event in releases)):
            ending.set()
        await asyncio.wait_for(asyncio.gather(*family.children, return_exceptions=True), 20)
        assert family.semaphore.held == 0

    asyncio.run(run_plan())


async def test_a_release_that_outlives_its_permits_block_acquires_nothing() -> None:
    semaphore, event = FairSemaphore(1), asyncio.Event()
    async with acquired(semaphore) as permit:

        async def release() -> None:
            async with permit.released():
                await event.wait()

        released_until = asyncio.create_task(release())
        await run_until_blocked()
    event.set()
    await released_until
    assert semaphore.held == 0


async def test_a_task_cancelled_during_a_release_does_not_wait() -> None:
    semaphore = FairSemaphore(1)

    async def child() -> None:
        async with acquired(semaphore) as permit, permit.released():
            await asyncio.Event().wait()

    task = asyncio.create_task(child())
    await run_until_blocked()
    await semaphore.acquire()
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert (task.cancelled(), semaphore.held) == (True, 1)


async def test_a_release_that_fails_acquires_the_permit_again() -> None:
    semaphore = FairSemaphore(1)
    async with acquired(semaphore) as permit:

        async def fail() -> None:
            async with permit.released():
                assert semaphore.held == 0
                raise RuntimeError("no luck")

        with pytest.raises(RuntimeError):
            await fail()
        assert semaphore.held == 1


@pytest.mark.usefixtures("quick_switches")
def test_a_permit_may_be_released_by_several_threads() -> None:
    semaphore, barrier = FairSemaphore(2), threading.Barrier(4)

    async def release(permit: Permit) -> None:
        for _ in range(200):
            async with permit.released():
                await asyncio.sleep(0)

    def run(permit: Permit) -> None:
        barrier.wait()
        asyncio.run(release(permit))

    async def child() -> None:
        async with acquired(semaphore) as permit:
            await asyncio.gather(*(asyncio.to_thread(run, permit) for _ in range(4)))
            assert semaphore.held == 1

    asyncio.run(asyncio.wait_for(child(), 20))
    assert semaphore.held == 0
