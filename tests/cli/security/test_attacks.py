"""The attacks that `delegate doctor --security` tries on this machine, and how each ends.

All tests that look at the outcomes are in this file, so that a process tries the attacks at most once.
"""

import asyncio
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from delegate.cli.security.attacks import ATTACKS
from delegate.cli.security.commands import MechanismUnderTest, Row, shell_attacks
from delegate.cli.security.criteria import PREDICATES, SCHEMAS
from delegate.judging.checks.worker import close_workers
from delegate.sandbox.confinement import Confinement
from tests.cli.command import delegate
from tests.support import leaks

pytestmark = pytest.mark.timeout(300)  # the first test of a process tries them all

COLUMNS = ("bubblewrap", "landlock", "process", "process group")
OPEN_NETWORK = ("bubblewrap, open network", "landlock, open network")
WITHOUT_SUBREAPER = MechanismUnderTest("process group", Confinement(None, subreaper=False), "host")
"""The mechanism on macOS."""

EXPECTED = {
    "a background process that keeps the output open": "stopped stopped stopped stopped",
    "a background process": "stopped stopped stopped stopped",
    "a daemon in its own session": "stopped stopped stopped possible",
    "a double-forked daemon": "stopped stopped stopped possible",
    "a daemon that kills its supervisor": "stopped stopped possible possible",
    "chains of forks, each in a session of its own": "stopped stopped EITHER EITHER",
    "a command that ignores all signals": "stopped stopped stopped stopped",
    "300 background processes": "stopped stopped stopped stopped",
    "too many concurrent processes": "stopped stopped stopped stopped",
    "reading a key from its own environment": "stopped stopped stopped stopped",
    "reading a key from another process's environment": "stopped stopped possible possible",
    "reading a file that usually holds secrets": "stopped stopped possible possible",
    "reading delegate's records and other children's files": "stopped stopped possible possible",
    "reading other files of the user": "possible possible possible possible",
    "writing a file outside the workspace": "stopped stopped possible possible",
    "connecting to localhost": "stopped stopped possible possible",
    "reaching other machines": "stopped stopped ROUTE ROUTE",
    "planting a git hook": "stopped stopped possible possible",
    "naming a program in git's configuration": "stopped stopped possible possible",
    "putting another git repository in place": "stopped stopped possible possible",
    "linking what git writes to a file outside": "stopped stopped possible possible",
    "hiding a bare git repository in a folder": "stopped stopped stopped stopped",
    "reading a password in git's configuration": "stopped stopped possible possible",
    "allocating too much memory": "stopped stopped stopped stopped",
    "allocating too much memory in several processes": "stopped stopped stopped stopped",
    "writing a huge file": "stopped stopped stopped stopped",
    "endless output": "stopped stopped stopped stopped",
    "killing the host process": "stopped stopped possible possible",
    "forging the exit code": "stopped stopped stopped stopped",
    "opening the user's terminal": "stopped stopped stopped stopped",
    "mounting a file system": "stopped stopped ROOT ROOT",
    "changing a setting of the kernel": "stopped stopped KERNEL KERNEL",
    "reading which keys the kernel holds": "stopped stopped KEYS KEYS",
    "storing a key in the kernel": "stopped stopped possible possible",
    "making a program setuid": "stopped stopped possible possible",
    "changing mode and times of the user's file": "stopped stopped possible possible",
    "reading another terminal": "stopped stopped possible possible",
    "leaving shared memory behind": "stopped stopped possible possible",
    "changing limits and priority of the host process": "stopped stopped possible possible",
    "connecting to a service on this machine": "stopped stopped possible possible",
}


@cache
def attacks() -> tuple[Row, ...]:
    """All rows, from the command's JSON."""
    before = folders()
    done = delegate("doctor", "--security", "--format", "json")
    assert done.returncode == 0, done.stderr
    # Another test process may be trying attacks too.
    assert [path for path in folders() - before if not Path(f"/proc/{path.name.split('-')[2]}").exists()] == []
    return tuple(Row(**row) for row in json.loads(done.stdout)["attacks"])


