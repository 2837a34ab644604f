import asyncio
import contextlib
import os
import subprocess
import time
import tracemalloc
from pathlib import Path
from typing import Any, Literal

import pytest

from delegate.errors import ToolDenied, ToolError
from delegate.sandbox.commands import CommandResult, Commands, CommandsNotAllowed

Sandbox = Literal["auto", "require", "off"]


@pytest.fixture(params=["bubblewrap", "process"])
async def commands(request: pytest.FixtureRequest) -> Commands:
    """Each behaviour that both mechanisms share is tested on both."""
    if request.param == "process":
        return Commands(sandbox="off", commands="allow", max_output_bytes=1_000)
    found = Commands(sandbox="require", commands="allow", max_output_bytes=1_000)
    if await found.mechanism() is None:
        pytest.skip("bubblewrap doesn't work here")
    return found


@pytest.fixture
async def sandboxed() -> Commands:
    found = Commands(sandbox="require")
    if await found.mechanism() is None:
        pytest.skip("bubblewrap doesn't work here")
    return found


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a shell, but without `bwrap`."""
    (tmp_path / "bin").mkdir()
    for program in ("bash", "sh", "true", "touch"):
        (tmp_path / "bin" / program).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def no_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS, as far as Linux can play it."""
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


def sleeps(marker: str) -> bool:
    if not Path("/proc").is_dir():
        return subprocess.run(["pgrep", "-f", f"sleep {marker}"], stdout=subprocess.DEVNULL).returncode == 0
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if process.read_bytes() == f"sleep\0{marker}\0".encode():
                return True
    return False


async def soon(marker: str, *, running: bool) -> bool:
    """A process takes a moment to be what it will be, and a killed one to leave the process table."""
    for _ in range(100):
        if sleeps(marker) == running:
            return True
        await asyncio.sleep(0.02)
    return False


async def soon_dead(marker: str) -> bool:
    return await soon(marker, running=False)


async def run(commands: Commands, command: str, cwd: Path, **kwargs: Any) -> CommandResult:
    given: dict[str, Any] = {"timeout_seconds": 20} | kwargs
    return await commands.run(command, cwd=cwd, author="person", **given)


async def test_a_command_gives_its_exit_code_and_both_streams(commands: Commands, folder: Path) -> None:
    result = await run(commands, "echo out; echo err >&2; exit 3", folder)
    assert (result.exit_code, result.stdout, result.stderr, result.timed_out) == (3, "out\n", "err\n", False)
    assert result.output == "out\n[stderr]\nerr\n"


async def test_a_command_says_which_mechanism_confined_it(commands: Commands, folder: Path) -> None:
    assert (await run(commands, "true", folder)).sandbox == await commands.mechanism()


async def test_a_command_works_in_its_folder_and_what_it_writes_there_stays(commands: Commands, folder: Path) -> None:
    await run(commands, "pwd > here.txt", folder)
    assert (folder / "here.txt").read_text() == f"{folder}\n"


async def test_a_command_that_dies_of_a_signal_leaves_as_shells_say_it(commands: Commands, folder: Path) -> None:
    assert (await run(commands, "kill -9 $$", folder)).exit_code == 137


async def test_a_background_process_that_holds_the_pipe_does_not_hold_up_the_end(
    commands: Commands, folder: Path, marker: str
) -> None:
    result = await run(commands, f"sleep {marker} & echo done", folder)
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert result.seconds < 5
    assert await soon_dead(marker)


async def test_after_its_time_a_command_is_killed_with_all_it_started(
    commands: Commands, folder: Path, marker: str
) -> None:
    result = await run(commands, f"trap '' TERM; sleep {marker} & sleep {marker}", folder, timeout_seconds=0.3)
    assert (result.timed_out, result.exit_code) == (True, None)
    assert await soon_dead(marker)


async def test_a_cancelled_command_is_killed_with_all_it_started(commands: Commands, folder: Path, marker: str) -> None:
    os.mkfifo(folder / "started")
    running = asyncio.create_task(run(commands, f"sleep {marker} & echo > started; sleep {marker}", folder))
    await asyncio.to_thread((folder / "started").read_text)
    assert await soon(marker, running=True)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await soon_dead(marker)


async def test_a_flood_of_output_leaves_its_end_and_says_what_was_cut(commands: Commands, folder: Path) -> None:
    result = await run(commands, "seq 1 200000; echo THE END", folder)
    assert result.stdout.startswith("[… the first ")
    assert result.stdout.endswith("200000\nTHE END\n")
    assert len(result.stdout) < 1_100


async def test_a_flood_of_output_is_not_kept_in_memory(commands: Commands, folder: Path) -> None:
    tracemalloc.start()
    try:
        await run(commands, "yes", folder, timeout_seconds=0.3)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_the_event_loop_stays_responsive_under_three_floods(commands: Commands, folder: Path) -> None:
    longest, stop = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not stop.is_set():
            before = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - before)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(run(commands, "yes", folder, timeout_seconds=0.5) for _ in range(3)))
    stop.set()
    await watching
    assert longest < 0.25  # 10 ms on a quiet machine


async def test_a_command_has_no_input_to_wait_for(commands: Commands, folder: Path) -> None:
    assert (await run(commands, "cat; echo over", folder, timeout_seconds=10)).stdout == "over\n"


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


async def test_a_file_can_not_fill_the_disk(commands: Commands, folder: Path) -> None:
    assert (await run(commands, "ulimit -f; ulimit -c", folder)).stdout.split() == ["1048576", "0"]


async def test_output_that_is_not_utf8_is_still_text(commands: Commands, folder: Path) -> None:
    assert (await run(commands, r"printf 'a\377b'", folder)).stdout == "a�b"


