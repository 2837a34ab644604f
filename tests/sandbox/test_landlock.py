"""The program that restricts a command with Landlock and seccomp, run directly: with and without namespaces."""

import json
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate.sandbox.commands import landlock, launcher

LINUX = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or landlock.abi() < landlock.MIN_ABI, reason="this kernel lacks Landlock"
)


START = "import os, sys; sys.path.append(sys.argv[1]); import landlock; os._exit(landlock.main(sys.argv[2:]))"


def restricted(command: str, **rules: Any) -> list[str]:
    """The command line that runs a command in Landlock without the subreaper; its report goes to stdout."""
    given: dict[str, Any] = {"write": [], "read": [], "hidden": [], "network": True, **rules}
    _, *arguments = launcher.in_landlock(["/bin/sh", "-c", command], **given, status_fd=9)
    folder = str(Path(landlock.__file__).parent)
    return ["/bin/sh", "-c", 'exec "$@" 9>&1', "sh", sys.executable, "-I", "-S", "-c", START, folder, *arguments]


def without_namespaces(command: str, **rules: Any) -> list[str]:
    """The same where the kernel permits no user namespaces: in one that allows none inside."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "/bin/sh", "-c", forbid, "sh", *restricted(command, **rules)]


def without_proc(command: str, **rules: Any) -> list[str]:
    """The same where no new /proc can be mounted, since a part of this one is covered, as in many containers."""
    cover = 'mount --bind /dev/null /proc/uptime && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", cover, "sh"]
    return [*unshare, *restricted(command, **rules)]


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


WITH_MOUNTS = [pytest.param(restricted, id="namespaces"), pytest.param(without_proc, id="no new /proc")]
MODES = [*WITH_MOUNTS, pytest.param(without_namespaces, id="no namespaces")]


@needs_namespaces
@pytest.mark.parametrize("confined", MODES)
def test_only_the_writable_folder_can_be_changed(folder: Path, confined: Callable[..., list[str]]) -> None:
    command = "echo new > own; echo new > ../other; cat ../secret; mktemp >/dev/null && echo temporary"
    done = run(confined(command, write=[str(folder)]), folder)
    assert (folder / "own").read_text() == "new\n"
    assert not (folder.parent / "other").exists()
    assert "canary" not in done.stdout, "/tmp is hidden"
    assert "\ntemporary\n" in done.stdout, done.stderr


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
    assert [line.partition(":")[0].strip() for line in outside.stdout.splitlines()[3:-1]] == ["lo"]


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


@needs_namespaces
@pytest.mark.parametrize("confined", WITH_MOUNTS)
def test_modes_times_and_attributes_of_other_files_stay(folder: Path, confined: Callable[..., list[str]]) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as visible:
        file = Path(visible, "file")
        file.write_text("x")
        file.chmod(0o600)
        before = file.stat()
        code = python(
            "import os\nfor change in (lambda p: os.chmod(p, 0o644), lambda p: os.utime(p, (1, 1)), "
            'lambda p: os.setxattr(p, "user.x", b"x"), lambda p: os.chown(p, os.getuid(), os.getgid())):\n'
            f'  try: change("{file}")\n  except OSError as error: print(error.errno)'
        )
        done = run(confined(f"{code}; chmod 700 .", write=[str(folder)], read=[sys.prefix]), folder)
        assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["30"] * 4, done.stderr  # EROFS
        after = file.stat()
        assert (after.st_mode, after.st_mtime, after.st_ctime) == (before.st_mode, before.st_mtime, before.st_ctime)
    assert folder.stat().st_mode & 0o777 == 0o700


@needs_namespaces
def test_what_a_command_started_ends_with_it(folder: Path) -> None:
    done = run(restricted("setsid sleep 300 & (setsid sh -c 'setsid sleep 300 & exit' &) ; exit 3"), folder)
    assert done.returncode == 3, "stdout would be open otherwise, and this would take too long"


@needs_namespaces
@pytest.mark.slow
@pytest.mark.skipif(LINUX < (6, 14), reason="this kernel has one limit for the whole machine")
def test_the_kernel_refuses_processes_beyond_a_number_to_root_too(folder: Path) -> None:
    fork = """
import os, time
children = 0
try:
    while children < 5_000:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        children += 1
except BlockingIOError:
    print("refused", children)
