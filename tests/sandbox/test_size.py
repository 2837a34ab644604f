"""How much a child may add to its workspace."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Job, Task
from delegate.engine import executor
from delegate.sandbox.filesystem.trees import tree_bytes
from delegate.sandbox.workspace.folder import Folder
from delegate.testing import Scripted
from delegate.types import TaskResult, Workspace
from delegate.types.errors import ToolError, WorkspaceTooLarge

MB = 1_000_000


async def result_of(delegator: Delegator, **task: Any) -> TaskResult:
    async with delegator:
        result = await delegator.run(Task(goal="Write.", **task))
    assert result.error is None
    return result.results[0]


async def test_the_file_tools_write_no_more_than_a_child_may(tmp_path: Path) -> None:
    folder = await Folder.open(None, home=tmp_path, max_bytes=3 * MB)
    folder.write("a", b"x" * 2 * MB)
    with pytest.raises(ToolError, match="more than 3 MB"):
        folder.write("b", b"x" * 2 * MB)
    folder.write("a", b"y" * 2_900_000)
    await folder.check_size()
    assert os.listdir(folder.root) == ["a"]


async def test_what_was_there_before_does_not_count(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "node_modules").mkdir(parents=True)
    (project / "node_modules" / "large").write_bytes(b"x" * 4 * MB)
    shared = Workspace(mode="shared", path=project)
    folder = await Folder.open(shared, home=tmp_path / "home", max_bytes=3 * MB)
    await folder.check_size()
    (project / "node_modules" / "more").write_bytes(b"x" * 4 * MB)
    with pytest.raises(WorkspaceTooLarge, match="more than 3 MB"):
        await folder.check_size()


def test_sizes_count_hard_links_once_and_holes_not_at_all_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * MB)
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(100 * MB)
    before = os.open(tmp_path, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 100, dir_fd=before)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=before)
        os.close(before)
        before = below
    deep = os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=before)
    os.write(deep, b"x" * MB)
    os.close(deep)
    os.close(before)
    assert 2 * MB <= tree_bytes(tmp_path) <= 3 * MB
    assert tree_bytes(tmp_path, enough=10) < 2 * MB


async def test_a_command_that_writes_too_much_ends_its_child() -> None:
    model = Scripted([Scripted.call("run_shell", command="head -c 4000000 /dev/zero > big"), "never asked for"])
    delegator = Delegator(client=model, max_workspace_mb=3, commands="allow")
    result = await result_of(delegator, acceptance_criteria=({"kind": "file", "path": "big"},))
    assert result.error
    assert (result.status, result.error.code) == ("failed", "workspace_too_large")
    assert "max_workspace_mb" in (result.error.hint or "")
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.code) == ("FAIL", "run_failed")
    assert result.receipts.tools == {"run_shell": 1}
    assert len(model.requests) == 1


@pytest.mark.parametrize("goes_on", [True, False])
async def test_what_a_runner_writes_is_measured_meanwhile_and_at_its_end(
    goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def child(job: Job) -> str:
        (job.workspace / "big").write_bytes(b"x" * 4 * MB)
        if goes_on:
            await asyncio.Event().wait()
        return "I wrote `big`."

    monkeypatch.setattr(executor, "WATCH_SECONDS", 0.01)
    async with asyncio.timeout(5):
        result = await result_of(Delegator(runner=child, max_workspace_mb=3))
    assert result.error
    assert (result.status, result.error.code) == ("failed", "workspace_too_large")
    if not goes_on:
        assert result.report == "I wrote `big`."
        assert (await result_of(Delegator(runner=child, max_workspace_mb=float("inf")))).status == "completed"


async def test_small_files_count_with_what_they_take_up_on_the_disk(tmp_path: Path) -> None:
    folder = await Folder.open(None, home=tmp_path, max_bytes=40_000)
    for n in range(5):
        folder.write(f"{n}", b"x")
    await folder.check_size()
    for n in range(20):
        folder.write(f"{n}", b"x")
    with pytest.raises(WorkspaceTooLarge):
        await folder.check_size()
    assert sum(file.stat().st_blocks * 512 for file in folder.root.iterdir()) > 40_000
    await folder.close()


@pytest.mark.parametrize("told", [Folder.make, Folder.expect_writers])
async def test_what_others_write_to_a_fresh_folder_counts(told: Callable[[Folder], object], tmp_path: Path) -> None:
    folder = await Folder.open(None, home=tmp_path, max_bytes=3 * MB)
    folder.write("a", b"x")
    told(folder)
    (folder.root / "b").write_bytes(b"x" * 4 * MB)
    with pytest.raises(WorkspaceTooLarge, match="more than 3 MB"):
        await folder.check_size()
    await folder.close()
