import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import delegate
from delegate.judging.checks.guard import CheckGuard
from delegate.judging.checks.run import run_checks
from delegate.judging.frozen import FrozenWork
from delegate.judging.submission import Submission
from delegate.sandbox.commands.commands import SANDBOXES, CommandResult, Commands, CommandsNotAllowed
from delegate.sandbox.commands.confinement import ProcessesLeft, SandboxFailed
from delegate.sandbox.commands.launcher import landlock_is_available
from delegate.sandbox.workspace.folder import Folder
from delegate.types import ChildRun, ShellCriterion, Task
from delegate.types.errors import ToolDenied, ToolError
from tests.support import leaks, warm

Sandbox = Literal["auto", "require", "off"]


SANDBOX = Commands(sandbox="require", commands="allow", max_output_bytes=1_000)
PROCESS = Commands(sandbox="off", commands="allow", max_output_bytes=1_000)
"""Shared, so that each probes this machine only once."""


@pytest.fixture(params=["sandbox", "process"])
async def commands(request: pytest.FixtureRequest) -> Commands:
    """Behavior that both mechanisms share is tested on both."""
    found = PROCESS if request.param == "process" else SANDBOX
    if await found.mechanism() is None:
        pytest.skip("no sandbox works here")
    return found


@pytest.fixture
async def sandboxed() -> Commands:
    if await SANDBOX.mechanism() is None:
        pytest.skip("no sandbox works here")
    return SANDBOX


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a shell, but without `bwrap`, and without a Python that could start Landlock."""
    monkeypatch.setattr(sys, "executable", "/opt/editor/editor")
    (tmp_path / "bin").mkdir()
    for program in ("bash", "sh", "true", "touch"):
        (tmp_path / "bin" / program).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def no_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates macOS, which has no pidfd."""
    monkeypatch.delattr(os, "pidfd_open")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def marker() -> str:
    """A number of seconds that no other process on this machine sleeps for."""
    return f"9{os.getpid()}{time.monotonic_ns() % 10_000}"