def folders() -> set[Path]:
    """The folders of attacks, each with the id of the process that made it in its name."""
    return set(Path("/var/tmp").glob("delegate-attacks-*"))


@pytest.fixture
def table(home: Path) -> dict[tuple[str, str], Row]:
    if not sys.platform.startswith("linux"):
        pytest.skip("the expected outcomes are those on Linux")
    return _table()  # with the environment of a test


@cache
def _table() -> dict[tuple[str, str], Row]:
    """The mechanisms of this machine as `delegate doctor` tries them, and that of macOS, tried in this process."""
    rows = [row for row in attacks() if row.kind == "shell"] + asyncio.run(shell_attacks([WITHOUT_SUBREAPER]))
    return {(row.attack, row.mechanism): row for row in rows}


def may_mount() -> bool:
    """Whether this process can mount; in many containers even root can't."""
    return subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def may_set_kernel() -> bool:
    return os.access("/proc/sys/vm/swappiness", os.W_OK)


def shows_keys() -> bool:
    try:
        return bool(Path("/proc/keys").read_bytes())
    except OSError:
        return False


def has_route() -> bool:
    """Whether this machine could send a packet to another network."""
    argv = ["bash", "-c", "exec 3<>/dev/udp/192.0.2.1/9"]
    return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_every_attack_has_an_expected_outcome() -> None:
    assert {attack.name for attack in ATTACKS} == set(EXPECTED)


@pytest.mark.parametrize("mechanism", COLUMNS)
@pytest.mark.parametrize("attack", EXPECTED)
def test_an_attack_ends_as_the_table_says(table: dict[tuple[str, str], Row], attack: str, mechanism: str) -> None:
    row = table.get((attack, mechanism))
    if row is None or row.outcome == "n/a":
        pytest.skip(row.note if row else f"{mechanism} doesn't work here")
    expected = EXPECTED[attack].split()[COLUMNS.index(mechanism)]
    depends = {"ROOT": may_mount, "ROUTE": has_route, "KERNEL": may_set_kernel, "KEYS": shows_keys}
    if expected in depends:
        expected = "possible" if depends[expected]() else "stopped"
    assert row.outcome == expected or expected == "EITHER"


def test_an_open_network_is_the_machines(table: dict[tuple[str, str], Row]) -> None:
    rows = [row for row in table.values() if row.mechanism in OPEN_NETWORK]
    if not rows:
        pytest.skip("no sandbox works here")
    expected = {("connecting to localhost", "possible")}
    expected.add(("reaching other machines", "possible" if has_route() else "stopped"))
    assert {(row.attack, row.outcome) for row in rows} == expected


def test_every_row_has_a_reason(table: dict[tuple[str, str], Row]) -> None:
    assert [row for row in table.values() if not row.note] == []


def test_the_attacks_leave_nothing_behind(table: dict[tuple[str, str], Row]) -> None:
    assert list(Path("/var/tmp").glob(f"delegate-attacks-{os.getpid()}-*")) == []
    close_workers()  # another test's
    assert leaks.children() == []


def test_every_attack_by_an_expression_or_schema_is_stopped() -> None:
    rows = [row for row in attacks() if row.kind in ("predicate", "schema")]
    assert [row.attack for row in rows] == [*PREDICATES, *SCHEMAS]
    assert [(row.kind, row.attack) for row in rows if row.outcome != "stopped"] == []
    assert all(row.note for row in rows)


def test_every_kind_of_attack_is_tried() -> None:
    rows = attacks()
    assert {row.kind for row in rows} == {"shell", "path", "url", "predicate", "schema", "injection"}
    assert {row.outcome for row in rows} <= {"stopped", "possible", "n/a"}
    assert all(row.note for row in rows)
