"""`delegate.workspace()`: how tools of one's own learn where their child works."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import delegate
from delegate import Delegator, Job, RunResult, Task, Tool
from delegate.models.providers.scripted import Scripted
from delegate.types.errors import DelegateError
from delegate.types.ports import ChatReply, ChatRequest

NOTED: Any = [{"kind": "file", "path": "note.txt", "contains": "tide"}]


async def write_note(text: str) -> str:
    """Write a note."""
    (delegate.workspace() / "note.txt").write_text(text)
    return "written"


def write_note_in_a_thread(text: str) -> str:
    """Write a note."""
    (delegate.workspace() / "note.txt").write_text(text)
    return "written"


def read_note() -> str:
    """Read the note."""
    return (delegate.workspace() / "note.txt").read_text()


def noting(tool: str) -> Scripted:
    """A child that writes what its goal says, by this tool."""

    def answer(request: ChatRequest) -> ChatReply | str:
        goal = request.messages[0].text
        text = "tide and moon" if "moon" in goal else "tide"
        return Scripted.call(tool, text=text) if len(request.messages) == 1 else "I wrote it."

    return Scripted(answer)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that delegate runs in, where no child's file may appear."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("function", [write_note, write_note_in_a_thread])
async def test_what_a_tool_writes_there_is_the_child_s_work(function: Any, elsewhere: Path) -> None:
    async with Delegator(client=noting(function.__name__), tools=[Tool.from_function(function)]) as delegator:
        run = await delegator.run(Task(goal="Note it.", acceptance_criteria=NOTED))
    (result,) = run.results
    assert result.verdict
    assert (result.verdict.verdict, [one.path for one in result.artifacts]) == ("PASS", ["note.txt"])
    assert list(elsewhere.iterdir()) == []


async def test_a_probe_after_the_child_has_its_workspace() -> None:
    tools = [Tool.from_function(write_note), Tool.from_function(read_note, read_only=True)]
    probe: Any = {"kind": "probe", "tool": "read_note", "args": {}, "expr": "output == 'tide'"}
    async with Delegator(client=noting("write_note"), tools=tools) as delegator:
        result = await delegator.run(Task(goal="Note it.", acceptance_criteria=[probe]))
    verdict = result.results[0].verdict
    assert verdict
    assert verdict.verdict == "PASS", verdict.reasoning


async def test_it_is_the_job_s_folder_in_a_runner_and_what_it_starts() -> None:
    async def child(job: Job) -> str:
        seen = {delegate.workspace(), await asyncio.to_thread(delegate.workspace)}
        seen.add(await asyncio.create_task(_workspace()))
        assert seen == {job.workspace}
        return "seen"

    assert (await _run(child)).results[0].report == "seen"


async def test_a_grandchild_has_its_own_and_its_parent_keeps_its_own() -> None:
    folders: list[Path] = []

    async def child(job: Job) -> str:
        folders.append(delegate.workspace())
        if len(folders) == 1:
            await _run_inside(job)
            folders.append(delegate.workspace())
        return "done"

    async def _run_inside(job: Job) -> None:
        await delegator.call({"goal": "Inside."})

    async with Delegator(runner=child, max_depth=2) as delegator:
        await delegator.run(Task(goal="Outside."))
    outer, inner, again = folders
    assert outer == again != inner


@pytest.mark.parametrize("where", ["before", "after", "in a thread of one's own"])
async def test_outside_of_a_child_it_is_an_error_that_says_what_to_do(where: str) -> None:
    found: list[Exception] = []

    def ask() -> None:
        try:
            delegate.workspace()
        except DelegateError as error:
            found.append(error)

    async def child(job: Job) -> str:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return "done"

    if where == "before":
        ask()
    else:
        await _run(child)
        if where == "after":
            found.clear()
            ask()
    (error,) = found
    assert "only a child's tools and its runner" in str(error)
    assert "before you start it" in str(error)


async def _workspace() -> Path:
    return delegate.workspace()


async def _run(child: Any) -> RunResult:
    async with Delegator(runner=child) as delegator:
        return await delegator.run(Task(goal="Look."))