def is_running(marker: str) -> bool:
    """Whether a process has `marker` on its command line, also one that confines the command."""
    if not Path("/proc").is_dir():
        return subprocess.run(["pgrep", "-f", marker], stdout=subprocess.DEVNULL).returncode == 0
    for process in (Path("/proc", name, "cmdline") for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            if marker.encode() in process.read_bytes():
                return True
    return False


async def until(condition: Callable[[], bool]) -> bool:
    for _ in range(100):
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def ends_soon(marker: str) -> bool:
    """Waits, since a killed process takes a moment to leave the process table."""
    return await until(lambda: not is_running(marker))


async def run(commands: Commands, command: str, cwd: Path, **kwargs: Any) -> CommandResult:
    given: dict[str, Any] = {"timeout_seconds": 20} | kwargs
    return await commands.run(command, cwd=cwd, author="person", **given)


@pytest.mark.parametrize(
    ("command", "exit_code", "stdout"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\n"),
        ("pwd > here.txt; cat here.txt", 0, "{folder}\n"),
        ("kill -9 $$", 137, ""),
        ("cat; echo over", 0, "over\n"),
        ("ulimit -f; ulimit -c", 0, "1048576\n0\n"),
        (r"printf 'a\377b'", 0, "a�b"),
        ("yes | head -n 1; echo ${PIPESTATUS[0]}", 0, "y\n141\n"),
        ("trap 'exit 5' TERM; kill 0; sleep 9", 5, ""),
    ],
)
async def test_a_command_runs_as_in_a_shell(
    commands: Commands, folder: Path, command: str, exit_code: int, stdout: str
) -> None:
    result = await run(commands, command, folder)
    assert (result.exit_code, result.stdout) == (exit_code, stdout.replace("{folder}", str(folder)))
    assert (result.timed_out, result.sandbox) == (False, await commands.mechanism())
    if "err" in command:
        assert result.output == "out\n[stderr]\nerr\n"


async def test_a_background_process_that_holds_the_pipe_causes_no_delay(
    commands: Commands, folder: Path, marker: str
) -> None:
    result = await run(commands, f"sleep {marker} & echo done", folder)
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert result.seconds < 5
    assert await ends_soon(marker)


async def test_after_its_timeout_a_command_is_killed_with_all_it_started(
    commands: Commands, folder: Path, marker: str
) -> None:
    result = await run(commands, f"trap '' TERM; sleep {marker} & sleep {marker}", folder, timeout_seconds=0.3)
    assert (result.timed_out, result.exit_code) == (True, None)
    assert await ends_soon(marker)


async def test_a_cancelled_command_is_killed_with_all_it_started(commands: Commands, folder: Path, marker: str) -> None:
    os.mkfifo(folder / "started")
    started = DAEMON.format(marker) if sys.platform == "linux" else f"sleep {marker} &"
    running = asyncio.create_task(run(commands, f"{started}\necho > started; sleep {marker}", folder))
    await asyncio.to_thread((folder / "started").read_text)
    assert is_running(marker)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await ends_soon(marker)


async def test_long_output_keeps_its_end_and_says_what_was_cut(commands: Commands, folder: Path) -> None:
    result = await run(commands, "seq 1 200000; echo THE END", folder)
    assert result.stdout.startswith("[… the first ")
    assert result.stdout.endswith("200000\nTHE END\n")
    assert len(result.stdout) < 1_100


@pytest.mark.slow
async def test_a_flood_of_output_is_not_kept_in_memory(commands: Commands, folder: Path) -> None:
    tracemalloc.start()
    try:
        await run(commands, "yes", folder, timeout_seconds=0.3)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
async def test_the_event_loop_stays_responsive_under_three_floods(commands: Commands, folder: Path) -> None:
    await run(commands, "true", folder)
    turns: list[float] = []
    flood = "yes & yes & yes & yes"  # more than one reader can consume
    flooded = asyncio.gather(*(run(commands, flood, folder, timeout_seconds=0.4) for _ in range(3)))
    while not flooded.done():
        before = time.thread_time()  # the loop's own CPU time, however busy the machine is
        await asyncio.sleep(0)
        turns.append(time.thread_time() - before)
    assert statistics.median(turns) < 0.005
    assert sum(turn for turn in turns if turn > 0.05) < 0.3


async def test_no_secret_of_the_environment_reaches_a_command(
    commands: Commands, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "LC_API_KEY", "MY_TOKEN", "DB_PASSWORD", "HARMLESS"):
        monkeypatch.setenv(name, "canary-of-the-test")
    monkeypatch.setenv("LC_TIME", "C")
    seen = (await run(commands, "env", folder)).stdout
    assert "canary" not in seen
    assert "LC_TIME=C" in seen
    assert "PATH=" in seen
    assert "HOME=" in seen


async def test_without_pidfd_commands_end_and_are_cleaned_up_all_the_same(
    no_pidfd: None, commands: Commands, folder: Path, marker: str
) -> None:
    result = await run(commands, f"sleep {marker} & echo done; exit 4", folder)
    assert (result.exit_code, result.stdout) == (4, "done\n")
    late = await run(commands, f"sleep {marker}", folder, timeout_seconds=0.2)
    assert late.timed_out
    assert await ends_soon(marker)


@pytest.mark.parametrize("command", ["echo \0", "true " + "x" * 3_000_000], ids=["NUL byte", "too long"])
async def test_what_can_not_be_started_is_a_tool_error(commands: Commands, folder: Path, command: str) -> None:
    for cwd in (folder, folder / "gone"):
        with pytest.raises(ToolError, match="can't be started"):
            await run(commands, command, cwd)


# ------------------------------------------------------------------------------------------------- the policy


@pytest.mark.parametrize("policy", ["sandboxed", "deny"])
async def test_a_persons_check_of_a_childs_work_needs_a_sandbox(no_sandbox: None, folder: Path, policy: Any) -> None:
    commands = Commands(commands=policy)
    with pytest.raises(CommandsNotAllowed, match="also a person's") as refused:
        await commands.run_check("touch ran", cwd=folder, timeout_seconds=5, author="person")
    assert refused.value.code == "commands_not_allowed"
    assert 'commands = "allow"' in str(refused.value)
    assert not (folder / "ran").exists()


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, list[str]]] = [
    ({}, {"author": "model"}, "commands_not_allowed",
     ["commands", '"allow"', "delegate.toml", "DELEGATE_COMMANDS=allow", "bubblewrap"]),
    ({"sandbox": "off"}, {"author": "model"}, "commands_not_allowed", ['sandbox = "off"']),
    ({"sandbox": "off", "commands": "deny"}, {"author": "model"}, "commands_not_allowed", ['commands = "deny"']),
    ({"sandbox": "require", "commands": "allow"}, {"author": "person"}, "sandbox_unavailable", ["bubblewrap"]),
    ({"sandbox": "off"}, {"author": "person", "network": "none"}, "network_isolation_unavailable", []),
    ({"commands": "allow"}, {"author": "model", "network": "host"}, "network_not_allowed", ["DELEGATE_NETWORK=open"]),
    ({"commands": "allow", "network": "loopback"}, {"author": "model", "network": "host"}, "network_not_allowed", []),
]  # fmt: skip
"""Settings, a command, the code of the refusal, and words in it."""


