"""Nothing is spent on a task if its records and its work can't be written."""

import subprocess
import sys
from pathlib import Path

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from tests.support import warm

FULL_DISK = """
import resource, sys
from pathlib import Path
from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted

client = Scripted(["never asked"])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
with Delegator(client=client, home=Path(sys.argv[1])) as delegator:
    report = delegator.run_sync(Task(goal="x"))
print(report.error.code, report.error.hint, len(client.requests))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_where_files_may_not_grow_no_child_starts_and_the_error_says_so(tmp_path: Path) -> None:
    found = subprocess.run([*warm.python(), "-c", FULL_DISK, tmp_path], capture_output=True, text=True, timeout=60)
    assert found.stdout.startswith("home_not_writable nothing was run; its disk fails, or a limit on the size"), found
    assert found.stdout.endswith(" 0\n")
    assert "Traceback" not in found.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that nobody may write")
async def test_without_permission_to_write_no_child_starts(tmp_path: Path) -> None:
    client, shared = Scripted(["never asked"]), Workspace(mode="shared", path=tmp_path)
    async with Delegator(client=client, home=Path("/sys/delegate")) as delegator:
        report = await delegator.run(Task(goal="x", workspace=shared))
    assert report.error
    assert report.error.code == "home_not_writable"
    assert "/sys/delegate" in report.error.message
    assert client.requests == []