async def test_without_pidfd_commands_end_and_are_cleaned_up_all_the_same(
    no_pidfd: None, commands: Commands, folder: Path, marker: str
) -> None:
    result = await run(commands, f"sleep {marker} & echo done; exit 4", folder)
    assert (result.exit_code, result.stdout) == (4, "done\n")
    late = await run(commands, f"sleep {marker}", folder, timeout_seconds=0.2)
    assert late.timed_out
    assert await soon_dead(marker)


@pytest.mark.parametrize("command", ["echo \0", "true " + "x" * 3_000_000], ids=["NUL byte", "too long"])
async def test_what_can_not_be_started_is_a_tool_error(commands: Commands, folder: Path, command: str) -> None:
    with pytest.raises(ToolError, match="can't be started"):
        await run(commands, command, folder)


async def test_a_folder_that_is_gone_is_a_tool_error(folder: Path) -> None:
    with pytest.raises(ToolError, match="can't be started"):
        await run(Commands(sandbox="off"), "true", folder / "gone")


# ------------------------------------------------------------------------------------------------- the policy


async def test_by_default_a_models_command_is_refused_without_bubblewrap_and_the_text_names_the_mend(
    no_bubblewrap: None, folder: Path
) -> None:
    with pytest.raises(CommandsNotAllowed) as refused:
        await Commands().run("touch ran", cwd=folder, timeout_seconds=5, author="model")
    assert refused.value.code == "commands_not_allowed"
    assert isinstance(refused.value, ToolDenied)
    for word in ("commands", '"allow"', "delegate.toml", "DELEGATE_COMMANDS=allow", "bubblewrap"):
        assert word in str(refused.value)
    assert not (folder / "ran").exists()


async def test_a_persons_command_runs_without_bubblewrap(no_bubblewrap: None, folder: Path) -> None:
    result = await run(Commands(), "echo yes", folder)
    assert (result.stdout, result.sandbox) == ("yes\n", "process")


async def test_allow_lets_a_models_command_run_without_bubblewrap(no_bubblewrap: None, folder: Path) -> None:
    result = await Commands(commands="allow").run("echo yes", cwd=folder, timeout_seconds=5, author="model")
    assert (result.stdout, result.sandbox) == ("yes\n", "process")


async def test_a_models_command_is_refused_when_the_sandbox_is_switched_off(folder: Path) -> None:
    with pytest.raises(CommandsNotAllowed, match='sandbox = "off"'):
        await Commands(sandbox="off").run("true", cwd=folder, timeout_seconds=5, author="model")


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_deny_refuses_a_models_command_everywhere_and_no_persons_command(folder: Path, sandbox: Sandbox) -> None:
    commands = Commands(sandbox=sandbox, commands="deny")
    with pytest.raises(CommandsNotAllowed) as refused:
        await commands.run("true", cwd=folder, timeout_seconds=5, author="model")
    assert refused.value.code == "commands_not_allowed"
    assert (await run(commands, "true", folder)).exit_code == 0


async def test_require_refuses_everybody_without_bubblewrap(no_bubblewrap: None, folder: Path) -> None:
    commands = Commands(sandbox="require", commands="allow")
    assert await commands.mechanism() is None
    with pytest.raises(CommandsNotAllowed) as refused:
        await run(commands, "true", folder)
    assert refused.value.code == "sandbox_unavailable"


async def test_without_bubblewrap_a_command_can_not_be_cut_off_from_the_network(folder: Path) -> None:
    with pytest.raises(CommandsNotAllowed) as refused:
        await run(Commands(sandbox="off"), "true", folder, network="none")
    assert refused.value.code == "network_isolation_unavailable"


async def test_a_bubblewrap_that_does_not_work_counts_as_none(
    no_bubblewrap: None, folder: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert await Commands().mechanism() == "process"
    assert await Commands(sandbox="require").mechanism() is None


# ---------------------------------------------------------------------------------------- inside bubblewrap


async def test_a_models_command_runs_inside_bubblewrap(sandboxed: Commands, folder: Path) -> None:
    result = await sandboxed.run("echo yes", cwd=folder, timeout_seconds=10, author="model")
    assert (result.stdout, result.sandbox) == ("yes\n", "bubblewrap")


async def test_nothing_outside_the_folder_can_be_written(sandboxed: Commands, folder: Path, tmp_path: Path) -> None:
    outside = [tmp_path / "outside", Path.home() / "delegate-test-outside", Path("/usr/delegate-test-outside")]
    await run(sandboxed, "; ".join(f"touch {path}" for path in outside), folder)
    assert [path for path in outside if path.exists()] == []


async def test_the_parents_environment_can_not_be_read_through_proc(sandboxed: Commands, folder: Path) -> None:
    environ = f"/proc/{os.getpid()}/environ"
    assert (await run(sandboxed, f"cat {environ}; ls -d /proc/[0-9]* | wc -l", folder)).stdout.strip() in "12345"


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


async def test_a_daemon_that_left_the_group_dies_with_the_sandbox(
    sandboxed: Commands, folder: Path, marker: str
) -> None:
    await run(sandboxed, f"setsid sleep {marker} >/dev/null 2>&1 & sleep 0.2; echo done", folder)
    assert await soon_dead(marker)


async def test_network_none_cuts_off_even_loopback_and_host_does_not(sandboxed: Commands, folder: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        knock = f"exec 3<>/dev/tcp/127.0.0.1/{server.sockets[0].getsockname()[1]}"
        assert (await run(sandboxed, knock, folder)).exit_code == 0
        try:
            assert (await run(sandboxed, knock, folder, network="none")).exit_code != 0
        except CommandsNotAllowed:
            pytest.skip("network namespaces don't work here")