@pytest.mark.parametrize(("settings", "asked", "code", "words"), REFUSED)
async def test_what_the_settings_forbid_is_refused_with_a_fix(
    no_sandbox: None, folder: Path, settings: dict[str, Any], asked: dict[str, Any], code: str, words: list[str]
) -> None:
    with pytest.raises(CommandsNotAllowed) as refused:
        await Commands(**settings).run("touch ran", cwd=folder, timeout_seconds=5, **asked)
    assert refused.value.code == code
    assert isinstance(refused.value, ToolDenied)
    assert [word for word in words if word not in str(refused.value)] == []
    assert not (folder / "ran").exists()


async def test_deny_refuses_a_models_command_in_a_sandbox_too_and_no_persons_command(folder: Path) -> None:
    commands = Commands(commands="deny")
    with pytest.raises(CommandsNotAllowed, match="forbids commands written by a model"):
        await commands.run("true", cwd=folder, timeout_seconds=5, author="model")
    assert (await run(commands, "true", folder)).exit_code == 0


async def test_what_may_run_without_a_sandbox(no_sandbox: None, folder: Path) -> None:
    allowed = Commands(commands="allow")
    for ran in (
        await run(Commands(), "true", folder),
        await allowed.run("true", cwd=folder, timeout_seconds=5, author="model"),
        await Commands().run_check("true", cwd=folder, timeout_seconds=5, author="person", by_child=False),
        await allowed.run_check("true", cwd=folder, timeout_seconds=5, author="person"),
    ):
        assert (ran.exit_code, ran.sandbox) == (0, "process")


