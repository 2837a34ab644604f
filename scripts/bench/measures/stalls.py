"""The longest time for which a hostile child, page or model reply keeps the event loop from running anything else.

A heartbeat on the loop measures the gaps between its beats while one delegation works on something extreme. It takes
a minute and doesn't measure speed, so it runs only if it is named: `python -m scripts.bench stalls`.
`tests/test_stalls.py` runs a smaller version.
"""

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegate import Delegator, Job, Settings, Task
from delegate.child.page import readable
from delegate.records.recorder import MAX_REPORT_CHARS
from delegate.sandbox.filesystem.trees import remove_tree
from delegate.testing import Scripted
from delegate.types import Artifact, ChildRun
from delegate.types.ports import ChatReply, ChatRequest, Tool, ToolOutput
from scripts.bench.arena import Arena, Row

LIMIT_MS = 50
FOLDERS, DEPTH, ARTIFACTS = 100_000, 2_000, 100_000
GOAL_CHARS = 1_000_000
TEXT_CHARS, FILE_CHARS, PAGE_CHARS = 16_000_000, 5_000_000, 2_000_000
BEAT_SECONDS = 0.002

CRITERIA = [
    {"kind": "regex", "pattern": "(a|aa|[^b])*b$"},
    {"kind": "json_schema", "schema": {"type": "object"}},
    {"kind": "json_predicate", "expr": "output.items.length > 3"},
    "the report says what was done",
]
TEXTS = {
    "one line": "a",
    "newlines": "\n",
    "fences": "<<<",
    "quotes": '"',
    "backslashes": "\\",
    "code fences": "```json\n",
    "words": "I wrote `a.txt` and sent sk-a-b_c. ",
    "other scripts": "Ğ<\u202e文\u200b ",
    "keys": " ".join(("-----BEGIN A PRIVATE", "KEY-----")),  # in parts, since the whole looks like a secret
    "control characters": "\x1b[0m\x00",
}
"""What the long texts consist of."""


class Heartbeat:
    """Measures the longest time between two runs of a task, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.longest = 0.0
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Beat inside the block."""
        beating = asyncio.create_task(self._beat())
        await asyncio.sleep(2 * BEAT_SECONDS)
        self.longest = 0.0
        try:
            yield
            await asyncio.sleep(2 * BEAT_SECONDS)
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            started = self._clock()
            await asyncio.sleep(BEAT_SECONDS)
            self.longest = max(self.longest, self._clock() - started - BEAT_SECONDS)


@dataclass(frozen=True)
class Attack:
    """One thing that a child can do. `act` gets an empty folder for what it needs, and the heartbeat to start."""

    what: str
    act: Callable[[Path, Heartbeat], Awaitable[None]]


async def longest_stall(attack: Attack, clock: Callable[[], float] = time.monotonic) -> float:
    """Carry out the attack and return the longest stall in milliseconds. `warm_up` goes before the first.

    With `time.process_time` as the clock, only what this process did counts, and no other process's work.
    """
    heartbeat = Heartbeat(clock)
    # What the attacks are made of isn't delegate's: collecting that garbage would count as a stall.
    gc.collect()
    gc.freeze()
    folder = Path(tempfile.mkdtemp(prefix="delegate-stalls-"))
    try:
        await attack.act(folder, heartbeat)
    finally:
        await asyncio.to_thread(remove_tree, folder)
    return heartbeat.longest * 1000


async def warm_up() -> None:
    """Do once what imports modules on its first use."""
    with tempfile.TemporaryDirectory(prefix="delegate-stalls-") as home:
        await _report("I made `a.txt`.", 15)(Path(home), Heartbeat())
        await _tool_output("{}", 2)(Path(home), Heartbeat())


