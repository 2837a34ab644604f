"""Measures the outcome of every failure: real delegations, through the real SDKs, over HTTP, all side by side."""

import asyncio
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest.mock import patch

from delegate import Delegator, Settings, Task
from delegate.models.catalog import Model, Price
from delegate.models.providers import Endpoint, _http, connect
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel
from delegate.types import JsonObject, RunResult, TaskResult
from delegate.types.events import Event
from tests.failure_modes.failures import ROWS, SCENES, WIRES, EndedBy, Row, Scene, WireName, good
from tests.support.model_server import Call, Fault, ModelServer, Pieces, Reply
from tests.support.repeats import repeat_quickly

T = TypeVar("T")

AT_ONCE = 80
"""Calls of a delegator. More only take each other's time, until timeouts tell nothing."""
CALL_TIMEOUT_SECONDS = 3.0
"""Where nothing else ends a call."""
DEADLINE_SECONDS = 3.5
"""Of the task, or of the run while its judge is asked, where nothing else ends it."""
LIMIT_SECONDS = 90.0
"""Of everything else: what comes near it has hung."""
PROTOCOLS: Mapping[WireName, Literal["openai", "anthropic", "google"]] = {
    "chat": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "generate": "google",
}
PRICES = {"judge": 0.001, "other": 0.002, "worker": 0.01, "steady": 0.01}
"""US dollars per million tokens. The cheapest model judges, the second cheapest after it."""
IN_WORDS = "report: The report says how many words there are."
BY_CODE = {"kind": "regex", "pattern": "twelve words"}


@dataclass(frozen=True)
class Measured:
    """One call of two tasks: the first met the failure, the second is its sibling."""

    wire: WireName
    scene: Scene
    row: Row
    result: RunResult
    asked: int
    """How often the server was asked by the one that the failure was meant for."""
    events: Counter[tuple[str, int | None]]
    """By kind and task."""
    records: list[JsonObject | None]

    @property
    def victim(self) -> TaskResult:
        return self.result.results[0]

    @property
    def outcome(self) -> str:
        """As in `failures.py`."""
        return f"{self._fate()} ({self.asked})"

    def problems(self) -> list[str]:
        """What isn't as it should be, in words."""
        expected = self.row.expected(self.wire, self.scene)
        where = f"{self.wire}, {self.scene}, {self.row.words}"
        found = [] if self.outcome == expected else [f"{self.outcome}, not {expected}"]
        return [f"{where}: {problem}" for problem in (*found, *self._lost(), *self._misjudged(), *self._spread())]

    def _fate(self) -> str:
        verdict, error = self.victim.verdict, self.victim.error
        assert verdict
        if self.victim.status != "completed":
            return f"{self.victim.status}: {error.code if error else None}"
        if self.scene == "first_judge" and verdict.verdict == "PASS":
            assert verdict.judge
            return f"PASS by the {'first' if verdict.judge.model == 'judge' else 'other'}"
        return f"{verdict.verdict}: {verdict.code}"

    def _lost(self) -> Iterator[str]:
        """Each task ends once, and what it came to is on record."""
        if [result.task_index for result in self.result.results] != [0, 1]:
            yield f"{len(self.result.results)} results"
        for result, record in zip(self.result.results, self.records, strict=True):
            n = result.task_index
            ends = self.events["child.done", n], self.events["verdict", n]
            if ends != (1, 1):
                yield f"task {n} ended and was judged {ends} times"
            if not record or record["state"] != "ended" or record["result"]["status"] != result.status:
                yield f"task {n} isn't on record"
            if result.seconds > LIMIT_SECONDS:
                yield f"task {n} took {result.seconds:g} s"

    def _misjudged(self) -> Iterator[str]:
        """A failed child isn't judged; each judge that was asked stands on the verdict, with what came of it."""
        verdict = self.victim.verdict
        assert verdict
        if self.victim.status != "completed" and (verdict.code, verdict.judge) != ("run_failed", None):
            yield f"a child that didn't complete was judged {verdict.code}"
        asked = [(one.model, one.fault) for one in verdict.judge.attempts] if verdict.judge else []
        if self.scene != "child" and asked != self._expected_attempts():
            yield f"judges were asked so: {asked}"
        if self.scene == "child" and self.victim.receipts.total != self.row.child_receipts:
            yield f"{self.victim.receipts.total} receipts"

    def _expected_attempts(self) -> list[tuple[str, str | None]]:
        fault = "timeout" if self.row.ended_by == "deadline" else self.row.fault(self.wire)
        other = "by the other" in self.row.expected(self.wire, self.scene)
        return [("judge", fault), *([("other", None)] if other else [])]

    def _spread(self) -> Iterator[str]:
        sibling = self.result.results[1]
        if sibling.status != "completed" or not sibling.verdict or sibling.verdict.verdict != "PASS":
            yield f"the sibling: {sibling.status} {sibling.error} {sibling.verdict and sibling.verdict.reasoning}"