async def test_a_bubblewrap_that_does_not_work_counts_as_none(no_sandbox: None, folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert await Commands().mechanism() == "process"
    assert await Commands(sandbox="require").mechanism() is None


# ---------------------------------------------------------------------------------------- inside a sandbox


async def test_nothing_outside_the_folder_can_be_written(sandboxed: Commands, folder: Path, tmp_path: Path) -> None:
    outside = [tmp_path / "outside", Path.home() / "delegate-test-outside", Path("/usr/delegate-test-outside")]
    await run(sandboxed, "; ".join(f"touch {path}" for path in outside), folder)
    assert [path for path in outside if path.exists()] == []


async def test_the_parents_environment_can_not_be_read_through_proc(sandboxed: Commands, folder: Path) -> None:
    environ = f"/proc/{os.getpid()}/environ"
    assert (await run(sandboxed, f"cat {environ}", folder)).stdout == ""


@pytest.mark.parametrize("inside_home", [True, False], ids=["workspace is the home folder", "workspace elsewhere"])
async def test_secrets_of_the_home_folder_are_covered(
    sandboxed: Commands, folder: Path, monkeypatch: pytest.MonkeyPatch, inside_home: bool
) -> None:
    home = folder if inside_home else folder.parent / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("canary")
    (home / ".netrc").write_text("canary")
    monkeypatch.setenv("HOME", str(home))
    assert "canary" not in (await run(sandboxed, "cat ~/.ssh/* ~/.netrc; ls -A ~/.ssh", folder)).output


async def test_a_workspace_in_a_covered_folder_can_still_be_worked_in(
    sandboxed: Commands, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = folder / ".claude" / "worktrees" / "one"
    work.mkdir(parents=True)
    (folder / ".claude" / "credentials").write_text("canary")
    monkeypatch.setenv("HOME", str(folder))
    result = await run(sandboxed, "echo new > new.txt; cat ../../credentials", work)
    assert (work / "new.txt").read_text() == "new\n"
    assert "canary" not in result.output


async def test_a_tool_on_the_path_that_lies_in_tmp_stays_reachable(
    sandboxed: Commands, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "env" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert (await run(sandboxed, "mytool", folder)).stdout == "mine\n"


@pytest.fixture
async def knock() -> AsyncGenerator[str]:
    """A command that connects to a server on this machine."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield f"exec 3<>/dev/tcp/127.0.0.1/{server.sockets[0].getsockname()[1]}"


async def test_network_none_cuts_off_even_loopback_and_host_does_not(
    sandboxed: Commands, folder: Path, knock: str
) -> None:
    assert (await run(sandboxed, knock, folder, network="host")).exit_code == 0
    try:
        assert (await run(sandboxed, knock, folder, network="none")).exit_code != 0
    except CommandsNotAllowed:
        pytest.skip("network namespaces don't work here")


async def test_a_sandboxed_command_has_no_network_by_default(sandboxed: Commands, folder: Path, knock: str) -> None:
    for author in ("model", "person"):
        ran = await sandboxed.run(knock, cwd=folder, timeout_seconds=10, author=author)
        assert ran.exit_code != 0
        assert "/dev/tcp" in ran.stderr


@pytest.mark.parametrize(
    ("command", "noted"),
    [
        ("python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'", True),
        ("echo 'npm error code EAI_AGAIN'; exit 1", True),
        ("echo 'Could not resolve host: example.com' >&2; exit 6", True),
        ("echo EAI_AGAIN", False),
        ("echo no; exit 1", False),
    ],
)
async def test_a_command_that_fails_without_the_network_says_which_setting_opens_it(
    sandboxed: Commands, folder: Path, command: str, noted: bool
) -> None:
    said = (await run(sandboxed, command, folder)).stderr
    assert ('network = "open"' in said) == noted


async def test_a_program_that_needs_a_unix_socket_says_that_there_is_none(sandboxed: Commands, folder: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    ran = await run(sandboxed, 'node -e \'require("net").createServer().listen("/tmp/x.pipe")\'', folder)
    assert ran.exit_code != 0
    assert "no Unix sockets here" in ran.stderr
    assert "no Unix sockets here" not in (await run(sandboxed, "echo no; exit 1", folder)).stderr


async def test_package_managers_do_not_try_for_long_without_the_network(sandboxed: Commands, folder: Path) -> None:
    names = "$npm_config_fetch_retries $PIP_RETRIES $CARGO_NET_RETRY $UV_OFFLINE"
    assert (await run(sandboxed, f"echo {names}", folder)).stdout == "0 0 0 1\n"
    opened = Commands(sandbox="require", commands="allow", network="open")
    assert (await run(opened, f"echo {names}", folder)).stdout == "\n"


async def test_an_open_network_is_the_machines(sandboxed: Commands, folder: Path, knock: str) -> None:
    opened = Commands(sandbox="require", network="open")
    for network in (None, "host"):
        ran = await opened.run(knock, cwd=folder, timeout_seconds=10, author="model", network=network)
        assert ran.exit_code == 0, ran.stderr


async def test_a_loopback_of_its_own_lets_a_command_test_a_server(sandboxed: Commands, folder: Path) -> None:
    commands = Commands(sandbox="require", network="loopback")
    if commands.refusal("model") or await commands.mechanism() is None or commands.refusal("model"):
        pytest.skip("network namespaces don't work here")
    code = (
        "import socket; s = socket.create_server((chr(49) + '27.0.0.1', 0)); socket.create_connection(s.getsockname())"
    )
    ran = await commands.run(f'python3 -c "{code}"', cwd=folder, timeout_seconds=10, author="model")
    assert ran.exit_code == 0, ran.stderr


WITHOUT_NAMESPACES = """
import asyncio, sys
from pathlib import Path
from delegate.types.errors import ToolDenied
from delegate.sandbox.commands.commands import Commands

async def main():
    for policy in ("off", "loopback", "open"):
        commands = Commands(sandbox="require", network=policy)
        try:
            ran = await commands.run("exec 3<>/dev/tcp/127.0.0.1/1", cwd=Path(), timeout_seconds=10, author="model")
            print(policy, " ".join(ran.output.split()))
        except ToolDenied as refused:
            print(policy, refused.code, " ".join(str(refused).split()))

asyncio.run(main())
"""


def test_without_namespaces_sockets_are_denied_or_the_command_is(folder: Path, tmp_path: Path) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "/bin/sh", "-c", forbid, "sh"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode or not landlock_is_available():
        pytest.skip("needs namespaces, to forbid more of them, and Landlock")
    environment = os.environ | {"PYTHONPATH": str(Path(delegate.__file__).parent.parent), "PATH": no_bwrap(tmp_path)}
    program = [*argv, sys.executable, "-c", WITHOUT_NAMESPACES]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=30)
    off, loopback, opened = done.stdout.splitlines()
    assert off.startswith("off ")
    assert "socket: Operation not permitted" in off
    assert 'loopback network_isolation_unavailable network = "loopback"' in loopback
    assert opened.startswith("open ")
    assert "connect: Connection refused" in opened


def no_bwrap(tmp_path: Path) -> str:
    """A PATH with the few programs that the test needs."""
    (tmp_path / "few").mkdir()
    for program in ("unshare", "sh", "bash", "python3", "readlink"):
        if found := shutil.which(program):
            (tmp_path / "few" / program).symlink_to(found)
    return str(tmp_path / "few")


async def test_without_a_sandbox_a_command_has_the_machines_network(folder: Path, knock: str) -> None:
    assert (await run(PROCESS, knock, folder)).exit_code == 0


# ---------------------------------------------------------------------------------------- nothing left behind

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's subreaper")

DAEMON = "setsid sleep {0} >/dev/null 2>&1 & (setsid sh -c 'sleep {0} & exit' >/dev/null 2>&1 &); sleep 0.1"

HOST = """
import asyncio, sys
from pathlib import Path
from delegate.sandbox.commands.commands import Commands

async def main(sandbox, command):
    commands = Commands(sandbox=sandbox, commands="allow")
    await commands.run("true", cwd=Path(), timeout_seconds=10, author="person")
    print("ready", flush=True)
    await commands.run(command, cwd=Path(), timeout_seconds=60, author="person")

asyncio.run(main(*sys.argv[1:]))
"""


def kill_host(sandbox: str, command: str, folder: Path, *, after: float) -> None:
    """Run `command` in a process with delegate, and kill that process after `after` seconds."""
    environment = os.environ | {"PYTHONPATH": str(Path(delegate.__file__).parent.parent)}
    program = [*warm.python(), "-c", HOST, sandbox, command]
    with subprocess.Popen(program, cwd=folder, env=environment, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        time.sleep(after)  # the moment of the kill is what is tested
        host.kill()


def setting(commands: Commands) -> Sandbox:
    """The setting that selects the mechanism of `commands`."""
    return "off" if commands is PROCESS else "require"


@linux
@pytest.mark.parametrize("seconds", [20, 0.3], ids=["at its end", "after its time"])
async def test_daemons_end_with_their_command(commands: Commands, folder: Path, marker: str, seconds: float) -> None:
    result = await run(
        commands, f"{DAEMON.format(marker)}; [ {seconds} = 20 ] || sleep {marker}", folder, timeout_seconds=seconds
    )
    assert result.timed_out == (seconds != 20)
    assert not is_running(marker)


@linux
async def test_daemons_end_when_their_host_is_killed(commands: Commands, folder: Path, marker: str) -> None:
    started = f"{DAEMON.format(marker)}; sleep {marker}"
    await asyncio.to_thread(kill_host, setting(commands), started, folder, after=0.3)
    assert await ends_soon(marker)


@pytest.mark.slow
@linux
@pytest.mark.parametrize("after", [0.003, 0.008, 0.013, 0.018])
async def test_a_host_that_is_killed_while_a_command_starts_leaves_nothing(
    commands: Commands, folder: Path, marker: str, after: float
) -> None:
    await asyncio.to_thread(
        kill_host, setting(commands), f"{DAEMON.format(marker)}; sleep {marker}", folder, after=after
    )
    assert await ends_soon(marker)


@linux
async def test_commands_leave_no_descriptor_and_no_process(commands: Commands, folder: Path) -> None:
    await run(commands, "true", folder)
    before, processes = sorted(os.listdir("/proc/self/fd")), leaks.children()
    await asyncio.gather(*(run(commands, "true & exit 3", folder) for _ in range(3)))
    late = asyncio.create_task(run(commands, "sleep 30", folder))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert leaks.children() == processes


# -------------------------------------------------------------------------- a failing sandbox


@linux
@pytest.mark.parametrize("signal", ["KILL", "TERM"])
async def test_a_command_that_ends_what_confines_it_has_no_exit_code(folder: Path, marker: str, signal: str) -> None:
    with pytest.raises(SandboxFailed, match="subreaper"):
        await run(PROCESS, f"sleep {marker} & kill -{signal} $PPID; sleep 9", folder)
    assert await ends_soon(marker)


@linux
async def test_a_command_that_stops_what_confines_it_ends_in_time_all_the_same(folder: Path, marker: str) -> None:
    result = await run(PROCESS, f"setsid sleep {marker} & kill -STOP $PPID; sleep 9", folder, timeout_seconds=0.3)
    assert result.timed_out
    assert await ends_soon(marker)


@linux
async def test_a_command_whose_processes_can_not_be_ended_in_time_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends them goes on with that."""
    assert await PROCESS.mechanism() == "process"
    await run(PROCESS, "true", folder)
    slow = (
        "import os, time, _signal; _signal.signal(_signal.SIGTERM, _signal.SIG_IGN); time.sleep(1); "
        f"open({str(folder / 'ended')!r}, 'w').write(str(os.getpid()))  # {{0}}"
    )
    monkeypatch.setattr(
        "delegate.sandbox.commands.launcher._START", slow
    )  # as a subreaper that finds more and more of them
    monkeypatch.setattr("delegate.sandbox.processes.process.DEATH_SECONDS", 0.2)
    with pytest.raises(ProcessesLeft) as raised:
        await run(PROCESS, "true", folder, timeout_seconds=0.3)
    assert raised.value.code == "processes_left"
    ended = folder / "ended"
    assert await until(lambda: ended.exists() and not Path("/proc", ended.read_text() or "self").exists())


@linux
async def test_a_command_can_not_report_an_exit_code_for_what_confines_it(folder: Path) -> None:
    forge = "for f in /proc/$PPID/fd/*; do [ ${f##*/} -gt 2 ] && echo '{\"exit-code\": 0}' > $f; done; kill -9 $PPID"
    with pytest.raises(SandboxFailed):
        await run(PROCESS, forge, folder)


FLAKY_BWRAP = """#!/bin/sh
if [ -e {broken} ]; then echo 'bwrap: No permissions to create a new namespace' >&2; exit 1; fi
while [ "$1" != -- ]; do [ "$1" = --json-status-fd ] && fd=$2; shift; done
shift; "$@"; code=$?
echo "{{\\"exit-code\\": $code}}" > /proc/self/fd/$fd
exit $code
"""


@pytest.fixture
async def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Bubblewrap worked when it was probed, and doesn't any more."""
    bwrap, broken = tmp_path / "bin" / "bwrap", tmp_path / "broken"
    bwrap.parent.mkdir()
    bwrap.write_text(FLAKY_BWRAP.format(broken=broken))
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bwrap.parent}:{os.environ['PATH']}")
    commands = Commands(sandbox="require")
    assert await commands.mechanism() == "bubblewrap"
    broken.touch()
    return commands


@linux
async def test_a_sandbox_that_can_not_be_set_up_is_not_exit_code_1(failing: Commands, folder: Path) -> None:
    with pytest.raises(SandboxFailed, match=r"bubblewrap failed.*No permissions") as failed:
        await run(failing, "true", folder)
    assert failed.value.code == "sandbox_failed"


@linux
@pytest.mark.parametrize("wanted", [0, 1])
async def test_a_criterion_is_never_met_by_a_sandbox_that_fails(failing: Commands, folder: Path, wanted: int) -> None:
    criterion = ShellCriterion(kind="shell", command="true", exit_code=wanted, id="c1")
    child = ChildRun(status="completed", report="done")
    case = Submission(Task(goal="g"), child, Folder.of_existing(folder), author="person", worker=None)
    work = FrozenWork(case, failing)
    (result,) = await run_checks(case, [criterion], failing, CheckGuard(case, work))
    await work.close()
    assert (result.outcome, result.code) == ("error", "sandbox_failed")


async def test_inside_an_application_that_is_no_python_commands_still_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/editor/editor")
    commands = Commands(sandbox="off")
    assert (await run(commands, "echo yes; exit 2", folder)).exit_code == 2


async def test_hidden_folders_can_not_be_read_but_for_the_commands_own(tmp_path: Path) -> None:
    home = tmp_path / "records"
    own, other = home / "workspaces" / "one", home / "workspaces" / "two"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "notes").write_text(f"of {folder.name}")
    (home / "runs.sqlite").write_text("canary")
    commands = Commands(sandbox="require", hidden=[home])
    if await commands.mechanism() is None:
        pytest.skip("no sandbox works here")
    result = await run(commands, "cat ../../runs.sqlite ../two/notes notes; ls ..; echo new > new", own)
    assert result.stdout in ("of oneone\n", "of one")  # Landlock can't list a folder above hidden ones
    assert (own / "new").read_text() == "new\n"


async def test_a_command_has_a_tmp_of_its_own_that_ends_with_it(folder: Path) -> None:
    commands = Commands()
    if await commands.mechanism() not in SANDBOXES:
        pytest.skip("no sandbox works here")
    name = f"own-{os.getpid()}"
    written = await run(commands, f"echo mine > /tmp/{name} && cat /tmp/{name}", folder)
    if written.exit_code != 0:
        pytest.skip("this kernel permits no user namespaces")
    assert written.stdout == "mine\n"
    assert not Path("/tmp", name).exists()
    assert (await run(commands, f"cat /tmp/{name}", folder)).exit_code != 0
