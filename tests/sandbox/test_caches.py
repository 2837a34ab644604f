"""Programs that need their caches work in a sandbox, and nothing that a command leaves there reaches another one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import delegate
from delegate.sandbox.commands import bubblewrap
from delegate.sandbox.commands.launcher import landlock_is_available
from delegate.sandbox.processes.environment import CACHES
from tests.sandbox.ordinary import COMMANDS
from tests.sandbox.test_launcher import MODES

_RUN = """
import asyncio, json, os, sys
from pathlib import Path
from delegate.sandbox.commands.confinement import CommandSpec, Confinement, execute, shell
from delegate.sandbox.processes.environment import command_environment

spec = CommandSpec(shell(sys.argv[3]), Path(sys.argv[2]), command_environment(os.environ), 60, 5_000)
done = asyncio.run(execute(spec, Confinement(sys.argv[1], subreaper=True)))
print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""
SANDBOXES: Mapping[str, Sequence[str]] = {"bubblewrap": (), **{k: v for k, v in MODES.items() if k != "process"}}
TOOLS = " ".join(f"${name}" for name in CACHES)


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


Run = Callable[[str], Ran]


@pytest.fixture
def home() -> Generator[Path]:
    """A home outside /tmp, of which a sandbox shows nothing, with an empty folder for caches."""
    with tempfile.TemporaryDirectory(prefix="delegate-home-", dir="/var/tmp") as folder:
        (home := Path(folder).resolve()).joinpath(".cache").mkdir()
        yield home


@pytest.fixture(params=list(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> str:
    if request.param == "bubblewrap":
        if bubblewrap.installed() is None:
            pytest.skip("bubblewrap is not installed")
    elif not landlock_is_available():
        pytest.skip("this kernel lacks Landlock")
    start = SANDBOXES[request.param]
    if start and subprocess.run([*start, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs namespaces, to forbid some of them")
    return request.param


@pytest.fixture
def run(sandbox: str, home: Path, tmp_path: Path) -> Run:
    return _in(sandbox, home, tmp_path)


def _in(sandbox: str, home: Path, folder: Path) -> Run:
    kind = "bubblewrap" if sandbox == "bubblewrap" else "landlock"
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(Path(delegate.__file__).parent.parent)}

    def run(command: str) -> Ran:
        program = [*SANDBOXES[sandbox], sys.executable, "-c", _RUN, kind, str(folder), command]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        return Ran(*json.loads(done.stdout))

    return run


def _layers(sandbox: str) -> bool:
    return sandbox in ("namespaces", "no new proc")


@pytest.mark.parametrize("sandbox", ["namespaces", "no new proc"], indirect=True)
def test_what_a_command_changes_in_the_caches_is_there_for_it_alone(run: Run, home: Path) -> None:
    kept = home / ".cache" / "tool" / "kept"
    kept.parent.mkdir()
    kept.write_text("of the user\n")
    ended = run(
        f"cat {kept} && echo poison > {kept} && cat {kept} && touch {kept}2 && rm -r {kept.parent} && ls ~/.cache"
    )
    assert ended == (0, "of the user\npoison\n", "")
    assert kept.read_text() == "of the user\n", "it is the user's still"
    assert [one.name for one in kept.parent.iterdir()] == ["kept"]
    assert run(f"cat {kept}").stdout == "of the user\n", "the next command finds what the user left"


@pytest.mark.parametrize("has_caches", [True, False])
def test_programs_that_fail_without_a_cache_have_one(sandbox: str, run: Run, home: Path, has_caches: bool) -> None:
    if not has_caches:
        (home / ".cache").rmdir()
    own = "${GOCACHE:-$HOME/.cache/go-build} ${UV_CACHE_DIR:-$HOME/.cache/uv} ${ZIG_GLOBAL_CACHE_DIR:-$HOME/.cache/zig}"
    ended = run(f"for one in {own}; do mkdir $one && echo x > $one/x || exit 1; done; echo {TOOLS}")
    assert (ended.code, ended.stderr) == (0, "")
    assert (ended.stdout == "\n") == (_layers(sandbox) and has_caches), "a variable is set only where it is needed"
    again = run(f"for one in {own}; do [ ! -e $one ] || exit 1; done")
    assert again.code == 0, "and it was empty"
    assert [*home.rglob("*")] == [home / ".cache"] * has_caches


def test_a_secret_among_the_caches_stays_hidden(run: Run, home: Path) -> None:
    token = home / ".cache" / "huggingface" / "token"
    token.parent.mkdir()
    token.write_text("hf_secret")
    (token.parent / "model").write_text("weights")
    assert run(f"cat {token.parent}/model").stdout == "weights"
    assert "hf_secret" not in run(f"cat {token}; mv {token.parent} {token.parent}2; cat {token.parent}2/token").stdout
    assert token.read_text() == "hf_secret"


@pytest.mark.parametrize("sandbox", ["namespaces"], indirect=True)
def test_a_command_that_works_in_the_home_folder_keeps_its_caches(sandbox: str, home: Path) -> None:
    run = _in(sandbox, home, home)
    assert run(f"echo x > ~/.cache/x; echo {TOOLS}") == (0, "\n", "")
    assert run("rmdir ~/.cache 2>/dev/null; rm -r ~/.cache && ln -s / ~/.cache").code == 0
    assert run("touch ~/.cache/var/tmp/x").code != 0, "what a link of the command's leads to can't be changed"
    assert (home / ".cache").readlink() == Path("/")


@pytest.mark.parametrize("sandbox", ["namespaces"], indirect=True)
def test_folders_of_the_user_below_the_caches_can_be_linked_to(run: Run, home: Path) -> None:
    (home / ".cache").rmdir()
    (home / "scratch").mkdir()
    (home / ".cache").symlink_to(home / "scratch")
    assert run("echo x > ~/.cache/x && cat ~/.cache/x").stdout == "x\n"
    assert [*(home / "scratch").iterdir()] == []


@pytest.mark.parametrize("name", ["go vet and go test", "uv run"])
def test_programs_with_caches_work(name: str, run: Run) -> None:
    if missing := [program for program in COMMANDS[name].needs if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    assert run(COMMANDS[name].command).code == 0
