"""The program that restricts a command with Landlock and seccomp, run directly: with and without namespaces."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate.sandbox import landlock, launcher

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or landlock.abi() < landlock.MIN_ABI, reason="this kernel lacks Landlock"
)


def restricted(command: str, **rules: Any) -> list[str]:
    """The command line that runs a command under the program, whose report goes to stdout."""
    given: dict[str, Any] = {"write": [], "read": [], "hidden": [], "network": True, **rules}
    argv = launcher.under_landlock(["/bin/sh", "-c", command], **given, status_fd=9)
    return ["/bin/sh", "-c", 'exec "$@" 9>&1', "sh", *argv]


def without_namespaces(command: str, **rules: Any) -> list[str]:
    """The same where the kernel permits no user namespaces: in one that allows none inside."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "/bin/sh", "-c", forbid, "sh", *restricted(command, **rules)]


def run(argv: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=20)
    if done.stdout.startswith("{") and (temporary := json.loads(done.stdout.splitlines()[0])["temporary"]):
        shutil.rmtree(temporary)
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("canary")
    return tmp_path / "work"


needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True, check=False).returncode != 0,
    reason="user namespaces aren't permitted here",
)


def python(code: str) -> str:
    return f"{sys.executable} -S -c '{code}'"


LOOPBACK = python(
    'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); '
    'socket.create_connection(s.getsockname()); print("connected")'
)
UNIX = python("import socket; socket.socket(socket.AF_UNIX)")
URING = python("import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 1, 0); "
               "print(ctypes.get_errno() == errno.ENOSYS)")  # fmt: skip
LOCK = python('import multiprocessing; multiprocessing.Lock(); print("locked")')


@pytest.mark.parametrize(
    "confined",
    [
        pytest.param(restricted, id="namespaces"),
        pytest.param(without_namespaces, id="no namespaces", marks=needs_namespaces),
    ],
)
def test_only_the_writable_folder_can_be_changed(folder: Path, confined: Callable[..., list[str]]) -> None:
    command = "echo new > own; echo new > ../other; cat ../secret; mktemp >/dev/null && echo temporary"
    done = run(confined(command, write=[str(folder)]), folder)
    assert (folder / "own").read_text() == "new\n"
    assert not (folder.parent / "other").exists()
    assert "canary" not in done.stdout, "/tmp is hidden"
    assert done.stdout.endswith("temporary\n"), done.stderr


@needs_namespaces
def test_a_hidden_path_in_the_writable_folder_stays_hidden(folder: Path) -> None:
    (folder / "keys").mkdir()
    (folder / "keys" / "id").write_text("canary")
    (folder / "token").write_text("canary")
    hidden = [str(folder / "keys"), str(folder / "token")]
    for argv in (
        restricted("cat keys/id token", write=[str(folder)], hidden=hidden),
        without_namespaces("cat keys/id token", write=[str(folder)], hidden=hidden),
    ):
        assert "canary" not in run(argv, folder).stdout
    assert (folder / "keys" / "id").read_text() == "canary"


@needs_namespaces
def test_without_the_network_only_loopback_is_left(folder: Path) -> None:
    assert "connected" in run(restricted(LOOPBACK, network=True), folder).stdout
    own = run(restricted(LOOPBACK, network=False), folder)
    outside = run(restricted("cat /proc/net/dev", network=False), folder)
    assert "connected" in own.stdout
    assert [line.partition(":")[0].strip() for line in outside.stdout.splitlines() if ":" in line][1:] == ["lo"]


@needs_namespaces
def test_without_namespaces_no_network_means_no_socket(folder: Path) -> None:
    done = run(without_namespaces(LOOPBACK, network=False), folder)
    assert "PermissionError" in done.stderr
    assert "connected" in run(without_namespaces(LOOPBACK, network=True), folder).stdout


@pytest.mark.parametrize("network", [True, False])
def test_unix_sockets_and_io_uring_are_never_available(folder: Path, network: bool) -> None:
    assert "PermissionError" in run(restricted(UNIX, network=network), folder).stderr
    assert "True" in run(restricted(URING, network=network), folder).stdout


@needs_namespaces
def test_shared_memory_is_the_commands_own(folder: Path) -> None:
    name = f"delegate-test-{os.getpid()}"
    # The interpreter may be one of a virtual environment in /tmp.
    done = run(restricted(f"echo x > /dev/shm/{name}; {LOCK}", write=[str(folder)], read=[sys.prefix]), folder)
    assert not Path("/dev/shm", name).exists()
    assert "locked" in done.stdout


def test_what_the_program_cannot_restrict_it_does_not_run(folder: Path) -> None:
    unknown = ["loopback=own" if one == "network=host" else one for one in restricted("echo ran", write=[folder])]
    done = run(unknown, folder)
    assert done.returncode != 0
    assert "ran" not in done.stdout


def test_the_launcher_says_what_the_command_may_do(tmp_path: Path) -> None:
    argv = launcher.under_landlock(["/bin/true"], write=[tmp_path], read=[], hidden=[], network=False, status_fd=9)
    given = argv[argv.index("9") + 1 : argv.index("--")]
    rules = [rule for rule in given if not rule.startswith(("calls=", "shared="))]
    assert (rules, argv[-1]) == ([f"write={tmp_path}"], "/bin/true")
