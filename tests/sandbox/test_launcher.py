"""Attacks by a command on what started it: the Python that waits as the subreaper, and what it forked for Landlock."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import delegate
from delegate.sandbox.commands.confinement import CommandSpec, Confinement, SandboxFailed, execute, works
from delegate.sandbox.commands.launcher import landlock_is_available
from delegate.sandbox.processes.environment import command_environment
from tests.sandbox.escapes import Escape, escape

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's subreaper")

LINUX = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
_UNSHARE = ("unshare", "--user", "--map-root-user")
MODES: Mapping[str, Sequence[str]] = {
    "process": (),
    "namespaces": (),
    "no new proc": (*_UNSHARE, "--mount", "/bin/sh", "-c", 'mount --bind /dev/null /proc/uptime && exec "$@"', "sh"),
    "no namespaces": (*_UNSHARE, "/bin/sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"),
}
"""No sandbox, and what Landlock can do by what the machine permits: with the command line that forbids the rest."""


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    start = MODES[request.param]
    if request.param != "process" and not landlock_is_available():
        pytest.skip("this kernel lacks Landlock")
    if start and subprocess.run([*start, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs namespaces, to forbid some of them")
    return request.param


@pytest.fixture
def attacked(mode: str, tmp_path: Path) -> Callable[[str], Escape]:
    """Runs an attack by its name."""
    marker = f"8{os.getpid()}{int.from_bytes(os.urandom(2))}"
    sandbox = "process" if mode == "process" else "landlock"

    def run(attack: str) -> Escape:
        arguments = (attack, sandbox, str(tmp_path), marker)
        if not MODES[mode]:
            return asyncio.run(escape(*arguments))
        environment = os.environ | {"PYTHONPATH": str(Path(delegate.__file__).parent.parent)}
        program = [*MODES[mode], sys.executable, "-m", "tests.sandbox.escapes", *arguments]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return Escape(**json.loads(done.stdout))

    return run


@pytest.mark.parametrize("attack", ["outlives", "closes_all", "leaves_its_session", "reaches_in", "raises_limits"])
def test_a_command_that_tries_to_escape_ends_with_its_own_exit_code(
    mode: str, attack: str, attacked: Callable[[str], Escape]
) -> None:
    ended = attacked(attack)
    assert (ended.exit_code, ended.failed, ended.is_left) == (7, "", False), ended
    if mode != "process":  # which runs as the user, and can reach in
        assert ended.stdout == "", ended


@pytest.mark.parametrize("attack", ["kills", "terminates", "stops"])
def test_a_command_that_signals_what_started_it_gains_nothing(
    mode: str, attack: str, attacked: Callable[[str], Escape]
) -> None:
    ended = attacked(attack)
    assert not ended.is_left, ended
    if mode == "process":  # which can; then it has no exit code
        assert ended.timed_out if attack == "stops" else "subreaper failed" in ended.failed, ended
    elif mode == "namespaces" or LINUX >= (6, 12):  # from which on Landlock denies it
        assert (ended.exit_code, ended.failed) == (7, ""), ended
    else:
        assert ended.exit_code in (None, 7), ended


def test_a_command_that_ignores_all_signals_ends_in_time(attacked: Callable[[str], Escape]) -> None:
    ended = attacked("ignores_all")
    assert (ended.timed_out, ended.exit_code, ended.is_left) == (True, None, False), ended


def test_a_command_inherits_no_descriptor_signal_or_session(attacked: Callable[[str], Escape]) -> None:
    ignored = re.search(r"SigIgn:\s*(\w+)", Path("/proc/self/status").read_text())
    assert ignored
    of_python = sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
    others = f"{int(ignored[1], 16) & ~of_python:016x}"  # which this process was started with
    assert attacked("inherits").stdout == f"0 1 2 3 SigBlk:{'0' * 16}SigIgn:{others} leader\n", "3 is of `ls`"


@pytest.mark.parametrize("sandbox", [None, "landlock"])
@pytest.mark.parametrize("program", ["/no/such/program", "/etc/passwd"])
async def test_a_program_that_can_not_be_started_has_no_exit_code(
    sandbox: str | None, program: str, tmp_path: Path
) -> None:
    confinement = Confinement("landlock" if sandbox else None, subreaper=True)
    if not await works(confinement):
        pytest.skip("does not work here")
    spec = CommandSpec([program], tmp_path, command_environment(os.environ), 20, 5_000)
    with pytest.raises(SandboxFailed, match=r"No such file|Permission denied"):
        await execute(spec, confinement)
