"""The limits that one process of a user has learned are known to the others, by a file that nothing depends on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from delegate import Delegator, Task
from delegate.models import shared_limits
from delegate.models.ratelimit import RateLimiter
from delegate.models.shared_limits import CLOCK_SECONDS, MAX_BYTES, MAX_FILES, path_of
from delegate.types.errors import ProviderError
from delegate.types.ports import Quota
from tests.models.limited_process import settings
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.virtual_time import FOREVER, Answer, World, play, refusal, through
from tests.support.wire_formats import FORMATS

ROOT = Path(__file__).parents[2]
PROCESSES, TURNS, PER_SECOND = 12, 15, 15
HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
SEND = """
import asyncio, sys
from pathlib import Path
from delegate.models.ratelimit import RateLimiter

async def main():
    async for attempt in RateLimiter(shared=Path(sys.argv[1])).attempts(patience=9):
        with attempt:
            print("sent", flush=True)
            sys.stdin.read()

asyncio.run(main())
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")


async def well() -> Answer:
    return Answer()


async def refused() -> Answer:
    raise refusal(retry_after=3)


@contextmanager
def started(program: str, path: Path) -> Generator[subprocess.Popen[str]]:
    """A process that has said its first word."""
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as process:
        assert process.stdout
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


async def learn(path: Path, clock: Callable[[], float] = time.monotonic, retry_after: float = 3) -> None:
    """Let the limiter of another process see a rejection."""

    async def rejected() -> Answer:
        raise refusal(retry_after=retry_after)

    with pytest.raises(ProviderError):
        await through(RateLimiter(clock=clock, shared=path), rejected, patience=0)


async def learn_quota(path: Path) -> None:
    """Let the limiter of another process see a quota that is low, but leaves enough for the calls of a test."""

    async def low() -> Answer:
        return Answer(Quota(6_000, 100, 60.0))

    await through(RateLimiter(shared=path), low, FOREVER)


def known(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())["learned"]


# --------------------------------------------------------------------------------------------------------- sharing