@dataclass(frozen=True)
class Group:
    """Rows, by number, whose calls go through one delegator side by side."""

    wire: WireName
    scene: Scene
    rows: list[int]

    @property
    def ended_by(self) -> EndedBy:
        return ROWS[self.rows[0]].ended_by

    @property
    def name(self) -> str:
        return f"{self.wire}-{self.scene}-{self.rows[0]}"


class Script:
    """Shows each failure to the one task whose goal names it, at the model that the scene is about."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, call: Call) -> Reply | Fault | Pieces:
        found = re.search(r"\[(\w+) (\w+) (\d+) (\w+)\]", call.texts[0])
        assert found
        wire, scene, number, part = found.groups()
        if part != "victim" or call.model != ("worker" if scene == "child" else "judge"):
            return good(call)
        case = f"{wire} {scene} {number}"
        self.asked[case] += 1
        row = ROWS[int(number)]
        return row.answer(call) if self.asked[case] <= row.times else good(call)


@dataclass(frozen=True)
class Bench:
    """What all that is measured shares."""

    server: ModelServer
    home: Path
    script: Script
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))


async def measure(home: Path, *, scenes_of: Callable[[int, WireName], Sequence[Scene]]) -> list[Measured]:
    """The scenes of every row (by number) and API, in no order.

    What only a time limit ends comes last, when the machine has little else to do.
    """
    script = Script()
    # A request that a server resets is sent again if its connection had been idle, which here depends on the machine.
    never_idle = patch.object(_http, "CLOSED_AFTER", math.inf)
    with never_idle, ModelServer(script, record=False) as server:
        bench = Bench(server, home, script)
        groups = _groups(scenes_of)
        passing = [group for group in groups if group.ended_by == "itself"]
        hanging = [group for group in groups if group.ended_by != "itself"]
        return [one for part in (passing, hanging) for one in await _measure_groups(part, bench)]


def every_scene(row: int, wire: WireName) -> Sequence[Scene]:
    """With this, everything is measured."""
    return SCENES


def once_by_another_judge(row: int, wire: WireName) -> Sequence[Scene]:
    """With this, each row meets another judge on one API: whether one is asked depends on the failure alone."""
    return SCENES if WIRES.index(wire) == row % len(WIRES) else ("child", "judge")


def on_one_api(row: int, wire: WireName) -> Sequence[Scene]:
    """With this, each row is measured on one API, at a child or at one of the judges."""
    scene, api = divmod(row, len(WIRES))
    return (SCENES[scene % len(SCENES)],) if WIRES.index(wire) == api else ()


async def _measure_groups(groups: Sequence[Group], bench: Bench) -> list[Measured]:
    return list(chain.from_iterable(await _side_by_side([_measure_group(group, bench) for group in groups])))


async def _side_by_side(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


def _groups(scenes_of: Callable[[int, WireName], Sequence[Scene]]) -> list[Group]:
    """What can go through one delegator: a refusal concerns all who call the same model. The slowest come first."""
    rows: dict[tuple[EndedBy, int], list[int]] = {}
    for number, row in enumerate(ROWS):
        rows.setdefault((row.ended_by, -number if row.limits_the_model else 0), []).append(number)
    return [
        Group(wire, scene, chosen)
        for key in sorted(rows)
        for wire in WIRES
        for scene in SCENES
        if (chosen := [row for row in rows[key] if scene in scenes_of(row, wire)])
    ]


async def _measure_group(group: Group, bench: Bench) -> list[Measured]:
    async with _delegator(group, bench.server, bench.home / group.name) as delegator:
        return await _side_by_side([_measure(group, number, delegator, bench) for number in group.rows])


async def _measure(group: Group, number: int, delegator: Delegator, bench: Bench) -> Measured:
    row, case = ROWS[number], f"{group.wire} {group.scene} {number}"
    events: Counter[tuple[str, int | None]] = Counter()

    def count(event: Event) -> None:
        events[event.kind, event.task_index] += 1

    async with bench.places:
        run = await delegator.run(*_tasks(case, group.scene, row), on_event=count)
    records = [await delegator.records.read(result.handle or "") for result in run.results]
    return Measured(group.wire, group.scene, row, run, bench.script.asked[case], events, records)


def _tasks(case: str, scene: Scene, row: Row) -> tuple[Task, Task]:
    """The victim and its sibling; where the provider refuses a whole model, the sibling doesn't need it."""
    victim: JsonObject = {"goal": f"[{case} victim] Count.", "model": "worker", "acceptance_criteria": [IN_WORDS]}
    sibling = victim | {"goal": f"[{case} sibling] Count."}
    if row.limits_the_model:
        sibling |= {"model": "steady"} if scene == "child" else {}
        sibling |= {"acceptance_criteria": [BY_CODE]} if scene == "judge" else {}
    if row.ended_by == "deadline" and scene == "child":
        victim |= {"timeout_seconds": DEADLINE_SECONDS}
    return Task.model_validate(victim), Task.model_validate(sibling)


