"""A stopped call leaves nothing running and loses no finished work, whenever and however it is stopped."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from delegate import (
    CallError,
    Cancellation,
    ChildRun,
    Delegator,
    Job,
    Parent,
    Receipt,
    RunResult,
    Task,
    TaskResult,
    Verdict,
)
from delegate.models.providers.scripted import Scripted
from delegate.types.events import Event
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.deadlines import SECONDS, in_time
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.samples import sampled
from tests.support.trees import Tree

MODEL = "gpt-6-luna"
TURN = Parent(run_id="turn-1")
PATIENCE = 10
"""Timeout of a test, in seconds."""
DONE = "did my part as asked"
HALF = Reply("half-way there", tool_calls=(("write_file", {"path": "half.txt", "content": "half"}),))
HANGS = Fault(kind="hang")


# ------------------------------------------------------------------------------------------------------- the model


class Model(ModelServer):
    """A model that replies to a goal from `words`, turn by turn, to other goals at once, and never to judges."""

    def __init__(self, **words: list[Reply | Fault]) -> None:
        super().__init__(self._say)
        self._words = words
        self._hanging = self._under_way = 0
        self._changed = threading.Condition()

    def _say(self, call: Call) -> Reply | Fault:
        said = HANGS if call.wants_json else self._to_child(call.texts[0].split()[0], len(call.tool_results))
        with self._changed:
            self._hanging += said is HANGS
            self._changed.notify_all()
        return said

    def _to_child(self, goal: str, turn: int) -> Reply | Fault:
        return self._words[goal][turn] if goal in self._words else Reply(DONE)

    def received(self, connection: Any, call: Call) -> None:
        self._count(1)
        super().received(connection, call)

    def answered(self) -> None:
        super().answered()
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._under_way += change
            self._changed.notify_all()

    def about(self, goal: str) -> int:
        """The number of calls for this goal."""
        return sum(not call.wants_json and call.texts[0].split()[0] == goal for call in self.calls)

    async def hangs(self, number: int) -> None:
        """Wait for this many calls that are never answered."""
        await asyncio.to_thread(self._wait, lambda: self._hanging >= number)

    async def is_left_alone(self) -> None:
        """Wait until all callers without a reply have closed their connection."""
        await asyncio.to_thread(self._wait, lambda: not self._under_way)

    def _wait(self, until: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(until, PATIENCE), f"{self._under_way} calls are under way"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model], Model]:
    import_module("delegate.models.providers.openai")  # takes a second, which must not count against a deadline

    def use(model: Model) -> Model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        return model

    return use


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with Tree(tmp_path / "shared") as tree:
        yield tree


# ------------------------------------------------------------------------------------------------------------- moments


@dataclass(frozen=True)
class Moment:
    """A point in a child's run: what exists by then, and how to detect that it has been reached."""

    turns: Callable[[Tree], list[Reply | Fault]]
    has_come: Callable[[Model, Tree], Awaitable[object]]
    model_calls: int
    """The calls answered by then."""
    receipts: tuple[tuple[str, str], ...] = (("write_file", "ok"),)
    report: str = HALF.text
    criteria: Callable[[Tree], tuple[Any, ...]] = lambda tree: ()
    completed: bool = False
    """Whether the child has ended and only the verdict is missing."""
    cut_off: int = 0
    """The calls of all children and judges that are under way then. They count, since they may be billed."""
    own_cut_off: int = 0
    """Those of the child itself."""
    refused: int = 0
    """The child's calls that were refused. The last refusal may be on its way, and then the call counts as cut off."""


def _shell(command: str) -> Reply:
    return Reply("now the tests", tool_calls=(("run_shell", {"command": command}),))


_DELEGATES = Reply("now others", tool_calls=(("delegate_task", {"tasks": [{"goal": "grand child"}]}),))
_REFUSED = Fault(429, headers={"retry-after-ms": "400"})

