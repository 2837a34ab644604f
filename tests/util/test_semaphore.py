"""Places that many share: never too many holders, first come first served, on any number of event loops."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate._util.semaphore import FairSemaphore, Permit

T = TypeVar("T")
Happening = Sequence[tuple[Callable[[T, int], None], int]]
"""What is done at once, before anything else has its turn."""


async def rest() -> None:
    """Let everything happen that can."""
    for _ in range(15):
        await asyncio.sleep(0)


def at_once(*acts: Callable[[T, int], None]) -> st.SearchStrategy[list[Happening[T]]]:
    one = st.lists(st.tuples(st.sampled_from(acts), st.integers(0, 11)), min_size=1, max_size=4)
    return st.lists(one, max_size=25)


bounded = settings(max_examples=250, derandomize=True, database=None, deadline=None)


# ------------------------------------------------------------------------------------------------------------- slots


class Crowd:
    """People who come for a place, hold it, leave, and give up."""

    def __init__(self, limit: int) -> None:
        self.semaphore = FairSemaphore(limit)
        self.highest_limit = limit
        self.people: list[asyncio.Task[None]] = []
        self.may_leave: list[asyncio.Event] = []
        self.inside: list[int] = []
        self.came_in: set[int] = set()

    async def visit(self, n: int) -> None:
        async with self.semaphore:
            self.inside.append(n)
            self.came_in.add(n)
            try:
                await self.may_leave[n].wait()
            finally:
                self.inside.remove(n)

    def come(self, _: int) -> None:
        self.may_leave.append(asyncio.Event())
        self.people.append(asyncio.create_task(self.visit(len(self.people))))

    def leave(self, which: int) -> None:
        if self.inside:
            self.may_leave[self.inside[which % len(self.inside)]].set()

    def give_up(self, which: int) -> None:
        if self.people:
            self.people[which % len(self.people)].cancel()

    def change_the_limit(self, limit: int) -> None:
        self.semaphore.limit = limit % 4 + 1
        self.highest_limit = max(self.highest_limit, self.semaphore.limit)

    @property
    def in_line(self) -> list[int]:
        return [n for n, person in enumerate(self.people) if not person.done() and n not in self.came_in]


CROWD = at_once(Crowd.come, Crowd.come, Crowd.leave, Crowd.give_up, Crowd.change_the_limit)


@bounded
@given(st.integers(1, 3), CROWD)
def test_no_place_is_held_twice_or_lost_and_nobody_is_passed_over(limit: int, plan: list[Happening[Crowd]]) -> None:
    async def play() -> None:
        crowd = Crowd(limit)
        for happening in plan:
            before, crowd.highest_limit = crowd.semaphore.held, crowd.semaphore.limit
            for act, which in happening:
                act(crowd, which)
            await rest()
            assert len(crowd.inside) == crowd.semaphore.held <= max(before, crowd.highest_limit)
            if crowd.in_line:
                assert crowd.semaphore.held >= crowd.semaphore.limit, "a place is free, and someone waits for it"
                assert max(crowd.came_in) < min(crowd.in_line), "first come, first served"
        for person in crowd.people:
            person.cancel()
        await asyncio.gather(*crowd.people, return_exceptions=True)
        assert crowd.semaphore.held == 0

    asyncio.run(play())


async def test_a_lower_limit_takes_nothing_from_holders_and_a_higher_one_lets_the_next_in() -> None:
    crowd = Crowd(3)
    for n in range(5):
        crowd.come(n)
    await rest()
    crowd.semaphore.limit = 1
    crowd.leave(0)
    crowd.leave(1)
    await rest()
    assert (crowd.inside, crowd.semaphore.held, crowd.semaphore.limit) == ([2], 1, 1)
    crowd.semaphore.limit = 3
    await rest()
    assert crowd.inside == [2, 3, 4]
    for person in crowd.people:
        person.cancel()
    await asyncio.gather(*crowd.people, return_exceptions=True)


async def test_a_place_on_its_way_to_someone_who_gives_up_goes_to_the_next() -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire()
    first, second = asyncio.create_task(semaphore.acquire()), asyncio.create_task(semaphore.acquire())
    await rest()
    semaphore.release()
    first.cancel()
    await asyncio.wait_for(second, 20)
    assert (first.cancelled(), semaphore.held) == (True, 1)


def waiting_in_another_loop(semaphore: FairSemaphore) -> tuple[asyncio.AbstractEventLoop, "asyncio.Task[None]"]:
    """A loop that has stopped while someone in it waits for a place."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it says that the task was left pending: so it is meant
    task = loop.create_task(semaphore.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    return loop, task


def test_a_loop_that_ended_while_it_waited_is_passed_over() -> None:
    semaphore = FairSemaphore(1)
    asyncio.run(semaphore.acquire())
    loop, task = waiting_in_another_loop(semaphore)
    loop.close()
    semaphore.release()
    assert semaphore.held == 0
    asyncio.run(semaphore.acquire())
    del task, loop
    gc.collect()
    assert semaphore.held == 1, "what never had a place gives none back"


def test_a_loop_that_ended_before_it_saw_its_place_gives_it_back() -> None:
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
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_switches")
def test_loops_in_several_threads_share_the_places() -> None:
    semaphore, lock = FairSemaphore(3), threading.Lock()
    together = threading.Barrier(3)
    inside, most, visits = 0, 0, 0

    async def visit() -> None:
        nonlocal inside, most, visits
        for _ in range(50):
            async with semaphore:
                with lock:
                    inside += 1
                    most, visits = max(most, inside), visits + 1
                try:
                    await asyncio.sleep(0)
                finally:
                    with lock:
                        inside -= 1

    async def many() -> None:
        visitors = [asyncio.create_task(visit()) for _ in range(14)]
        await asyncio.sleep(0)
        for visitor in visitors[::7]:
            visitor.cancel()
        await asyncio.wait_for(asyncio.gather(*visitors, return_exceptions=True), 20)

    def run() -> None:
        together.wait()
        asyncio.run(many())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, semaphore.held) == (3, 0)
    assert visits >= 3 * 12 * 50