@asynccontextmanager
async def _delegator(group: Group, server: ModelServer, home: Path) -> AsyncGenerator[Delegator]:
    async with AsyncExitStack() as stack:
        client, models = None, {"endpoints": _endpoints(group.wire, server)}
        settings = _settings(group, home)
        if group.wire == "responses":  # of declared endpoints none is spoken to in this way; a host's own access may be
            endpoint = Endpoint("openai", server.openai_url, "none", "responses")
            client = connect(endpoint, timeout_seconds=settings.call_timeout_seconds)
            stack.push_async_callback(client.aclose)
            models = {"models": _models()}
        delegator = Delegator(settings.model_copy(update=models), client=client)
        repeat_quickly(delegator, faster=2)
        yield await stack.enter_async_context(delegator)


def _settings(group: Group, home: Path) -> Settings:
    hangs, late = group.ended_by == "call_timeout", group.ended_by == "deadline" and group.scene != "child"
    return Settings(
        home=home,
        judge_model=None if group.scene == "first_judge" else "judge",
        max_steps=4,
        call_timeout_seconds=CALL_TIMEOUT_SECONDS if hangs else LIMIT_SECONDS,
        timeout_seconds=LIMIT_SECONDS,
        run_timeout_seconds=DEADLINE_SECONDS if late else LIMIT_SECONDS,
    )


def _endpoints(wire: WireName, server: ModelServer) -> tuple[DeclaredEndpoint, ...]:
    """The one that fails, and another for the other judge, since some failures are those of a whole endpoint."""
    own = server.openai_url if wire == "chat" else server.url
    models = {
        name: DeclaredModel(id=name, tier="standard", input_price=price, output_price=price)
        for name, price in PRICES.items()
    }
    other = models.pop("other")
    return (
        DeclaredEndpoint(name="house", base_url=own, protocol=PROTOCOLS[wire], models=tuple(models.values())),
        DeclaredEndpoint(name="elsewhere", base_url=server.openai_url, models=(other,)),
    )


def _models() -> tuple[Model, ...]:
    return tuple(
        Model(
            id=name,
            provider="anthropic" if name == "other" else "openai",
            family="local",
            tier="standard",
            context_tokens=100_000,
            max_output_tokens=4_096,
            structured_output=True,
            tools=True,
            prices=(Price(input=price, output=price),),
        )
        for name, price in PRICES.items()
    )