MOMENTS = {
    "a model call hangs": Moment(
        lambda tree: [HALF, HANGS], lambda model, tree: model.hangs(1), model_calls=1, cut_off=1, own_cut_off=1
    ),
    "a rate limit is waited for": Moment(
        lambda tree: [HALF, _REFUSED],
        lambda model, tree: asyncio.to_thread(model.wait_for_calls, 3, PATIENCE),
        model_calls=1,
        refused=1,
    ),
    "a command runs": Moment(
        lambda tree: [HALF, _shell(tree.command)],
        lambda model, tree: asyncio.to_thread(tree.wait_until_up),
        model_calls=2,
        receipts=(("write_file", "ok"), ("run_shell", "timeout")),
        report="now the tests",
    ),
    "a grandchild works": Moment(
        lambda tree: [HALF, _DELEGATES],
        lambda model, tree: model.hangs(1),
        model_calls=2,
        receipts=(("write_file", "ok"), ("delegate_task", "timeout")),
        report="now others",
        cut_off=1,
    ),
    "a check runs": Moment(
        lambda tree: [HALF, Reply(DONE)],
        lambda model, tree: asyncio.to_thread(tree.wait_until_up),
        model_calls=2,
        report=DONE,
        # Not before the child has written it: the command also runs on the files of before, beside the child.
        criteria=lambda tree: ({"kind": "shell", "command": f"test -f half.txt || exit 1; {tree.command}"},),
        completed=True,
        cut_off=1,  # the next task's
    ),
    "the judge is asked": Moment(
        lambda tree: [HALF, Reply(DONE)],
        lambda model, tree: model.hangs(2),  # and the next task's
        model_calls=2,
        report=DONE,
        criteria=lambda tree: ("report: the part was done",),
        completed=True,
        cut_off=2,
    ),
}