# ------------------------------------------------------------------------------------------------------------- seats


class Family:
    """Children at work on few places, who lend theirs while they wait for something, and take it again."""

    def __init__(self, limit: int) -> None:
        self.semaphore = FairSemaphore(limit)
        self.children: list[asyncio.Task[None]] = []
        self.may_end: list[asyncio.Event] = []
        self.loans: list[list[asyncio.Event]] = []
        self.seats: dict[int, Permit] = {}
        self.groups: dict[int, asyncio.TaskGroup] = {}

    async def child(self, n: int) -> None:
        async with Permit(self.semaphore) as permit:
            self.seats[n] = permit
            try:
                async with asyncio.TaskGroup() as group:
                    self.groups[n] = group
                    await self.may_end[n].wait()
            finally:
                del self.seats[n]

    async def loan(self, n: int, back: asyncio.Event) -> None:
        async with self.seats[n].released():
            await back.wait()
        self.loans[n].remove(back)

    def begin(self, _: int) -> None:
        self.may_end.append(asyncio.Event())
        self.loans.append([])
        self.children.append(asyncio.create_task(self.child(len(self.children))))

    def lend(self, which: int) -> None:
        working = [n for n in self.seats if not self.may_end[n].is_set() and not self.children[n].cancelling()]
        if working:
            n = working[which % len(working)]
            self.loans[n].append(asyncio.Event())
            self.groups[n].create_task(self.loan(n, self.loans[n][-1]))

    def come_back(self, which: int) -> None:
        lent = [back for loans in self.loans for back in loans]
        if lent:
            lent[which % len(lent)].set()

    def end(self, which: int) -> None:
        if self.children:
            self.may_end[which % len(self.children)].set()

    def cancel(self, which: int) -> None:
        if self.children:
            self.children[which % len(self.children)].cancel()

    @property
    def at_work(self) -> int:
        """How many are in their block and have lent nothing; a loan lasts until its place is taken again."""
        return sum(not self.loans[n] for n in self.seats)

    @property
    def wanting(self) -> int:
        """How many would be at work if there were places enough."""
        loans = [self.loans[n] for n, child in enumerate(self.children) if not child.done()]
        return sum(all(back.is_set() for back in each) for each in loans)


FAMILY = at_once(Family.begin, Family.lend, Family.lend, Family.come_back, Family.come_back, Family.end, Family.cancel)


@bounded
@given(st.integers(1, 3), FAMILY)
def test_lent_places_are_never_held_twice_lost_or_waited_for_in_vain(limit: int, plan: list[Happening[Family]]) -> None:
    async def play() -> None:
        family = Family(limit)
        for happening in plan:
            for act, which in happening:
                act(family, which)
            await rest()
            assert family.at_work <= family.semaphore.held <= limit
            assert family.semaphore.held == min(limit, family.wanting)
        for ending in (*family.may_end, *(back for loans in family.loans for back in loans)):
            ending.set()
        await asyncio.wait_for(asyncio.gather(*family.children, return_exceptions=True), 20)
        assert family.semaphore.held == 0

    asyncio.run(play())


