"""The attack table: what each mechanism stops, and what it honestly doesn't."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegate.cli.security.commands import ATTACKS, MechanismUnderTest, Row, mechanisms, shell_attacks
from delegate.judging.checks.worker import close_workers
from delegate.sandbox.confinement import Confinement

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the table is Linux's")

COLUMNS = ("bubblewrap", "process", "process group")
NO_NETWORK = "bubblewrap, no network"
WITHOUT_SUBREAPER = MechanismUnderTest("process group", Confinement(bubblewrap=False, subreaper=False), "host")
"""What macOS has."""

EXPECTED = {
    "a background process that holds the output open": "stopped stopped stopped",
    "a background process": "stopped stopped stopped",
    "a daemon in a session of its own": "stopped stopped possible",
    "a daemon that forked twice": "stopped stopped possible",
    "a daemon that ends what watches it": "stopped possible possible",
    "a command that ignores every signal it can": "stopped stopped stopped",
    "300 processes left behind": "stopped stopped stopped",
    "300 processes at the same time": "possible possible possible",
    "a key in its environment": "stopped stopped stopped",
    "a key in the environment of another process": "stopped possible possible",
    "a file known to hold secrets": "stopped possible possible",
    "delegate's records, and what other children wrote": "stopped possible possible",
    "any other file of the user": "possible possible possible",
    "a file written outside": "stopped possible possible",
    "a connection to this machine": "possible possible possible",
    "more memory than a process may have": "stopped stopped stopped",
    "a file larger than any should be": "stopped stopped stopped",
    "output without end": "stopped stopped stopped",
    "the host process killed": "stopped possible possible",
    "a forged exit code": "stopped stopped stopped",
    "the user's terminal": "stopped stopped stopped",
    "a mount": "stopped ROOT ROOT",
}


@pytest.fixture(scope="module")
def table() -> dict[tuple[str, str], Row]:
    async def tried() -> list[Row]:
        return await shell_attacks([*await mechanisms(), WITHOUT_SUBREAPER])

    return {(row.attack, row.mechanism): row for row in asyncio.run(tried())}


def may_mount() -> bool:
    """Root may, but in many containers root isn't root."""
    return subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_every_attack_has_an_expected_outcome() -> None:
    assert {attack.name for attack in ATTACKS} == set(EXPECTED)


@pytest.mark.parametrize("mechanism", COLUMNS)
@pytest.mark.parametrize("attack", EXPECTED)
def test_an_attack_ends_as_the_table_says(table: dict[tuple[str, str], Row], attack: str, mechanism: str) -> None:
    row = table.get((attack, mechanism))
    if row is None or row.outcome == "n/a":
        pytest.skip(row.note if row else f"{mechanism} doesn't work here")
    expected = EXPECTED[attack].split()[COLUMNS.index(mechanism)]
    assert row.outcome == (("possible" if may_mount() else "stopped") if expected == "ROOT" else expected)


def test_without_network_no_connection_is_possible(table: dict[tuple[str, str], Row]) -> None:
    rows = [row for row in table.values() if row.mechanism == NO_NETWORK]
    if not rows:
        pytest.skip("network namespaces don't work here")
    assert [(row.attack, row.outcome) for row in rows] == [("a connection to this machine", "stopped")]


def test_every_row_says_why(table: dict[tuple[str, str], Row]) -> None:
    assert [row for row in table.values() if not row.note] == []


def test_the_attacks_leave_nothing_behind(table: dict[tuple[str, str], Row]) -> None:
    assert list(Path("/var/tmp").glob(f"delegate-attacks-{os.getpid()}-*")) == []
    close_workers()  # another test's
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
