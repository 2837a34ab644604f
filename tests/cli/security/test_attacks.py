"""The attacks that `delegate doctor --security` tries on this machine, and how each ends.

`make slow` tries all of them, which takes ten seconds of two cores.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from delegate.cli.doctor.security import commands
from delegate.cli.doctor.security.attacks import ATTACKS
from delegate.cli.doctor.security.commands import MechanismUnderTest, Row, mechanisms, shell_attacks
from delegate.sandbox.commands.confinement import Confinement
from delegate.sandbox.commands.launcher import landlock_is_available
from scripts.write_attacks import COLUMNS, FILE, FORBID_NAMESPACES, ROOT, outcome, table_in
from tests.cli.command import delegate

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the expected outcomes are those on Linux")
pytestmark = pytest.mark.timeout(300)

TABLE = table_in(FILE.read_text(encoding="utf-8"))
OF_MECHANISM = {"bubblewrap": COLUMNS[0], "landlock": COLUMNS[1], "process": COLUMNS[3], "process group": COLUMNS[3]}
"""The column of the documentation for each mechanism."""
OPEN_NETWORK = ("bubblewrap, open network", "landlock, open network")
WITHOUT_SUBREAPER = MechanismUnderTest("process group", Confinement(None, subreaper=False), "host")
"""The mechanism on macOS."""
ONLY_STOPPED_BY_SUBREAPER = ("a daemon in its own session", "a double-forked daemon")
OF_THE_MACHINE = {
    "becoming root in a namespace of its own", "chains of forks, each in a session of its own",
    "evading the filter of system calls with io_uring", "evading the filter with calls of another architecture",
    "loading a module into the kernel", "moving to another control group", "raising its own limits",
    "reaching other machines", "reading the kernel's messages", "reading which keys the kernel holds",
}  # fmt: skip
"""Attacks whose success without a sandbox depends on the kernel, its settings, or chance."""
QUICK = {
    "a daemon in its own session", "reading delegate's records and other children's files", "connecting to localhost",
    "writing a file outside the workspace", "planting a git hook", "forging the exit code",
    "storing a key in the kernel", "taking a port of this machine",
}  # fmt: skip
"""Some of each kind, which are tried every time."""
_CAPABILITIES = (1, 2, 13, 21, 25, 27)
"""DAC_OVERRIDE, DAC_READ_SEARCH, NET_RAW, SYS_ADMIN, SYS_TIME and MKNOD."""


def tried_by_doctor() -> list[Row]:
    """All rows of `delegate doctor --security`."""
    before = folders()
    done = delegate("doctor", "--security", "--format", "json")
    assert done.returncode == 0, done.stderr
    # Another test process may be trying attacks too.
    assert [path for path in folders() - before if not Path(f"/proc/{path.name.split('-')[2]}").exists()] == []
    return [Row(**row) for row in json.loads(done.stdout)["attacks"]]


def folders() -> set[Path]:
    """The folders of attacks, each with the id of the process that made it in its name."""
    return set(Path("/var/tmp").glob("delegate-attacks-*"))


def is_root() -> bool:
    """Whether this process has the rights of root; in many containers root has few of them."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return os.getuid() == 0 and all(capabilities >> one & 1 for one in _CAPABILITIES)


def has_route() -> bool:
    """Whether this machine could send a packet to another network."""
    argv = ["bash", "-c", "exec 3<>/dev/udp/192.0.2.1/9"]
    return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0


def permits_namespaces() -> bool:
    return subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def expected(attack: str, mechanism: str) -> str | None:
    """What the documentation says of an attack on this machine; None if it doesn't know."""
    column = COLUMNS[2] if mechanism == "landlock" and not permits_namespaces() else OF_MECHANISM[mechanism]
    cell = TABLE[attack, column]
    outcomes = {outcome(cell, is_root=True), outcome(cell, is_root=False)}
    is_of_machine = attack in OF_THE_MACHINE or (len(outcomes) > 1 and is_root() != (os.getuid() == 0))
    if column == COLUMNS[3] and is_of_machine:
        return None
    if mechanism == "process group" and attack in ONLY_STOPPED_BY_SUBREAPER:
        return "possible"
    return outcome(cell, is_root=os.getuid() == 0)