async def test_of_two_loans_that_end_while_the_place_is_taken_both_come_back_to_one_place() -> None:
    semaphore = FairSemaphore(1)
    backs = asyncio.Event(), asyncio.Event()
    async with Permit(semaphore) as permit:

        async def lend(back: asyncio.Event) -> None:
            async with permit.released():
                await back.wait()

        first = asyncio.create_task(lend(backs[0]))
        await rest()
        await semaphore.acquire()  # another is at work meanwhile
        backs[0].set()
        await rest()
        second = asyncio.create_task(lend(backs[1]))
        await rest()
        backs[1].set()
        await rest()
        assert (first.done(), second.done(), semaphore.held) == (False, False, 1)
        semaphore.release()
        await asyncio.wait_for(asyncio.gather(first, second), 20)
        assert semaphore.held == 1
    assert semaphore.held == 0


async def test_a_place_that_is_lent_again_while_it_is_waited_for_stays_free_for_others() -> None:
    semaphore = FairSemaphore(1)
    backs = asyncio.Event(), asyncio.Event()
    async with Permit(semaphore) as permit:

        async def lend(back: asyncio.Event) -> None:
            async with permit.released():
                await back.wait()

        first = asyncio.create_task(lend(backs[0]))
        await rest()
        await semaphore.acquire()  # another is at work meanwhile
        backs[0].set()
        await rest()
        second = asyncio.create_task(lend(backs[1]))
        await rest()
        semaphore.release()
        await rest()
        assert (first.done(), second.done(), semaphore.held) == (True, False, 0)
        backs[1].set()
        await second
        assert semaphore.held == 1
    assert semaphore.held == 0


async def test_a_loan_that_outlives_its_child_takes_no_place() -> None:
    semaphore, back = FairSemaphore(1), asyncio.Event()
    async with Permit(semaphore) as permit:

        async def lend() -> None:
            async with permit.released():
                await back.wait()

        loan = asyncio.create_task(lend())
        await rest()
    back.set()
    await loan
    assert semaphore.held == 0


async def test_who_is_cancelled_while_the_place_is_lent_does_not_wait_for_it() -> None:
    semaphore = FairSemaphore(1)

    async def child() -> None:
        async with Permit(semaphore) as permit, permit.released():
            await asyncio.Event().wait()

    task = asyncio.create_task(child())
    await rest()
    await semaphore.acquire()
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert (task.cancelled(), semaphore.held) == (True, 1)


async def test_a_loan_that_fails_comes_back_like_any_other() -> None:
    semaphore = FairSemaphore(1)
    async with Permit(semaphore) as permit:

        async def fail() -> None:
            async with permit.released():
                assert semaphore.held == 0
                raise RuntimeError("no luck")

        with pytest.raises(RuntimeError):
            await fail()
        assert semaphore.held == 1


async def test_a_child_that_lends_its_place_to_children_that_lend_theirs_never_blocks_itself() -> None:
    semaphore, deepest = FairSemaphore(1), 0

    async def child(depth: int) -> None:
        nonlocal deepest
        async with Permit(semaphore) as permit:
            deepest = max(deepest, depth)
            assert semaphore.held == 1
            if depth < 4:
                async with permit.released(), asyncio.TaskGroup() as group:
                    for _ in range(3):
                        group.create_task(child(depth + 1))

    await asyncio.wait_for(child(1), 20)
    assert (deepest, semaphore.held) == (4, 0)


@pytest.mark.usefixtures("quick_switches")
def test_a_place_may_be_lent_by_threads_of_the_child() -> None:
    semaphore, together = FairSemaphore(2), threading.Barrier(4)

    async def lend(permit: Permit) -> None:
        for _ in range(200):
            async with permit.released():
                await asyncio.sleep(0)

    def run(permit: Permit) -> None:
        together.wait()
        asyncio.run(lend(permit))

    async def child() -> None:
        async with Permit(semaphore) as permit:
            await asyncio.gather(*(asyncio.to_thread(run, permit) for _ in range(4)))
            assert semaphore.held == 1

    asyncio.run(asyncio.wait_for(child(), 20))
    assert semaphore.held == 0