def attacks(scale: float = 1, texts: float = 1) -> Iterator[Attack]:
    """All attacks. With a smaller `scale`, folders and artifacts are fewer; with smaller `texts`, long ones shorter."""
    yield Attack("empty folders in a workspace", _in_workspace(_MANY_FOLDERS, int(FOLDERS * scale)))
    yield Attack("files in a workspace", _in_workspace(_MANY_FILES, int(ARTIFACTS * scale)))
    yield Attack("deep folders in a workspace", _in_workspace(_DEEP, DEPTH))
    yield Attack("deleted files of a workspace", _in_workspace(_DELETED, int(FOLDERS * scale)))
    yield Attack("artifacts that a runner reports", _artifacts(int(ARTIFACTS * scale)))
    for name, text in TEXTS.items():
        yield Attack(f"report of {name}", _report(text, int(MAX_REPORT_CHARS * texts)))
        yield Attack(f"report of {name}, 16 MB", _report(text, int(TEXT_CHARS * texts)))
    for name, text in JSON_TEXTS.items():
        yield Attack(f"report of {name}", _report(text, len(text)))
    for name, text in TEXTS.items():
        yield Attack(f"tool output of {name}", _tool_output(text, int(TEXT_CHARS * texts)))
    for name, text in TEXTS.items():
        yield Attack(f"read and edit a file of {name}", _file(text, int(FILE_CHARS * texts)))
    yield Attack("16 long files written in one reply", _files(16, int(FILE_CHARS * texts)))
    for name, text in PAGES.items():
        yield Attack(f"page of {name}", _page(text, int(PAGE_CHARS * texts)))
    yield Attack("long goal", _goal("a <<< goal ", int(GOAL_CHARS * texts)))


JSON_TEXTS = {
    "a JSON list of zeros": json.dumps({"items": [0] * 165_000}),
    "a JSON list of fractions": json.dumps({"items": [0.5] * 95_000}),
    "a JSON object with many keys": json.dumps({f"k{n}": n for n in range(33_000)}),
    "many JSON objects": json.dumps({"items": [{}] * 120_000}),
    "deep JSON": "[" * 240_000 + "]" * 240_000,
    "a long number": '{"items": ' + "9" * 490_000 + "}",
    "a long word": '{"items": "' + "a" * 490_000 + '"}',
}
PAGES = {
    "<": "<", "<a ": "<a ", "<!--": "<!--", "&": "&", "<a href='": "<a href='", "links": "<a href=x>y",
    "lists": "<ul><li>",
}  # fmt: skip

_MANY_FOLDERS = "for n in range(size): os.mkdir(str(n))"
_MANY_FILES = "for n in range(size): open(str(n), 'w').close()"
_DEEP = "for n in range(size):\n os.mkdir('d')\n os.chdir('d')"
_DELETED = f"{_MANY_FILES}\nfor n in range(size): os.unlink(str(n))"


