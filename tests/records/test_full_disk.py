"""Nothing is spent if records can't be written; what was spent reaches the caller if they can't be later."""

import subprocess
import sys
from pathlib import Path

import pytest

from delegate import CallError, Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from tests.support import warm

FULL_DISK = """
import resource, sys
from pathlib import Path
from delegate import CallError, Delegator, Task
from delegate.models.providers.scripted import Scripted

client = Scripted(["never asked"])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
with Delegator(client=client, home=Path(sys.argv[1])) as delegator:
    try:
        delegator.run_sync(Task(goal="x"))
    except CallError as error:
        print(error.code, error.hint, len(client.requests))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_where_files_may_not_grow_no_child_starts_and_the_error_says_so(tmp_path: Path) -> None:
    found = subprocess.run([*warm.python(), "-c", FULL_DISK, tmp_path], capture_output=True, text=True, timeout=60)
    assert found.stdout.startswith("home_not_writable nothing was run; its disk fails, or a limit on the size"), found
    assert found.stdout.endswith(" 0\n")
    assert "Traceback" not in found.stderr


FILLS_UP = """
import asyncio, resource, sys
from pathlib import Path
from delegate import Delegator, Task
from delegate.types.errors import DelegateError
from delegate.models.providers.scripted import Scripted

async def main(home, is_batch):
    written = asyncio.Event()

    async def reply(request):
        if len(client.requests) == 2:
            await written.wait()  # a batch starts a child while the one before is still being recorded
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        return "did my part"

    client, tasks = Scripted(reply), [Task(goal=f"task {n}") for n in range(4)]
    async with Delegator(client=client, home=home) as delegator:
        if is_batch:
            batch = delegator.batches.run(tasks, concurrency=1, results=home.with_name("r.jsonl"))
            try:
                async for outcome in batch:
                    written.set()
                    print(outcome.state, outcome.result.report, outcome.result.handle is not None)
            except DelegateError as error:
                print("raised:", error, batch.tally.settled, len(client.requests))
        else:
            for task in tasks[:2]:
                result = await delegator.run(task)
                written.set()
                print(delegator.render(result))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "batch"))
"""


def fill_up(home: Path, how: str) -> "subprocess.CompletedProcess[str]":
    """Let all disks be full when the second child is asked."""
    command = [*warm.python(), "-c", FILLS_UP, str(home), how]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_result_that_no_file_can_take_reaches_the_caller_who_is_told_that_it_is_lost(tmp_path: Path) -> None:
    done = fill_up(tmp_path / "home", "run")
    first, second = done.stdout.split("run ", 1)[1].split("\nrun ", 1)
    assert "- handle: " in first
    assert "did my part" in second
    assert "- not on record: it could not be written" in second
    assert "- handle: " not in second
    assert "waits in memory" in done.stderr
    assert "statements that no file could take are lost" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
async def test_a_batch_on_a_disk_that_fills_up_yields_what_it_paid_for_and_claims_no_more_than_is_on_record(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    done = fill_up(home, "batch")
    first, second, raised = done.stdout.splitlines()
    assert (first, second) == ("done did my part True", "done did my part False")
    assert raised.startswith("raised: the journal of batches can't be written")
    assert raised.endswith(" 2 2"), "both are counted, and no third one was asked"
    async with Delegator(client=Scripted(["never asked"]), home=home) as delegator:
        (batch,) = await delegator.batches.latest()
        assert (batch.state, batch.settled, batch.unknown, batch.total) == ("interrupted", 2, 1, 4)
        states = [task.state for task in await delegator.records.tasks(batch.run_id)]
        assert states == ["ended", "outcome_unknown"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that nobody may write")
async def test_without_permission_to_write_no_child_starts(tmp_path: Path) -> None:
    client, shared = Scripted(["never asked"]), Workspace(mode="shared", path=tmp_path)
    async with Delegator(client=client, home=Path("/sys/delegate")) as delegator:
        with pytest.raises(CallError, match="/sys/delegate") as refused:
            await delegator.run(Task(goal="x", workspace=shared))
    assert refused.value.code == "home_not_writable"
    assert client.requests == []