def test_the_documentation_has_every_attack() -> None:
    assert list(dict.fromkeys(attack for attack, _ in TABLE)) == [attack.name for attack in ATTACKS]
    assert len(ATTACKS) >= 50


def test_the_documentation_says_why_a_sandbox_does_not_stop_an_attack() -> None:
    page = " ".join(FILE.read_text(encoding="utf-8").split())
    open_ones = {attack for (attack, column), cell in TABLE.items() if column != COLUMNS[3] and cell != "stopped"}
    assert open_ones
    assert [attack for attack in open_ones if f"*{attack}*" not in page] == []


def unexpected(rows: Iterable[Row]) -> list[Row]:
    """The attacks that end otherwise than the documentation says."""
    known = [row for row in rows if row.outcome != "n/a" and row.mechanism in OF_MECHANISM]
    return [row for row in known if row.outcome != (expected(row.attack, row.mechanism) or row.outcome)]


@linux
def test_some_attacks_end_as_the_documentation_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ATTACKS", [attack for attack in ATTACKS if attack.name in QUICK])
    rows = asyncio.run(tried_here())
    assert {row.attack for row in rows} == QUICK
    assert unexpected(rows) == []
    assert list(Path("/var/tmp").glob(f"delegate-attacks-{os.getpid()}-*")) == []


@linux
@pytest.mark.slow
@pytest.mark.more_cases
def test_every_attack_ends_as_the_documentation_says(home: Path) -> None:
    rows = tried_by_doctor()
    assert {row.outcome for row in rows} <= {"stopped", "possible", "n/a"}
    assert [row for row in rows if not row.note] == []
    rows += asyncio.run(shell_attacks([WITHOUT_SUBREAPER]))
    assert unexpected(rows) == []
    open_network = [row for row in rows if row.mechanism in OPEN_NETWORK]
    found = {(row.attack, row.mechanism.split(",")[0]) for row in open_network if row.outcome == "possible"}
    assert found == possible_with_an_open_network({row.mechanism.split(",")[0] for row in open_network})
    assert list(Path("/var/tmp").glob(f"delegate-attacks-{os.getpid()}-*")) == []


async def tried_here() -> list[Row]:
    return await shell_attacks([*await mechanisms(), WITHOUT_SUBREAPER])


def possible_with_an_open_network(sandboxes: set[str]) -> set[tuple[str, str]]:
    names = ["connecting to localhost", "taking a port of this machine"]
    names += ["reaching other machines"] if has_route() else []
    services = ["connecting to a service on this machine", "connecting to a service without a file, such as X11"]
    of_bubblewrap = {(name, "bubblewrap") for name in services if "bubblewrap" in sandboxes}
    return {(name, sandbox) for name in names for sandbox in sandboxes} | of_bubblewrap


WITHOUT_NAMESPACES = """
import asyncio, json
from delegate.cli.doctor.security.commands import MechanismUnderTest, shell_attacks
from delegate.sandbox.commands.confinement import Confinement
from delegate.sandbox.commands.launcher import landlock_is_available
from scripts.write_attacks import COLUMNS, FILE, FORBID_NAMESPACES, ROOT, outcome, table_in
mechanism = MechanismUnderTest("landlock", Confinement("landlock", subreaper=True), "none")
print(json.dumps(asyncio.run(shell_attacks([mechanism]))))
"""


@pytest.mark.slow
def test_without_user_namespaces_attacks_end_as_the_documentation_says(home: Path) -> None:
    argv = ["unshare", "--user", "--map-root-user", "/bin/sh", "-c", FORBID_NAMESPACES, "sh"]
    if not landlock_is_available() or subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs namespaces, to forbid more of them, and Landlock")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    program = [*argv, sys.executable, "-c", WITHOUT_NAMESPACES]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=200)
    found = {row.attack: row.outcome for row in (Row(*row) for row in json.loads(done.stdout)) if row.outcome != "n/a"}
    cells = {attack: TABLE[attack, COLUMNS[2]] for attack in found}
    assert found == {attack: outcome(cell, is_root=os.getuid() == 0) for attack, cell in cells.items()}