@dataclass
class Scene:
    """Three tasks with one permit: the first has finished, the second is stopped, the third is waiting."""

    moment: Moment
    tree: Tree
    model: Model
    delegator: Delegator
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the first task has its verdict."""

    def tasks(self, **fields: Any) -> list[Task]:
        done = {"kind": "regex", "pattern": "did my part"}
        workspace, criteria = {"mode": "shared", "path": self.tree.folder}, self.moment.criteria(self.tree)
        return [
            Task.model_validate({"goal": "quick", "acceptance_criteria": [done]}),
            Task.model_validate({"goal": "stops", "workspace": workspace, "acceptance_criteria": criteria, **fields}),
            Task(goal="third"),
        ]

    def note(self, event: Event) -> None:
        if (event.kind, event.task_index) == ("verdict", 0):
            self.done.set()

    async def has_come(self) -> None:
        await asyncio.wait_for(self.done.wait(), PATIENCE)
        await self.moment.has_come(self.model, self.tree)

    def run(
        self, cancellation: Cancellation | None = None, parent: Parent | None = None, **fields: Any
    ) -> "asyncio.Task[RunResult]":
        tasks = self.tasks(**fields)
        return asyncio.create_task(
            self.delegator.run(*tasks, on_event=self.note, cancellation=cancellation, parent=parent)
        )

    def others_asked_too_late(self) -> bool:
        """Whether a child got the permit in the instant of the deadline from another one, and sent a call as well."""
        others = self.model.about("third") + self.model.about("grand")
        return others > self.moment.cut_off - self.moment.own_cut_off

    async def on_record(self, run_id: str, number: int = 3) -> list[TaskResult]:
        records = [await self.delegator.records.read(f"{run_id}-{n}") for n in range(number)]
        return [TaskResult.model_validate(record["result"]) for record in records if record]

    async def receipts(self, result: TaskResult) -> list[Receipt]:
        record = await self.delegator.records.read(result.handle or "")
        assert record
        return list(ChildRun.model_validate(record["run"]).receipts)


# ---------------------------------------------------------------------------------------------------------------- ways

Way = Callable[[Scene, str], Awaitable[list[TaskResult]]]


async def from_another_thread(scene: Scene, run_id: str) -> list[TaskResult]:
    cancellation = Cancellation()
    call = scene.run(cancellation)
    await scene.has_come()
    await asyncio.to_thread(cancellation.cancel)
    return await _reported(scene, call, run_id)


async def from_a_signal_handler_twice(scene: Scene, run_id: str) -> list[TaskResult]:
    cancellation = Cancellation()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: cancellation.cancel())
    try:
        call = scene.run(cancellation)
        await scene.has_come()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGUSR1)
        return await _reported(scene, call, run_id)
    finally:
        signal.signal(signal.SIGUSR1, before)


async def by_cancelling_the_awaiting_task_again_and_again(scene: Scene, run_id: str) -> list[TaskResult]:
    call = scene.run()
    await scene.has_come()
    for _ in range(20):
        call.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, PATIENCE)
    return await scene.on_record(run_id)


async def _reported(scene: Scene, call: "asyncio.Task[RunResult]", run_id: str) -> list[TaskResult]:
    result = await asyncio.wait_for(call, PATIENCE)
    assert list(result.results) == await scene.on_record(run_id)
    return list(result.results)


WAYS = (from_another_thread, from_a_signal_handler_twice, by_cancelling_the_awaiting_task_again_and_again)


@asynccontextmanager
async def _scene(
    moment: str, tree: Tree, endpoint: Callable[[Model], Model], *, third: Reply | Fault = HANGS, **options: Any
) -> AsyncGenerator[tuple[Scene, str]]:
    """A scene and the ID of its run. Checks at the end that the run holds no reservation: one more call must fit."""
    played = MOMENTS[moment]
    settings: dict[str, Any] = {
        "model": MODEL, "judge_model": MODEL, "max_depth": 2, "max_concurrent": 1, "commands": "allow",
        "max_run_model_calls": 1 + played.model_calls + played.cut_off + played.refused + 1, **options,
    }  # fmt: skip
    with Model(stops=played.turns(tree), third=[third], grand=[HANGS]) as model:
        endpoint(model)
        async with Delegator(**settings) as delegator:
            with delegator.root_run(TURN) as run_id:
                yield Scene(played, tree, model, delegator), run_id
                assert tree.left() == []
                await model.is_left_alone()


async def _can_go_on(scene: Scene) -> None:
    again = await asyncio.wait_for(scene.delegator.run(Task(goal="next")), PATIENCE)
    assert [(one.status, one.report) for one in again.results] == [("completed", DONE)], again


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("moment", sampled(MOMENTS))
async def test_a_stopped_call_leaves_nothing_running_and_loses_no_work(
    moment: str, way: Way, tree: Tree, endpoint: Callable[[Model], Model]
) -> None:
    async with _scene(moment, tree, endpoint) as (scene, run_id):
        quick, stopped, third = await way(scene, run_id)
        assert quick.verdict
        assert (quick.status, quick.verdict.verdict) == ("completed", "PASS"), "what had ended keeps its result"
        status = "completed" if scene.moment.completed else "cancelled"
        assert (stopped.status, stopped.error.code if stopped.error else "completed") == (status, status)
        await _what_was_done_is_there(scene, stopped)
        _the_verdict_says(scene, stopped, "cancelled")
        assert (third.status, third.error.code if third.error else None) == ("cancelled", "cancelled")
        await _can_go_on(scene)


async def _what_was_done_is_there(scene: Scene, stopped: TaskResult) -> None:
    moment = scene.moment
    assert stopped.report == moment.report
    assert [(one.tool, one.status) for one in await scene.receipts(stopped)] == list(moment.receipts)
    assert [artifact.path for artifact in stopped.artifacts] == ["half.txt"]
    certain = moment.model_calls + moment.own_cut_off
    assert certain <= stopped.usage.model_calls <= certain + moment.refused


def _the_verdict_says(scene: Scene, stopped: TaskResult, code: str) -> None:
    asked = [call for call in scene.model.calls if call.wants_json]
    if not scene.moment.completed:
        assert stopped.verdict is None, "there were no criteria"
        assert not asked
        return
    assert stopped.verdict
    assert (stopped.verdict.verdict, stopped.verdict.code) == ("FAIL", code)
    assert len(asked) == (1 if scene.moment is MOMENTS["the judge is asked"] else 0)
    attempts = stopped.verdict.judge.attempts if stopped.verdict.judge else ()
    assert len(attempts) == len(asked), "a judge that was asked is on record"


# ----------------------------------------------------------------------------------------------------------- deadlines

_PLAYS = [*(("parent", moment) for moment in MOMENTS), *(("run", f"{what} runs") for what in ("a command", "a check"))]


async def test_waiting_for_a_rate_limit_is_not_the_childs_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(seconds: float) -> tuple[TaskResult, TaskResult]:
        task, refused = (
            Task(goal="slow", timeout_seconds=seconds),
            Fault(429, headers={"retry-after": str(1.5 * seconds)}),
        )
        with ModelServer([refused, Reply(DONE), *[refused] * 20]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
            monkeypatch.setenv("OPENAI_API_KEY", "dummy")
            async with Delegator(model=MODEL) as delegator:
                (waited,) = (await delegator.run(task)).results
                (bounded,) = (await delegator.run(task, parent=Parent(seconds_left=2 * seconds))).results
        return waited, bounded

    waited, bounded = await in_time(play, lambda played: played[0].status == "completed")
    assert (waited.status, waited.seconds > 0.4) == ("completed", True), waited.error
    assert (bounded.status, bounded.seconds > 0.5) == ("timeout", True), "its parent's time is absolute"


@pytest.mark.parametrize("moment", ["a model call hangs", "a command runs"])
async def test_a_childs_own_timeout_stops_only_that_child(
    moment: str, tmp_path: Path, endpoint: Callable[[Model], Model]
) -> None:
    for seconds in SECONDS:
        with Tree(tmp_path / str(seconds)) as tree:
            async with _scene(moment, tree, endpoint, third=Reply(DONE), max_run_model_calls=9) as (scene, run_id):
                quick, stopped, third = await _reported(scene, scene.run(timeout_seconds=seconds), run_id)
                if await _had_come(scene, stopped):
                    assert [quick.status, stopped.status, third.status] == ["completed", "timeout", "completed"]
                    return


@pytest.mark.parametrize(("whose", "moment"), sampled(_PLAYS, 4))
async def test_a_deadline_of_the_parent_or_the_run_stops_everything_left(
    whose: str, moment: str, tmp_path: Path, endpoint: Callable[[Model], Model]
) -> None:
    for seconds in SECONDS:
        options: dict[str, Any] = {"run_timeout_seconds": seconds} if whose == "run" else {}
        parent = Parent(seconds_left=seconds) if whose == "parent" else None
        with Tree(tmp_path / str(seconds)) as tree:
            async with _scene(moment, tree, endpoint, **options) as (scene, run_id):
                results = await _reported(scene, scene.run(parent=parent), run_id)
                if not results:  # the deadline came before the first task
                    continue
                quick, stopped, third = results
                if await _had_come(scene, stopped) and not scene.others_asked_too_late():
                    if whose == "parent":
                        await _can_go_on(scene)
                    status = "completed" if scene.moment.completed else "timeout"
                    assert (quick.status, stopped.status) == ("completed", status)
                    _the_verdict_says(scene, stopped, "budget_exceeded")
                    assert third.status in ("timeout", "budget_exceeded")
                    return
    pytest.fail(f"in {SECONDS[-1]} s, the moment didn't come")


async def _had_come(scene: Scene, stopped: TaskResult) -> bool:
    """Whether everything that belongs to the moment exists. If not, the deadline came first, or something was lost."""
    try:
        await _what_was_done_is_there(scene, stopped)
        return True
    except AssertionError:
        if float(scene.tree.folder.name) == SECONDS[-1]:
            raise
        return False


# ------------------------------------------------------------------------------------------- connections, by provider

KEYS = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "gpt-6-luna"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "claude-haiku-4-5"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "gemini-3.8-flash"),
}


@pytest.mark.parametrize(("provider", "kind"), [*((provider, "hang") for provider in KEYS), ("openai", "stall")])
async def test_the_connection_of_a_stopped_model_call_is_closed(
    provider: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module(f"delegate.models.providers.{provider}")  # which may take seconds
    fault = Fault(200, {"id": "x" * 100}, kind=kind)
    with Model(hang=[fault]) as model:
        key, url, name = KEYS[provider]
        monkeypatch.setenv(key, "dummy-key")
        monkeypatch.setenv(url, getattr(model, f"{provider}_url"))
        cancellation = Cancellation()
        async with Delegator(model=name) as delegator:
            call = asyncio.create_task(delegator.run(Task(goal="hang"), cancellation=cancellation))
            await asyncio.to_thread(model.wait_for_calls, 1, PATIENCE)
            cancellation.cancel()
            result = await asyncio.wait_for(call, PATIENCE)
            assert [one.status for one in result.results] == ["cancelled"], result
            await model.is_left_alone()


# ------------------------------------------------------------------------------------------------ before, after, beside


async def test_what_is_stopped_before_its_start_never_starts_and_is_recorded_if_there_is_a_report(home: Path) -> None:
    client, cancellation = Scripted(lambda request: "never asked"), Cancellation()
    async with Delegator(client=client) as delegator:
        call = asyncio.create_task(delegator.call({"goal": "a"}))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not (home / "records.sqlite3").exists()
        with pytest.raises(CallError) as late:
            await delegator.run(Task(goal="a"), Task(goal="b"), parent=Parent(seconds_left=0))
        cancellation.cancel()
        run = await delegator.call({"tasks": [{"goal": "a"}, {"goal": "b"}]}, cancellation=cancellation)
        records = [await delegator.records.read(result.handle or "") for result in run.results]
    assert late.value.code == "budget_exceeded"
    assert [(one.status, one.usage.model_calls) for one in run.results] == [("cancelled", 0)] * 2
    assert [record and record["result"]["status"] for record in records] == ["cancelled"] * 2
    assert not client.requests


async def test_one_cancellation_stops_all_its_calls_and_no_finished_one() -> None:
    hanging = asyncio.Semaphore(0)

    async def answer(request: ChatRequest) -> str:
        if "hang" in request.messages[0].text:
            hanging.release()
            await asyncio.Event().wait()
        return DONE

    ours, theirs = Cancellation(), Cancellation()
    async with Delegator(client=Scripted(answer)) as delegator:
        ended = await delegator.call({"goal": "quick"}, cancellation=theirs)
        theirs.cancel()
        calls = [asyncio.create_task(delegator.call({"goal": "hang"}, cancellation=ours)) for _ in range(2)]
        other = asyncio.create_task(delegator.call({"goal": "hang"}))
        for _ in range(3):
            await hanging.acquire()
        ours.cancel()
        stopped = await asyncio.gather(*calls)
        assert not other.done()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert ended.all_pass
    assert [one.results[0].status for one in stopped] == ["cancelled"] * 2


async def test_an_event_listener_may_cancel_and_no_judge_is_called() -> None:
    client, cancellation = Scripted(lambda request: DONE), Cancellation()

    def watch(event: Event) -> None:
        if event.kind == "child.done":
            cancellation.cancel()

    async with Delegator(client=client, on_event=watch) as delegator:
        run = await delegator.call({"goal": "a", "acceptance_criteria": ["done"]}, cancellation=cancellation)
    (result,) = run.results
    assert result.verdict
    assert (result.status, result.verdict.verdict, result.verdict.code) == ("completed", "FAIL", "cancelled")
    assert len(client.requests) == 1


async def test_a_grandchild_of_a_stopped_call_has_its_own_recorded_result(
    tree: Tree, endpoint: Callable[[Model], Model]
) -> None:
    async with _scene("a grandchild works", tree, endpoint) as (scene, run_id):
        _, boss, _ = await from_another_thread(scene, run_id)
        grandchild = (await scene.on_record(run_id, number=4))[-1]
    assert (grandchild.status, grandchild.handle) == ("cancelled", f"{run_id}-3")
    assert boss.delegated
    assert (boss.delegated.tasks, boss.delegated.completed) == (1, 0)


# -------------------------------------------------------------------------------------- what takes its time to be gone


class Tidy:
    """A custom runner that takes a while to clean up."""

    needs_model = False
    records_tools = True

    def __init__(self) -> None:
        self.at_work = asyncio.Event()
        self.is_tidy = False

    async def run(self, job: Job) -> ChildRun:
        try:
            self.at_work.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
            self.is_tidy = True
        raise AssertionError


async def test_cleanup_is_awaited_however_often_the_call_is_cancelled() -> None:
    runner = Tidy()
    async with Delegator(runner=runner) as delegator:
        call = asyncio.create_task(delegator.call({"goal": "a"}))
        await runner.at_work.wait()
        while not call.done():
            call.cancel()
            await asyncio.sleep(0)
        assert call.cancelled()
    assert runner.is_tidy


async def test_a_workspace_that_is_still_being_created_is_discarded(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\ncd {tree.folder}\n{tree.without_daemon}\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(git.parent), prepend=os.pathsep)
    client, cancellation = Scripted(lambda request: "never asked"), Cancellation()
    task = Task.model_validate({"goal": "a", "workspace": {"mode": "worktree", "path": tree.folder}})
    async with Delegator(client=client) as delegator:
        call = asyncio.create_task(delegator.run(task, cancellation=cancellation))
        await asyncio.to_thread(tree.wait_until_up)
        cancellation.cancel()
        run = await asyncio.wait_for(call, PATIENCE)
    (result,) = run.results
    assert (result.status, result.workspace) == ("cancelled", None)
    assert tree.left() == []
    assert not client.requests


# ---------------------------------------------------------------------------------------------------------- at any time


async def _writes_a_file(request: ChatRequest) -> ChatReply | str:
    await asyncio.sleep(0.001)
    return DONE if len(request.messages) > 1 else Scripted.call("write_file", path="a.txt", content="a")


_CRITERIA = [{"kind": "file", "path": "a.txt"}, {"kind": "regex", "pattern": "did"}]
_TASKS = [{"goal": f"part {n}", "acceptance_criteria": _CRITERIA} for n in range(3)]


@pytest.mark.parametrize("times", [0, 3], ids=["by a cancellation", "three times"])
async def test_whenever_a_call_is_stopped_every_started_task_has_one_end(home: Path, times: int) -> None:
    ends: list[str] = []
    async with Delegator(client=Scripted(_writes_a_file), max_concurrent=2) as delegator:
        await delegator.call({"tasks": _TASKS})
        began = time.perf_counter()
        await delegator.call({"tasks": _TASKS})
        usual = time.perf_counter() - began
        for n in range(12):
            cancellation = Cancellation()
            call = asyncio.create_task(delegator.call({"tasks": _TASKS}, cancellation=cancellation))
            await asyncio.sleep(usual * n / 10)
            for _ in range(times):
                call.cancel()
                await asyncio.sleep(0)
            cancellation.cancel()
            (ended,) = await asyncio.gather(call, return_exceptions=True)
            ends.append(type(ended).__name__)
    with closing(sqlite3.connect(home / "records.sqlite3")) as records:
        found = records.execute("SELECT status, result IS NULL FROM tasks").fetchall()
    assert set(found) <= {("completed", 0), ("cancelled", 0)}, found
    assert len(found) == 3 * 14 or times, "a report has all its tasks"
    assert "CancelledError" in ends if times else set(ends) == {"RunResult"}
    assert set(ends) <= {"RunResult", "CancelledError"}


# ------------------------------------------------------------------------------------------------ the synchronous doors


@pytest.mark.parametrize("how", ["from another thread", "by an interrupt"])
def test_a_synchronous_call_stops_its_children_before_it_ends(tree: Tree, how: str) -> None:
    main, cancellation = threading.get_ident(), Cancellation()
    is_interrupted = how == "by an interrupt"

    def stop() -> None:
        tree.wait_until_up()
        signal.pthread_kill(main, signal.SIGINT) if is_interrupted else cancellation.cancel()

    stopper = threading.Thread(target=stop)
    stopper.start()
    task = Task.model_validate({"goal": "a", "workspace": {"mode": "shared", "path": tree.folder}})
    client = Scripted([Scripted.call("run_shell", command=tree.command)])
    with Delegator(client=client, commands="allow") as delegator:
        with delegator.root_run() as run_id, pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
            delegator.run_sync(task, cancellation=cancellation)
        stopper.join()
        assert tree.left() == []
        record = asyncio.run(delegator.records.read(f"{run_id}-0"))
    assert record
    assert (record["result"]["status"], record["result"]["receipts"]["timeout"]) == ("cancelled", 1)


# --------------------------------------------------------------------------------------------------- judging alone


@pytest.mark.parametrize("how", ["cancellation", "task"])
async def test_stopping_a_standalone_judgment_stops_its_check(how: str, tree: Tree) -> None:
    cancellation = Cancellation()
    criteria = [{"kind": "shell", "command": tree.command}]
    async with Delegator(client=Scripted([])) as delegator:
        judging = asyncio.create_task(
            delegator.judge(
                goal="a", acceptance_criteria=criteria, report=DONE, workspace=tree.folder, cancellation=cancellation
            )
        )
        await asyncio.to_thread(tree.wait_until_up)
        cancellation.cancel() if how == "cancellation" else judging.cancel()
        (ended,) = await asyncio.wait_for(asyncio.gather(judging, return_exceptions=True), PATIENCE)
    assert tree.left() == []
    if how == "task":
        assert isinstance(ended, asyncio.CancelledError)
    else:
        assert isinstance(ended, Verdict)
        assert (ended.verdict, ended.code) == ("FAIL", "cancelled")