"""
    done = run(restricted(f"{shlex.quote(sys.executable)} -S -c {shlex.quote(fork)}", write=[str(folder)]), folder)
    refused = re.search(r"^refused (\d+)$", done.stdout, re.MULTILINE)
    assert refused, done
    assert 3_000 < int(refused[1]) < 4_096


@pytest.mark.parametrize("confined", WITH_MOUNTS)
def test_the_exit_code_is_the_commands(folder: Path, confined: Callable[..., list[str]]) -> None:
    assert run(confined("kill -9 $$"), folder).returncode == 137
    done = run(confined("for s in KILL INT TERM; do kill -$s 1 $PPID; done 2>/dev/null; kill -9 -1; exit 5"), folder)
    assert done.returncode == 5
    assert '"exit-code": 5' in done.stdout


@needs_namespaces
def test_without_processes_of_its_own_a_command_changes_only_itself(folder: Path) -> None:
    assert run(restricted("sleep 0.2 & renice -n 5 -p $!"), folder).returncode == 0
    denied = run(without_proc("sleep 0.2 & renice -n 5 -p $!"), folder)
    assert (denied.returncode, "Operation not permitted" in denied.stderr) == (1, True)
    assert run(without_proc("renice -n 5 -p 0 && nice -n 6 true && ulimit -n 99"), folder).returncode == 0


@needs_namespaces
def test_a_command_has_terminals_of_its_own(folder: Path) -> None:
    here, there = os.openpty()
    try:
        done = run(restricted(f"cat < {os.ttyname(there)} || tty; script -qec tty /dev/null; ls /dev/pts"), folder)
    finally:
        os.close(here)
        os.close(there)
    assert "not a tty" in done.stdout
    assert "/dev/pts/0" in done.stdout, done.stderr
    assert "/dev/pts/1" not in done.stdout


@needs_namespaces
@pytest.mark.parametrize("confined", MODES)
def test_only_the_usual_devices_can_be_used(folder: Path, confined: Callable[..., list[str]]) -> None:
    here, there = os.openpty()
    usual = "head -c 2 /dev/zero | cat > /dev/null < /dev/null && head -c 2 /dev/urandom >/dev/null && echo used"
    others = f"cat < {os.ttyname(there)} & cat /dev/mem /dev/kmsg /dev/console /dev/[sv]d* | head -c 1 | wc -c"
    try:
        os.write(here, b"canary\n")
        done = run(confined(f"{usual}; {others}; wait"), folder)
    finally:
        os.close(here)
        os.close(there)
    assert "\nused\n" in done.stdout, done.stderr
    assert "\n0\n" in done.stdout
    assert "canary" not in done.stdout


@needs_namespaces
@pytest.mark.parametrize("confined", WITH_MOUNTS)
@pytest.mark.parametrize("writable", [True, False])
def test_a_device_outside_of_dev_cannot_be_read(
    folder: Path, confined: Callable[..., list[str]], writable: bool
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as visible:
        try:
            os.mknod(f"{visible}/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root can make a device")
        head = f"head -c 3 {visible}/zero | wc -c"
        done = run(confined(head, write=[str(folder), *([visible] if writable else [])]), folder)
    assert "\n0\n" in done.stdout
    assert "Permission denied" in done.stderr


@needs_namespaces
@pytest.mark.parametrize("confined", MODES)
def test_folders_can_be_shown_in_hidden_ones_and_hidden_in_shown_ones(
    folder: Path, confined: Callable[..., list[str]]
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as visible:
        home, own = Path(visible), Path(visible, "records", "own")
        (own / "keys").mkdir(parents=True)
        for file in (home / "records" / "secret", own / "keys" / "secret", own / "file", home / "file"):
            file.write_text(f"{file.parent.name}-canary\n")
        command = f"cat {home}/records/secret keys/secret file {home}/file; echo x > new; echo x > keys/new"
        rules = {"write": [str(own)], "hidden": [str(home / "records"), str(own / "keys")]}
        done = run(confined(command, **rules), own)
        shown = [line for line in done.stdout.splitlines() if line.endswith("canary")]
        assert shown == ["own-canary", f"{home.name}-canary"]
        assert (own / "new").exists() == (confined is not without_namespaces), "not beside hidden ones there"
        assert not (own / "keys" / "new").exists()


@needs_namespaces
def test_folders_above_the_workspace_can_be_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "HOME", pwd.getpwuid(os.getuid()).pw_dir
    )  # HOME may be in /tmp, of which commands have their own
    done = run(restricted("ls / && ls .. && ls ~ && ls /dev /proc >/dev/null", write=[str(folder)]), folder)
    assert done.returncode == 0, done.stderr
    assert "etc\n" in done.stdout


@needs_namespaces
@pytest.mark.parametrize("confined", WITH_MOUNTS)
def test_the_kernels_unusual_files_are_empty(folder: Path, confined: Callable[..., list[str]]) -> None:
    masked = [path for path in ("/proc/keys", "/proc/locks", "/proc/fs", "/proc/bus") if os.path.exists(path)]
    command = "cat /proc/keys /proc/locks; ls /proc/fs /proc/bus; cat /proc/cpuinfo >&2"
    done = run(confined(command, masked=masked), folder)
    assert [line for line in done.stdout.splitlines()[1:-1] if line and not line.startswith("/proc")] == []
    assert done.stderr


def test_the_launcher_says_what_the_command_may_do(tmp_path: Path) -> None:
    argv = launcher.in_landlock(["/bin/true"], write=[tmp_path], read=[], hidden=[], network=False, status_fd=9)
    given = argv[argv.index("9") + 1 : argv.index("--")]
    rules = [rule for rule in given if not rule.startswith("calls=")]
    assert (rules, argv[-1]) == ([f"write={tmp_path}"], "/bin/true")
