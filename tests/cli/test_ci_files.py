"""The GitHub Action and the pre-commit hook: their files parse, and their scripts run here as they would there."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command import delegate
from tests.support import warm

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
RUNNER_SHELL = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail"]
"""What `shell: bash` means to GitHub's runner."""
HOSTILE = '$(touch pwned); `touch pwned` "; touch pwned; "\n::error::forged\n${{ secrets.X }} \' --format=json'

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the action is for Linux and macOS")


@pytest.fixture
def action() -> dict[str, Any]:
    return yaml.safe_load(ACTION.read_text())


def _step(action: dict[str, Any], name: str) -> dict[str, Any]:
    return next(step for step in action["runs"]["steps"] if step.get("name") == name)


class Runner:
    """Runs the shell steps of the action in the working directory, with the environment that GitHub's runner gives."""

    def __init__(self, action: dict[str, Any], folder: Path) -> None:
        self._action, self.temp = action, folder / "runner temp"
        self.output = folder / "github_output"
        self._install(self.temp / "delegate-judge/bin")

    def _install(self, bin: Path) -> None:
        """What the install step leaves behind, but with a `delegate` that is loaded already."""
        bin.mkdir(parents=True)
        (bin / "python").symlink_to(sys.executable)
        (bin / "delegate").write_text(f'#!/bin/sh\nexec {shlex.join(warm.delegate())} "$@"\n')
        (bin / "delegate").chmod(0o755)

    def install_isolated(self) -> None:
        """What the install step does leave behind, a script for `python -I`, but with the sources that are tested."""
        script = self.temp / "delegate-judge/bin/delegate"
        script.write_text(
            f"#!{sys.executable} -I\nimport sys\nsys.path[:0] = {[str(ROOT), *sys.path]!r}\n"
            "from delegate.cli import main\nmain()\n"
        )

    def run(self, name: str, *, path: str = "", **inputs: str) -> "subprocess.CompletedProcess[str]":
        """Run one step with these inputs. `path` is a folder in which programs are looked for first."""
        given = {name: str(one.get("default", "")) for name, one in self._action["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        step = _step(self._action, name)
        env = {key: self._evaluated(value, given) for key, value in step["env"].items()}
        script = self.temp / "script.sh"
        script.write_text(step["run"])
        files = {"GITHUB_OUTPUT": str(self.output), "RUNNER_TEMP": str(self.temp)}
        return subprocess.run(
            [*RUNNER_SHELL, str(script)],
            capture_output=True, text=True, timeout=60, stdin=subprocess.PIPE,
            env={**os.environ, **files, **env, "PATH": f"{path}:{os.environ['PATH']}"},
        )  # fmt: skip

    def _evaluated(self, value: str, given: Mapping[str, str]) -> str:
        context = {"github.action_path": str(ACTION.parent), "runner.temp": str(self.temp)}
        context |= {f"inputs.{name}": text for name, text in given.items()}
        # A function, so that nothing in an input is read as a reference to a group.
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: context[found[1]], value)


@pytest.fixture
def runner(action: dict[str, Any], tmp_path: Path) -> Runner:
    Path("work").mkdir()
    Path("work/note.md").write_text("hello\n")
    return Runner(action, tmp_path)


def test_no_script_of_the_action_contains_an_expression(action: dict[str, Any]) -> None:
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert len(scripts) == 2
    assert all("${{" not in script for script in scripts)
    assert all(step["shell"] == "bash" for step in action["runs"]["steps"] if "run" in step)
    assert {"goal", "criteria", "report", "workspace", "format", "python-version"} <= set(action["inputs"])


def test_every_input_and_output_of_the_action_is_used(action: dict[str, Any]) -> None:
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", ACTION.read_text()))
    assert used == set(action["inputs"])
    written = set(re.findall(r'echo "([\w-]+)=', _step(action, "Judge")["run"]))
    assert written == set(action["outputs"])


def test_the_action_judges_a_workspace_and_says_where_the_verdict_is(runner: Runner) -> None:
    done = runner.run("Judge", goal="x", criteria="file: note.md\nshell: grep -q hello note.md", workspace="work")
    assert done.returncode == 0, done.stdout + done.stderr
    told = "PASS (proven): all 2 criteria are met%0Ac1 met; proven%0Ac2 met; proven"
    assert done.stdout == f"::notice title=delegate%3A x::{told}\n"
    assert runner.output.read_text().startswith("exit-code=0\nfile=")


@pytest.mark.parametrize(
    ("inputs", "exit_code"),
    [
        ({"criteria": "file: other.md"}, 1),
        ({"criteria": "regex: ("}, 2),
        ({"criteria": ""}, 2),
        ({"criteria": "the note is kind"}, 3),
        ({"criteria": "regex: done", "report": "report.md"}, 0),
        ({"criteria_file": "criteria.txt"}, 0),
    ],
)
def test_the_exit_code_of_the_action_is_that_of_the_verdict(
    runner: Runner, inputs: dict[str, str], exit_code: int
) -> None:
    Path("report.md").write_text("all is done\n")
    Path("criteria.txt").write_text("file: note.md\n")
    done = runner.run("Judge", goal="x", workspace="work", **inputs)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert runner.output.read_text().startswith(f"exit-code={exit_code}\n")


def test_both_kinds_of_criteria_are_refused_by_the_action(runner: Runner) -> None:
    done = runner.run("Judge", goal="x", criteria="file: note.md", criteria_file="criteria.txt")
    assert (done.returncode, runner.output.exists()) == (2, False)
    assert done.stdout == "::error title=delegate::give criteria or criteria-file, not both\n"


@pytest.mark.parametrize("name", ["goal", "criteria", "criteria_file", "report", "workspace", "format"])
def test_a_hostile_input_of_the_action_is_only_text(runner: Runner, name: str) -> None:
    inputs = {"goal": "x", "workspace": "work", "criteria": "file: note.md", name: HOSTILE}
    if name == "criteria_file":
        del inputs["criteria"]
    done = runner.run("Judge", **inputs)
    assert not list(Path().rglob("pwned")), done.stdout
    assert done.returncode in (0, 2, 3)
    assert _obeyed(done.stdout) <= {"notice", "warning", "error"}
    assert "::error::forged" not in _lines_obeyed(done.stdout)
    assert done.stderr == ""


@pytest.mark.parametrize("format", ["pretty", "junit"])
def test_the_runner_obeys_no_text_of_another_format(runner: Runner, format: str) -> None:
    Path("work/attack.txt").write_text("::error::forged\n##[add-path]/tmp/evil\n::stop-commands::x\n::x::\n")
    done = runner.run("Judge", goal="x", criteria="shell: cat attack.txt; exit 1", workspace="work", format=format)
    assert done.returncode == 1, done.stdout
    assert _obeyed(done.stdout) == set()
    verdict = Path(runner.output.read_text().partition("file=")[2].strip())
    assert "forged" in verdict.read_text()


def _lines_obeyed(text: str) -> list[str]:
    """The lines in which the runner looks for commands: all that aren't between a `stop-commands` and its token."""
    found, token = list[str](), None
    for line in re.split(r"[\r\n]+", text):
        if token is not None:
            token = None if line == f"::{token}::" else token
        elif stopped := re.match(r"::stop-commands::(.+)", line):
            token = stopped[1]
            assert re.fullmatch("[0-9a-f]{32}", token)
        else:
            found.append(line)
    assert token is None
    return found


def _obeyed(text: str) -> set[str]:
    """The names of the commands that the runner obeys."""
    lines = [line.strip() for line in _lines_obeyed(text)]
    assert not any("##[" in line for line in lines if not line.startswith("::"))
    return {line[2:].partition(" ")[0].partition("::")[0] for line in lines if line.startswith("::")}


def test_the_install_step_imports_nothing_from_the_work(action: dict[str, Any], runner: Runner) -> None:
    """`python` records its arguments and does only what is harmless; the work has modules that would be imported."""
    for module in ("pip", "venv", "delegate"):
        Path(f"{module}.py").write_text("open('pwned', 'w')\n")
    bin = runner.temp / "path"
    bin.mkdir()
    recorder = f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{runner.temp}/calls"\n{sys.executable} -I -m pip --version\n'
    for program in (bin / "python", runner.temp / "delegate-judge/bin/python"):
        program.unlink(missing_ok=True)
        program.write_text(recorder)
        program.chmod(0o755)
    done = runner.run("Install delegate", path=str(bin))
    assert done.returncode == 0, done.stderr
    venv, install = (runner.temp / "calls").read_text().splitlines()
    assert venv == f"-I -m venv {runner.temp}/delegate-judge"
    assert install.startswith("-I -m pip install ")
    source = Path(install.partition(" --disable-pip-version-check ")[2])
    assert source.samefile(ROOT)
    assert not Path("pwned").exists()


def test_a_module_in_the_work_isnt_imported_by_the_judge_step(runner: Runner) -> None:
    runner.install_isolated()
    for module in ("delegate", "secrets", "json", "typer"):
        Path(f"{module}.py").write_text("open('pwned', 'w')\n")
    done = runner.run("Judge", goal="x", criteria="file: note.md", workspace="work", format="pretty")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not Path("pwned").exists()


# ------------------------------------------------------------------------------------------------- the pre-commit hook


@pytest.fixture
def hook() -> dict[str, Any]:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return hook


def test_the_hook_matches_files_of_criteria_and_tasks(hook: dict[str, Any]) -> None:
    assert {"id", "name", "entry", "language", "files"} <= set(hook)
    matching = ["criteria.txt", "ci/criteria.yaml", "my-tasks.json", "a/b_tasks.jsonl", "tasks.toml"]
    others = ["criteria.py", "tasks.csv", "notes.txt", "criteria.txt.bak", "tasks/readme.md"]
    assert [name for name in matching + others if re.search(hook["files"], name)] == matching


def _hook(hook: dict[str, Any], *files: str) -> "subprocess.CompletedProcess[str]":
    program, *arguments = hook["entry"].split()
    assert program == "delegate"
    return delegate(*arguments, *files)


def test_the_hook_names_what_it_found_by_file_task_and_criterion(hook: dict[str, Any]) -> None:
    good = {"id": "a", "goal": "x", "acceptance_criteria": ["shell: test -f a"], "needs": []}
    bad = {"id": "b", "goal": "x", "acceptance_criteria": ["shell: false || true"]}
    Path("criteria.txt").write_text("file: note.md\nshell: make test; true\n")
    Path("tasks.yaml").write_text(yaml.safe_dump([good, bad]))
    Path("tasks.toml").write_text('[[tasks]]\ngoal = "x"\nacceptance_criteria = ["shell: false | tee log"]\n')
    done = _hook(hook, "criteria.txt", "tasks.yaml", "tasks.toml")
    assert done.returncode == 1
    first, second, third = done.stdout.splitlines()
    assert first.startswith("criteria.txt: c2: ")
    assert second.startswith("tasks.yaml: task b, c1: ")
    assert third.startswith("tasks.toml: task 1, c1: ")


def test_the_hook_is_silent_on_good_files_and_refuses_broken_ones(hook: dict[str, Any]) -> None:
    Path("tasks.jsonl").write_text('{"goal": "x", "acceptance_criteria": ["shell: test -f a"]}\n')
    Path("criteria.json").write_text('["file: note.md"]')
    good = _hook(hook, "tasks.jsonl", "criteria.json")
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    Path("tasks.jsonl").write_text('{"goal": "x"}\n{"goal": 1}\n')
    bad = _hook(hook, "tasks.jsonl", "criteria.json")
    assert bad.returncode == 2
    assert bad.stderr.startswith("delegate: tasks.jsonl: row 2: ")
