"""What runs delegate, and what delegate runs itself: no child changes it."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import delegate
from delegate.sandbox.filesystem.paths import own_program
from delegate.sandbox.processes.environment import find_program

CODE = """
import asyncio, sys
from pathlib import Path
from delegate.types.errors import ToolDenied
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.processes.environment import find_program
from delegate.sandbox.filesystem.paths import own_program
from delegate.sandbox.workspace.folder import Folder

root = Path.cwd()
print(own_program(root) == [root / "tools" / "env"])
try:
    Folder.of_existing(root).write("tools/env/lib/new.py", b"evil")
except ToolDenied as denied:
    print(denied)
command = "echo evil >> tools/env/pyvenv.cfg; mv tools old; mkdir -p tools/env; echo evil > tools/new; echo done"
commands = Commands(sandbox="require", commands="allow")
if asyncio.run(commands.mechanism()) and asyncio.run(commands.mounts_copies()):
    print(asyncio.run(commands.run(command, cwd=root, timeout_seconds=20, author="model")).stdout)
"""


def test_what_runs_delegate_in_a_workspace_stays(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "work"
    env = root / "tools" / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    before = (env / "pyvenv.cfg").read_text()
    packages = [str(Path(delegate.__file__).parent.parent), sysconfig.get_path("purelib")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [str(env / "bin" / "python"), "-c", CODE]
    done = subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True\ntools/env/lib/new.py is part of what runs delegate"), done.stderr
    assert (env / "pyvenv.cfg").read_text() == before
    assert not (env / "lib" / "new.py").exists()
    if "done" in done.stdout:
        assert (root / "tools" / "new").exists(), "a command can write in the folder that contains it"


def test_of_what_runs_delegate_a_folder_outside_and_the_root_itself_are_left_out(tmp_path: Path) -> None:
    package = Path(delegate.__file__).resolve().parent
    assert own_program(tmp_path.resolve()) == []
    assert own_program(package) == []
    assert any(package.is_relative_to(path) for path in own_program(Path("/")))


def test_a_program_that_a_child_could_have_left_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    for folder in (work / "env" / "bin", tmp_path / "bin"):
        folder.mkdir(parents=True)
        (folder / "git").write_text("#!/bin/sh\n")
        (folder / "git").chmod(0o755)
    (tmp_path / "link").symlink_to(work / "env" / "bin")
    monkeypatch.chdir(work)
    for planted in (str(work / "env" / "bin"), str(tmp_path / "link"), "env/bin", ""):
        monkeypatch.setenv("PATH", os.pathsep.join((planted, str(tmp_path / "bin"))))
        assert find_program("git") == str(tmp_path / "bin" / "git")
    monkeypatch.setenv("PATH", "env/bin")
    assert find_program("git") is None
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(work / "env" / "bin"))
    assert find_program("git"), "in a home folder, the user's own programs count"