def _in_workspace(script: str, size: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    """A child that runs `script` in its workspace; measured from its end."""

    async def act(home: Path, heartbeat: Heartbeat) -> None:
        async with Delegator(Settings(home=home), runner=child) as delegator:
            stack.append(heartbeat)
            result = await delegator.run(Task(goal="Make folders.", acceptance_criteria=(_file_exists(),)))
            assert result.results[0].status == "completed", result.results[0].error
        await running.pop().__aexit__(None, None, None)

    async def child(job: Job) -> str:
        program = [sys.executable, "-c", f"import os\nsize = {size}\n{script}"]
        await asyncio.to_thread(subprocess.run, program, cwd=job.workspace, check=True)
        running.append(stack.pop().running())
        await running[0].__aenter__()
        return "I made folders."

    stack: list[Heartbeat] = []
    running: list[Any] = []
    return act


def _file_exists() -> Any:
    return {"kind": "regex", "pattern": "made"}


def _report(unit: str, chars: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    async def act(home: Path, heartbeat: Heartbeat) -> None:
        text = unit * (chars // len(unit))

        async def child(job: Job) -> str:
            return text

        async with Delegator(Settings(home=home), client=Scripted(_judge), runner=child) as delegator:
            for criterion in CRITERIA:
                async with heartbeat_running(heartbeat):
                    await delegator.run(Task(goal="Report.", acceptance_criteria=(criterion,)))  # type: ignore[arg-type]

    return act


@asynccontextmanager
async def heartbeat_running(heartbeat: Heartbeat) -> AsyncGenerator[None]:
    """Measure inside the block, and keep the longest stall of earlier blocks."""
    before = heartbeat.longest
    async with heartbeat.running():
        yield
    heartbeat.longest = max(heartbeat.longest, before)


def _artifacts(size: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    async def act(home: Path, heartbeat: Heartbeat) -> None:
        made = tuple(Artifact(path=f"{n}.txt", change="created", bytes=n) for n in range(size))

        async def child(job: Job) -> ChildRun:
            return job.recorder.finish("completed", report="I made `0.txt`.", artifacts=made)

        gc.freeze()
        async with (
            Delegator(Settings(home=home), client=Scripted(_judge), runner=child) as delegator,
            heartbeat.running(),
        ):
            await delegator.run(Task(goal="Make files.", acceptance_criteria=("report: the files are made",)))  # type: ignore[arg-type]

    return act


def _tool_output(unit: str, chars: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    def answer(request: ChatRequest) -> ChatReply | str:
        return "I looked." if request.messages[-1].role == "tool" else Scripted.call("look")

    async def act(home: Path, heartbeat: Heartbeat) -> None:
        text = unit * (chars // len(unit))

        async def call(arguments: Any) -> ToolOutput:
            return ToolOutput(text)

        tool = Tool("look", "Look.", {"type": "object", "properties": {}}, call)
        criterion = {"kind": "receipt", "calls": [{"tool": "look", "result": {"$matches": "(a|aa)*b"}}]}
        async with (
            Delegator(Settings(home=home), client=Scripted(answer), tools=[tool]) as delegator,
            heartbeat.running(),
        ):
            await delegator.run(Task(goal="Look.", acceptance_criteria=(criterion,)))  # type: ignore[arg-type]

    return act


def _file(unit: str, size: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    calls = [
        Scripted.call("read_file", path="big.txt"),
        Scripted.call("read_file", path="big.txt", offset=4_000_000),
        Scripted.call("edit_file", path="big.txt", old_text="aaab" * 1_000, new_text=""),
        Scripted.call("search_files", pattern="(a|aa)*b"),
        Scripted.call("list_files"),
    ]

    def answer(request: ChatRequest) -> ChatReply | str:
        turn = sum(message.role == "tool" for message in request.messages)
        return calls[turn] if turn < len(calls) else "I read `big.txt`."

    async def act(home: Path, heartbeat: Heartbeat) -> None:
        project = home / "project"
        project.mkdir()
        text = unit * (size // len(unit.encode()))
        (project / "big.txt").write_text(text)
        (project / "small.txt").write_text(text[:1_000_000])
        task = {"goal": "Read.", "workspace": {"path": project, "mode": "shared"}}
        criterion = {"kind": "file", "path": "big.txt", "contains": "aaab" * 1_000}
        async with Delegator(Settings(home=home), client=Scripted(answer)) as delegator, heartbeat.running():
            await delegator.run(Task.model_validate({**task, "acceptance_criteria": [criterion]}))

    return act


def _files(number: int, chars: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    content = "I wrote `a.txt`. " * (chars // 17)
    written = Scripted.calls(*(("write_file", {"path": f"{n}.txt", "content": content}) for n in range(number)))

    def answer(request: ChatRequest) -> ChatReply | str:
        return "I wrote them." if request.messages[-1].role == "tool" else written

    async def act(home: Path, heartbeat: Heartbeat) -> None:
        criterion = {"kind": "file", "path": "0.txt"}
        async with Delegator(Settings(home=home), client=Scripted(answer)) as delegator, heartbeat.running():
            await delegator.run(Task(goal="Write.", acceptance_criteria=(criterion,)))  # type: ignore[arg-type]

    return act


def _page(unit: str, chars: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    async def act(home: Path, heartbeat: Heartbeat) -> None:
        text = unit * (chars // len(unit))
        async with heartbeat.running():
            await asyncio.to_thread(readable, text, "https://example.org/")  # as `fetch_url` does

    return act


def _goal(unit: str, chars: int) -> Callable[[Path, Heartbeat], Awaitable[None]]:
    async def act(home: Path, heartbeat: Heartbeat) -> None:
        text = unit * (chars // len(unit))
        client = Scripted(["Done: it is done.", "no"])
        async with Delegator(Settings(home=home), client=client) as delegator, heartbeat.running():
            await delegator.run(Task(goal=text, acceptance_criteria=("report: it is done",)))  # type: ignore[arg-type]

    return act


def _judge(request: ChatRequest) -> str:
    return "no"


def measure(arena: Arena) -> Iterator[Row]:
    """Carry out all attacks."""
    asyncio.run(warm_up())
    for attack in attacks(0.2 if arena.quick else 1):
        started = time.monotonic()
        stall = asyncio.run(longest_stall(attack))
        yield Row(f"stall by: {attack.what}, ms", stall, LIMIT_MS, f"in {time.monotonic() - started:.1f} s")