def test_a_pause_that_one_process_was_asked_for_is_kept_by_another(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        limiter = RateLimiter(clock=world.clock, shared=tmp_path / "x.json")
        await learn(tmp_path / "x.json", world.clock)
        await through(limiter, well, FOREVER)
        assert 2.99 < world.clock() < 3.1

    play(scene)


def test_a_rejection_elsewhere_is_the_error_of_a_call_without_patience(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await learn(tmp_path / "x.json", world.clock)
        limiter = RateLimiter(clock=world.clock, shared=tmp_path / "x.json")
        with pytest.raises(ProviderError, match="rejected a call of another process") as raised:
            await through(limiter, well, patience=1)
        assert (raised.value.fault, raised.value.status) == ("rate_limited", 429)
        assert 2.9 < (raised.value.retry_after or 0) <= 3

    play(scene)


def test_a_quota_that_is_nearly_used_up_is_known_elsewhere(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async def last() -> Answer:
            return Answer(Quota(60, 0, 60.0))

        await through(RateLimiter(clock=world.clock, shared=tmp_path / "x.json"), last, FOREVER)
        await through(RateLimiter(clock=world.clock, shared=tmp_path / "x.json"), well, FOREVER)
        assert 0.9 < world.clock() < 1.2

    play(scene)


def test_without_a_limit_no_file_is_written(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async def plenty() -> Answer:
            return Answer(Quota(60, 59, 1.0))

        await through(RateLimiter(clock=world.clock, shared=tmp_path / "limits" / "x.json"), plenty, FOREVER)

    play(scene)
    assert not list(tmp_path.iterdir())


def test_what_is_forgotten_leaves_an_empty_file(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        path = tmp_path / "x.json"

        async def nearly() -> Answer:
            return Answer(Quota(60, 20, 2.0))

        limiter = RateLimiter(clock=world.clock, shared=path)
        await through(limiter, nearly, FOREVER)
        assert path.stat().st_size
        await asyncio.sleep(2)
        await through(limiter, well, FOREVER)
        assert not path.stat().st_size

    play(scene)


def test_other_keys_models_and_addresses_have_files_of_their_own(tmp_path: Path) -> None:
    names = {
        path_of(tmp_path, url=url, key=key, model=model).name
        for url in ("https://a", "https://b")
        for key in ("one key", "another")
        for model in ("m", "n")
    }
    assert len(names) == 8


def test_old_files_are_removed_beyond_a_number(tmp_path: Path) -> None:
    for n in range(MAX_FILES + 5):
        (tmp_path / f"{n}.json").write_text("{}")
        os.utime(tmp_path / f"{n}.json", (n, n))
    asyncio.run(learn(tmp_path / "new.json"))
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == MAX_FILES
    assert {"new.json", f"{MAX_FILES + 4}.json"} <= left
    assert "0.json" not in left


async def test_neither_name_nor_content_has_an_address_a_key_or_a_text(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMITED_KEY", "sk-secret-5")
    with ModelServer(lambda _: Fault(429, {"error": {"message": "no sk-secret-5"}}, {"retry-after": "400"})) as server:
        async with Delegator(settings(home, server.openai_url, 1, "LIMITED_KEY")) as host:
            await host.run(Task(goal="Count."))
        (path,) = (home / "limits").iterdir()
        said = path.name + path.read_text()
    assert "sk-secret" not in said
    assert "127.0.0.1" not in said
    assert str(server.openai_url) not in said
    assert path.stat().st_mode & 0o077 == 0


# ------------------------------------------------------------------------------------------ processes that disappear


async def test_a_killed_process_that_held_the_lock_blocks_no_one(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    await learn_quota(path)
    limiter = RateLimiter(shared=path)
    with started(HOLD, path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        await through(limiter, well, patience=9)
    assert limiter._is_joined  # pyright: ignore[reportPrivateUsage]


async def test_a_process_that_keeps_the_lock_delays_another_once_and_briefly(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    await learn_quota(path)
    limiter = RateLimiter(shared=path)
    with started(HOLD, path) as holder:
        began = time.monotonic()
        for _ in range(20):
            await through(limiter, well, patience=9)
        assert time.monotonic() - began < 2 * shared_limits.LOCK_SECONDS + 0.2
        assert holder.poll() is None


async def test_the_calls_of_a_killed_process_are_no_longer_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    await learn_quota(path)
    limiter = RateLimiter(shared=path)
    with started(SEND, path) as sender:
        await through(limiter, well, patience=9)
        assert [caller["in_flight"] for caller in known(path)["callers"].values()] == [1]
        sender.kill()
        sender.wait()
        await through(limiter, well, patience=9)
    assert known(path)["callers"] == {}


# ------------------------------------------------------------------------------------------------------ damaged files

DAMAGED = {
    "nothing": b"",
    "half": b'{"version": 1, "clock": 17',
    "bytes": bytes(range(256)),
    "a list": b"[]",
    "a deep one": b"[" * 100_000,
    "another version": b'{"version": 2}',
    "too long": b" " * (MAX_BYTES + 1),
}


async def replied_at_once(path: Path) -> bool:
    """Whether nothing that the file says delays a call."""
    limiter = RateLimiter(shared=path)
    began = time.monotonic()
    await through(limiter, well, FOREVER)
    return time.monotonic() - began < 1


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
async def test_a_damaged_file_is_as_if_empty_and_then_written_anew(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert await replied_at_once(path)
    await learn(path)
    assert known(path)["rejections"] == 1


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "below a file", "a loop"])
async def test_what_is_no_file_is_as_if_there_were_none(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a loop":
        path.symlink_to(path)
    else:
        path.write_text("")
        path /= "y.json"
    assert await replied_at_once(path)
    await learn(path)


@pytest.mark.parametrize("change", [{"clock": 2 * CLOCK_SECONDS}, {"at": -400.0}])
async def test_a_file_of_another_start_of_the_machine_or_an_old_one_is_as_if_empty(
    change: dict[str, float], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    await learn(path)
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps(document | {name: document[name] + by for name, by in change.items()}))
    assert await replied_at_once(path)


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each number and text in a document, as its container and key."""
    children = cast("Iterable[tuple[Any, Any]]", value.items() if isinstance(value, dict) else enumerate(value))
    for key, child in list(children):
        if isinstance(child, (dict, list)):
            yield from leaves(child)
        else:
            yield value, key


NUMBERS = (0, -1, 1e12, 10**40, 10**400, float("inf"), float("nan"), None)


def test_no_number_in_a_file_makes_a_call_fail_or_wait_for_long(tmp_path: Path) -> None:
    """Each is replaced by each of the values above. What can't be is as if empty; all else ends with a call sent."""
    path = tmp_path / "x.json"

    async def scene(world: World) -> None:
        async def nearly() -> Answer:
            return Answer(Quota(60, 20, 2.0, 9_000, 100, 2.0))

        async def overloaded() -> Answer:
            raise refusal()

        limiter = RateLimiter(clock=world.clock, shared=path)
        await learn(path, world.clock, retry_after=0.1)
        for answer in (nearly, overloaded, nearly):
            with suppress(ProviderError):
                await through(limiter, answer, patience=2)
        document, start, read = json.loads(path.read_bytes()), world.clock(), 0
        for container, key in list(leaves(document["learned"])):
            before = container[key]
            for number in NUMBERS:
                container[key] = number
                path.write_text(json.dumps(document | {"clock": time.time() - start}))
                read += await goes_on(world, start)
            container[key] = before
        assert read > 100

    async def goes_on(world: World, start: float) -> bool:
        """Two calls are rejected, others aren't, whatever the file says. Return whether it was believed."""
        began, answers = world.clock(), iter([refused, refused])

        async def answer() -> Answer:
            return await next(answers, well)()

        limiter = RateLimiter(clock=lambda: world.clock() - began + start, shared=path)
        id = limiter._learned.id  # pyright: ignore[reportPrivateUsage]
        for _ in range(4):
            with suppress(ProviderError):
                await through(limiter, answer, patience=1)
        assert world.clock() - began < 5
        return limiter._learned.id != id  # pyright: ignore[reportPrivateUsage]

    play(scene)


# ------------------------------------------------------------------------------------------------------ what it costs


@pytest.mark.slow
def test_without_a_limit_a_call_costs_less_than_a_tenth_of_a_millisecond(tmp_path: Path) -> None:
    async def seconds(limiter: RateLimiter) -> float:
        began = time.perf_counter()
        for _ in range(1_000):
            await through(limiter, well, FOREVER)
        return (time.perf_counter() - began) / 1_000

    async def least(limiter: RateLimiter) -> float:
        return min([await seconds(limiter) for _ in range(5)])

    shared = asyncio.run(least(RateLimiter(shared=tmp_path / "limits" / "x.json")))
    alone = asyncio.run(least(RateLimiter()))
    print(f"{shared * 1e6:.1f} µs for each call, {alone * 1e6:.1f} µs where nothing is shared")
    assert shared < 1e-4


class Limited:
    """Answers `PER_SECOND` calls in any second, and rejects the rest. `says` the quota of a bucket in its headers."""

    def __init__(self, *, says: bool) -> None:
        self._says = says
        self._left, self._at = float(PER_SECOND), 0.0
        self.answered: list[float] = []
        self.rejected = 0

    def __call__(self, call: Call) -> Reply | Fault:
        self._left, self._at = min(PER_SECOND, self._left + PER_SECOND * (call.at - self._at)), call.at
        if self._left < 1:
            self.rejected += 1
            return Fault(429, headers={"retry-after": "1"})
        self._left -= 1
        self.answered.append(call.at)
        turn = len(call.tool_results) + 1
        reply = Reply("Counted.") if turn == TURNS else Reply(tool_calls=(("think", {"thought": f"{turn}"}),))
        if not self._says:
            return reply
        full_in = (PER_SECOND - self._left) / PER_SECOND
        said = {"limit": PER_SECOND, "remaining": int(self._left), "reset": f"{full_in:.3f}s"}
        body = FORMATS["chat"].render(reply, call.model, len(self.answered))
        return Fault(200, body, {f"x-ratelimit-{name}-requests": str(value) for name, value in said.items()})

    @property
    def per_second(self) -> float:
        return (len(self.answered) - PER_SECOND) / (self.answered[-1] - self.answered[0])


def throughput(home: Path, limited: Limited, processes: int) -> float:
    """Run the children, in so many processes. Return the share of their calls that was rejected."""
    command = [sys.executable, "-m", "tests.models.limited_process", str(home)]
    with ModelServer(limited) as server:
        command += [server.openai_url, str(PROCESSES // processes)]
        running = [
            subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, cwd=ROOT) for _ in range(processes)
        ]
        for process in running:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=100) for process in running]
    assert [line for out, _ in said for line in out.split()] == ["completed:"] * PROCESSES, said
    return limited.rejected / (limited.rejected + len(limited.answered))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "says",
    [
        pytest.param(False, id="429 with retry-after"),
        pytest.param(True, id="and headers of quotas", marks=pytest.mark.more_cases),
    ],
)
def test_twelve_processes_are_as_fast_as_one_and_none_of_their_children_fails(says: bool, tmp_path: Path) -> None:
    """The pauses after rejections depend on chance: where one round isn't enough, several are counted together."""
    one = twelve = 0.0
    for n in range(3):
        together, apart = Limited(says=says), Limited(says=says)
        rejected = [throughput(tmp_path / f"one-{n}", together, 1), throughput(tmp_path / f"12-{n}", apart, PROCESSES)]
        assert len(apart.answered) == PROCESSES * TURNS
        one, twelve = one + together.per_second, twelve + apart.per_second
        print(f"{together.per_second:.2f} calls per second, {apart.per_second:.2f} of twelve; {rejected} rejected")
        if twelve > 0.9 * one:
            return
    raise AssertionError(f"{twelve / one:.0%} of the calls of one process")
