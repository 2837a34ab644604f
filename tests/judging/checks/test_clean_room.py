"""Shell checks that a child bends, in every way that the usual tools allow, and honest work that looks similar."""

import asyncio
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from delegate import Delegator, Job, Task, TaskResult, Verdict
from delegate.child.function import FunctionRunner
from delegate.models.providers.scripted import Scripted
from delegate.types import Workspace
from tests.support.samples import sampled
from tests.support.words import met_by, words

PYTHON = sys.executable
UNITTEST = f"{PYTHON} -m unittest -q"
PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {PYTHON} -m pytest -q -p no:cacheprovider"
WITH_PLUGINS = "python3 -m pytest -q -p no:cacheprovider"
"""Loads every plugin that it finds."""
GOAL = "add() gives wrong sums. Repair it in calc.py and report what was wrong."

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TEST = """\
import unittest
import calc

class Sums(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(calc.add(2, 3), 5)
"""
CHECK = "#!/bin/sh\ntest \"$(python3 -c 'import calc; print(calc.add(2, 3))')\" = 5\n"
Files = Mapping[str, str]
CALC: Files = {"calc.py": WRONG, "test_calc.py": TEST}
SHELL: Files = {"calc.py": WRONG, "check.sh": CHECK}
NODE: Files = {
    "calc.js": "exports.add = (a, b) => a - b\n",
    "calc.test.js": "const {add} = require('./calc'); if (add(2, 3) !== 5) process.exit(1)\n",
    "package.json": '{"name": "calc", "version": "1.0.0", "scripts": {"test": "node calc.test.js"}}\n',
}
Deed = Callable[[Path], object]

needs_node = pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not installed")
needs_npm = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
needs_make = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
NEEDS = {"node": needs_node, "npm": needs_npm, "make": needs_make, "git": needs_git}


@dataclass(frozen=True)
class Case:
    """A project, what the child does in it, and the command that checks it."""

    files: Files
    command: str
    deed: Deed
    goal: str = GOAL
    prepare: Deed | None = None
    mode: Literal["fresh", "copy", "shared", "worktree"] = "copy"
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


def write(**changes: str) -> Deed:
    """Write files, with `_dot_` for the dot in a name."""
    return write_all({name.replace("_dot_", "."): text for name, text in changes.items()})


def write_all(files: Files) -> Deed:
    def deed(root: Path) -> None:
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if text.startswith("#!"):
                path.chmod(0o755)

    return deed


def both(*deeds: Deed) -> Deed:
    def deed(root: Path) -> None:
        for one in deeds:
            one(root)

    return deed


def remove(name: str) -> Deed:
    return lambda root: (root / name).unlink()


def git(*args: str) -> Deed:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return lambda root: subprocess.run(["git", *identity, *args], cwd=root, check=True, capture_output=True)


committed = both(git("init", "-q"), git("add", "-A"), git("commit", "-qm", "start"))


async def verdict_on(case: Case, tmp_path: Path, **options: Any) -> Verdict:
    verdict = (await result_of(case, tmp_path, **options)).verdict
    assert verdict is not None
    return verdict


async def result_of(case: Case, tmp_path: Path, **options: Any) -> TaskResult:
    project = Path(os.path.realpath(tmp_path)) / "project"
    project.mkdir()
    write_all(case.files)(project)
    if case.prepare:
        case.prepare(project)

    async def child(job: Job) -> str:
        await asyncio.to_thread(case.deed, job.workspace)
        return "add() subtracted; now it adds, and the check succeeds."

    command = case.command.replace("PROJECT", str(project))
    criterion = {"kind": "shell", "command": command, "timeout_seconds": 60, **case.more}
    workspace = Workspace() if case.mode == "fresh" else Workspace(mode=case.mode, path=project)
    task = Task(goal=case.goal, acceptance_criteria=[criterion], workspace=workspace)
    options = {"commands": "allow"} | options  # what is tested holds without a sandbox too
    async with Delegator(runner=FunctionRunner(child), client=Scripted([]), **options) as delegator:
        return (await delegator.run(task)).results[0]


# -------------------------------------------------------------------------------------------------- bent checks


def stale_bytecode(root: Path) -> None:
    """A compiled test with the size and time of the source, which Python would prefer to the source."""
    source = root / "test_calc.py"
    state = source.stat()
    fake = TEST.replace(" 5)", "-1)")
    assert len(fake) == state.st_size
    source.write_text(fake)
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    py_compile.compile(str(source), importlib.util.cache_from_source(str(source)))
    source.write_text(TEST)
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))


def same_size_and_time(root: Path) -> None:
    source = root / "test_calc.py"
    state = source.stat()
    source.write_text(TEST.replace(" 5)", "-1)"))
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))


def folder_by_link(root: Path) -> None:
    write_all({"evil/__init__.py": "", "evil/test_calc.py": TEST.replace(" 5)", " -1)")})(root)
    (root / "tests").rename(root / "gone")
    (root / "tests").symlink_to("evil")


FORCED = """\
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
PLUGIN: Files = {
    "nice-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: nice\nVersion: 1.0\n",
    "nice-1.0.dist-info/entry_points.txt": "[pytest11]\nnice = nice\n",
    "nice.py": FORCED,
}
MAKE: Files = {**SHELL, "Makefile": "test:\n\tsh check.sh\n"}
JSON_TEST: Files = {
    "calc.py": "def report():\n    return '{\"sum\": 4}'\n",
    "test_calc.py": "import json, unittest, calc\n\nclass Sums(unittest.TestCase):\n    def test_sum(self):\n"
    "        self.assertEqual(json.loads(calc.report())['sum'], 5)\n",
}
RUNNER: Files = {
    **NODE,
    "node_modules/runner/index.js": "#!/usr/bin/env node\nrequire(process.cwd() + '/calc.test.js')\n",
}


def link_runner(root: Path) -> None:
    (root / "node_modules" / ".bin").mkdir()
    (root / "node_modules" / ".bin" / "runner").symlink_to("../runner/index.js")


SKIPPED = Case(
    CALC, f"{UNITTEST} test_calc", write(test_calc_dot_py=TEST.replace("class", "@unittest.skip('')\nclass"))
)
SKIPPED_TESTS_FAIL = sys.version_info[:3] in ((3, 12, 0), (3, 12, 1))
"""In these versions, unittest fails if all tests are skipped."""

BENT: dict[str, Case] = {
    "unittest: the test is edited": Case(
        CALC, f"{UNITTEST} test_calc", write(test_calc_dot_py=TEST.replace(" 5)", " -1)"))
    ),
    "unittest: the test is skipped": SKIPPED,
    "unittest: the test file is deleted": Case(
        {**CALC, "test_other.py": TEST.replace("2, 3), 5", "2, 0), 2")}, UNITTEST, remove("test_calc.py")
    ),
    "unittest: the test is emptied": Case(
        CALC,
        UNITTEST,
        write(test_calc_dot_py="import unittest\n\nclass A(unittest.TestCase):\n    def test(self): pass\n"),
    ),
    "unittest: a folder with the test's name": Case(
        CALC, f"{UNITTEST} test_calc.Sums", write_all({"test_calc/__init__.py": TEST.replace(" 5)", " -1)")})
    ),
    "unittest: sitecustomize on PYTHONPATH": Case(
        CALC,
        f"PYTHONPATH=. {UNITTEST} test_calc",
        write(sitecustomize_dot_py="import calc\ncalc.add = lambda a, b: 5\n"),
    ),
    "unittest: a new test file patches the code": Case(
        CALC, UNITTEST, write(test_a_dot_py="import calc\ncalc.add = lambda a, b: 5\n")
    ),
    "unittest: a module that shadows unittest": Case(CALC, f"{UNITTEST} test_calc", write(unittest_dot_py="")),
    "unittest: a module that shadows json": Case(
        JSON_TEST, f"{UNITTEST} test_calc", write(json_dot_py="def loads(text):\n    return {'sum': 5}\n")
    ),
    "unittest: compiled files of another test": Case(CALC, f"{UNITTEST} test_calc", stale_bytecode, mode="shared"),
    "unittest: the same size and time": Case(CALC, f"{UNITTEST} test_calc", same_size_and_time),
    "unittest: load_tests in the package": Case(
        {"calc.py": WRONG, "tests/__init__.py": "", "tests/test_calc.py": TEST},
        f"{PYTHON} -m unittest discover -q -t . -s tests",
        write_all(
            {
                "tests/__init__.py": "import unittest\n\ndef load_tests(loader, tests, pattern):\n"
                "    return unittest.TestSuite([unittest.FunctionTestCase(lambda: None)])\n"
            }
        ),
    ),
    "unittest: a link in place of the folder": Case(
        {"calc.py": WRONG, "tests/__init__.py": "", "tests/test_calc.py": TEST},
        f"{PYTHON} -m unittest discover -q -t . -s tests",
        folder_by_link,
    ),
    "unittest: the expected output is edited": Case(
        {
            "calc.py": WRONG,
            "sums.expected.txt": "5\n",
            "test_calc.py": TEST.replace(" 5)", " int(open('sums.expected.txt').read()))"),
        },
        UNITTEST,
        write_all({"sums.expected.txt": "-1\n"}),
    ),
    "pytest: a new conftest with new tests": Case(
        CALC, PYTEST, write(conftest_dot_py=FORCED, test_more_dot_py="def test_more():\n    pass\n")
    ),
    "pytest: pytest.ini only collects": Case(
        CALC, PYTEST, write(pytest_dot_ini="[pytest]\naddopts = --collect-only\n")
    ),
    "pytest: pyproject only collects": Case(
        {**CALC, "pyproject.toml": "[project]\nname = 'calc'\n"},
        PYTEST,
        write(pyproject_dot_toml="[project]\nname = 'calc'\n[tool.pytest.ini_options]\naddopts = '--collect-only'\n"),
    ),
    "pytest: setup.cfg ignores the tests": Case(
        {**CALC, "test_other.py": "def test_other():\n    pass\n"},
        PYTEST,
        write(setup_dot_cfg="[tool:pytest]\naddopts = --ignore=test_calc.py\n"),
    ),
    "pytest: a plugin by its metadata": Case(CALC, WITH_PLUGINS, write_all(PLUGIN)),
    "pytest: a module that shadows pytest": Case(CALC, PYTEST, write(pytest_dot_py="")),
    "make: the target does nothing": Case(MAKE, "make test", write(Makefile="test:\n\ttrue\n")),
    "make: a GNUmakefile goes first": Case(MAKE, "make test", write(GNUmakefile="test:\n\ttrue\n")),
    "make: an included file": Case(
        {**MAKE, "Makefile": "include config.inc\ntest:\n\t$(RUN) check.sh\n", "config.inc": "RUN = sh\n"},
        "make test",
        write_all({"config.inc": "RUN = true\n"}),
    ),
    "make: the script of the recipe": Case(MAKE, "make test", write(check_dot_sh="exit 0\n")),
    "npm: another shell by .npmrc": Case(NODE, "npm test --silent", write_all({".npmrc": "script-shell=/bin/true\n"})),
    "node: the test is edited": Case(NODE, "for one in *.test.js; do node $one; done", write_all({"calc.test.js": ""})),
    "node: an installed runner is edited": Case(
        RUNNER,
        "node_modules/.bin/runner",
        write_all({"node_modules/runner/index.js": "#!/usr/bin/env node\n"}),
        prepare=link_runner,
    ),
    "npm: a script before the test": Case(
        NODE,
        "npm test --silent",
        write(package_dot_json='{"scripts": {"pretest": "echo > calc.test.js", "test": "node calc.test.js"}}\n'),
    ),
    "shell: the script is edited": Case(SHELL, "./check.sh", write(check_dot_sh="#!/bin/sh\n")),
    "shell: the script that the goal names": Case(
        SHELL, "./check.sh", write(check_dot_sh="#!/bin/sh\n"), goal="Fix add() in calc.py so that ./check.sh passes."
    ),
    "shell: a sourced file": Case(
        {
            **SHELL,
            "check.sh": "#!/bin/sh\n. ./lib.sh\nsums_are_right\n",
            "lib.sh": "sums_are_right() {\n" + CHECK[10:] + "}\n",
        },
        "sh check.sh",
        write(lib_dot_sh="sums_are_right() { true; }\n"),
    ),
    "shell: by its absolute path": Case(
        SHELL, "cd / && PROJECT/check.sh", write(check_dot_sh="#!/bin/sh\n"), mode="shared"
    ),
    "shell: a Python script that isn't called a check": Case(
        {"calc.py": WRONG, "ready.py": "import calc, sys\nsys.exit(calc.add(2, 3) != 5)\n"},
        "python3 ready.py",
        write(ready_dot_py=""),
    ),
    "shell: a protected file": Case(
        {"limits.csv": "5\n", "calc.py": WRONG},
        "test $(cat limits.csv) = $(python3 -c 'import calc; print(calc.add(2, 3))')",
        write_all({"limits.csv": "-1\n"}),
        more={"protect": ["*.csv"]},
    ),
    "shell: an alias of git": Case(
        SHELL,
        "git verify",
        git("config", "alias.verify", "!true"),
        prepare=both(git("init", "-q"), git("config", "alias.verify", "!sh check.sh")),
    ),
    "shell: a program of the virtual environment": Case(
        {**SHELL, ".venv/bin/check": CHECK}, ".venv/bin/check", write_all({".venv/bin/check": "#!/bin/sh\n"})
    ),
}


def marks(name: str) -> Sequence[Any]:
    return [mark for word, mark in NEEDS.items() if word in name]


def params(cases: Mapping[str, Case], quick: int) -> list[Any]:
    return sampled((pytest.param(case, id=name, marks=marks(name)) for name, case in cases.items()), quick)


@pytest.mark.parametrize("case", params(BENT, 4))
async def test_a_check_that_the_child_bent_is_never_a_verified_pass(case: Case, tmp_path: Path) -> None:
    # To a test runner, a sandbox makes no difference; only the small scripts are started in one.
    verdict = await verdict_on(case, tmp_path, sandbox="auto" if "check.sh" in case.files else "off")
    print(verdict.verdict, verdict.verified, verdict.code, verdict.reasoning)
    assert not (verdict.verdict == "PASS" and verdict.verified)
    if case.deed is stale_bytecode or (case is SKIPPED and SKIPPED_TESTS_FAIL):
        assert verdict.code == "not_met"  # it has no effect at all
    elif case.goal == GOAL:
        assert (verdict.verdict, verdict.verified, verdict.code) == ("FAIL", True, "check_tampered")
    else:
        assert (verdict.verdict, verdict.verified, verdict.code) == ("PASS", False, "own_tests_only")


# -------------------------------------------------------------------------------------------------- honest work


MORE_TESTS = f"{TEST}\n    def test_zero(self):\n        self.assertEqual(calc.add(0, 0), 0)\n"
fixed = write(calc_dot_py=RIGHT)
SNAPSHOT: Files = {
    "calc.py": "def title():\n    return 'Calc'\n",
    "title.snap": "Calc",
    "test_calc.py": TEST.replace("calc.add(2, 3), 5)", "calc.title(), open('title.snap').read())"),
}
PYPROJECT = "[project]\nname = 'calc'\nversion = '{}'\n[tool.pytest.ini_options]\naddopts = '-q'\n"


def left_caches(root: Path) -> None:
    fixed(root)
    for name in ("calc.py", "test_calc.py"):
        py_compile.compile(str(root / name))
    write_all({".pytest_cache/README.md": "cache\n"})(root)


VERIFIED: dict[str, Case] = {
    "fix the code": Case(CALC, f"{UNITTEST} test_calc", fixed),
    "fix the code, for pytest": Case(CALC, PYTEST, fixed),
    "fix the code in a shared folder": Case(CALC, UNITTEST, fixed, mode="shared"),
    "fix the code in a worktree of git": Case(CALC, UNITTEST, fixed, mode="worktree", prepare=committed),
    "add tests to the test file": Case(CALC, f"{UNITTEST} test_calc", both(fixed, write(test_calc_dot_py=MORE_TESTS))),
    "add a test file": Case(CALC, PYTEST, both(fixed, write(test_more_dot_py="def test_more():\n    pass\n"))),
    "add a module": Case(CALC, UNITTEST, both(fixed, write(shapes_dot_py="SIDES = 4\n"))),
    "add a module called types to a package": Case(
        {**CALC, "calc.py": "from app.types import Sum\n" + WRONG, "app/__init__.py": "", "app/test_app.py": ""},
        f"{UNITTEST} test_calc",
        write_all({"app/types.py": "Sum = int\n", "calc.py": "from app.types import Sum\n" + RIGHT}),
    ),
    "save the tests unchanged": Case(CALC, UNITTEST, both(fixed, write(test_calc_dot_py=TEST))),
    "leave caches of test runs": Case(CALC, f"{UNITTEST} test_calc", left_caches),
    "write a program from nothing": Case(
        {},
        "python3 sums.py | grep -qx 5",
        write(sums_dot_py="print(2 + 3)\n"),
        goal="Write sums.py; it prints 5.",
        mode="fresh",
    ),
    "change a text": Case(
        {"notes.md": "# Notes\n"}, "grep -q sums notes.md", write(notes_dot_md="# Notes\nsums\n"), goal="Note it."
    ),
    "raise the version in pyproject": Case(
        {**CALC, "pyproject.toml": PYPROJECT.format(1)},
        PYTEST,
        both(fixed, write(pyproject_dot_toml=PYPROJECT.format(2))),
    ),
    "add a dependency to package.json for npm": Case(
        NODE,
        "npm test --silent",
        both(
            write_all({"calc.js": "exports.add = (a, b) => a + b\n"}),
            lambda root: (root / "package.json").write_text(
                NODE["package.json"].replace('"1.0.0"', '"1.0.0", "dependencies": {}')
            ),
        ),
    ),
    "change a Makefile for make that may change": Case(
        {**SHELL, "Makefile": "all:\n"},
        "make test",
        both(fixed, write(Makefile="test:\n\tsh check.sh\n")),
        more={"may_change": ["Makefile"]},
    ),
    "commit with git": Case(
        CALC,
        "git log -1 --format=%s | grep -qx fix && " + UNITTEST,
        both(fixed, git("commit", "-qam", "fix")),
        prepare=committed,
    ),
}

NOT_REFUSED: dict[str, Case] = {
    "edit the Makefile for make, as the goal asks": Case(
        {**SHELL, "Makefile": "all:\n"},
        "make test",
        both(fixed, write(Makefile="test:\n\tsh check.sh\n")),
        goal="Repair add(), and add a target `test` to the Makefile that runs check.sh.",
    ),
    "update a snapshot, as the goal asks": Case(
        SNAPSHOT,
        UNITTEST,
        write_all({"calc.py": "def title():\n    return 'Sums'\n", "title.snap": "Sums"}),
        goal="Rename the title to Sums, and update title.snap.",
    ),
    "rename, and update the tests": Case(
        CALC,
        f"{UNITTEST} test_calc",
        write(calc_dot_py=RIGHT.replace("add", "plus"), test_calc_dot_py=TEST.replace(".add", ".plus")),
        goal="Rename add() to plus(), repair it, and update the tests.",
    ),
    "write a module and its tests from nothing": Case(
        {},
        f"{UNITTEST} test_calc",
        write_all({**CALC, "calc.py": RIGHT, "conftest.py": "", "pyproject.toml": PYPROJECT.format(1)}),
        goal="Write calc.py with tests.",
        mode="fresh",
    ),
    "add the tests that the check names": Case(
        {**CALC, "calc.py": RIGHT}, f"{UNITTEST} test_zero", write(test_zero_dot_py=TEST), goal="Add a test of zero."
    ),
    "add the tests that the check selects": Case(
        {**CALC, "calc.py": RIGHT},
        f"{PYTEST} -k zero",
        write(test_more_dot_py="def test_zero():\n    pass\n"),
        goal="Add a test of zero.",
    ),
    "repair a program": Case(
        {"main.py": "print(41)\n"},
        "python3 main.py | grep -qx 42",
        write(main_dot_py="print(42)\n"),
        goal="It must print 42.",
    ),
    "install packages for node where there were none": Case(
        {**NODE, "calc.test.js": "require('five')(require('./calc').add(2, 3))\n"},
        "node calc.test.js",
        write_all(
            {
                "calc.js": "exports.add = (a, b) => a + b\n",
                "node_modules/five/index.js": "module.exports = n => { if (n !== 5) process.exit(1) }\n",
            }
        ),
    ),
    "remove a test, as the goal asks": Case(
        {**CALC, "test_old.py": "import unittest, old\n"},
        UNITTEST,
        both(fixed, remove("test_old.py")),
        goal="Repair add(), and delete test_old.py: the module is gone.",
    ),
}


@pytest.mark.parametrize("case", params(VERIFIED, 3))
async def test_honest_work_on_the_code_is_a_verified_pass(case: Case, tmp_path: Path) -> None:
    verdict = await verdict_on(case, tmp_path)
    assert (verdict.verdict, verdict.verified, verdict.code) == ("PASS", True, "met"), verdict.reasoning


@pytest.mark.parametrize("case", params(NOT_REFUSED, 2))
async def test_honest_work_on_the_checks_themselves_is_not_refused(case: Case, tmp_path: Path) -> None:
    verdict = await verdict_on(case, tmp_path)
    assert (verdict.verdict, verdict.verified, verdict.code) == ("PASS", False, "own_tests_only"), verdict.reasoning
    (finding,) = [finding for finding in verdict.findings if finding.code == "own_tests_only"]
    assert finding.severity == "major"


# -------------------------------------------------------------------------------------------- how it is confirmed

RUNS = "echo run >> {log}"


@pytest.mark.parametrize(
    ("deed", "runs"),
    [
        pytest.param(fixed, 1, id="nothing but the deliverable changed"),
        pytest.param(both(fixed, write(check_dot_sh=f"{CHECK}true\n")), 2, id="the check changed too"),
    ],
)
async def test_a_command_runs_again_only_if_more_than_deliverables_changed(
    deed: Deed, runs: int, tmp_path: Path, home: Path
) -> None:
    log = tmp_path / "log"  # without a sandbox, nothing runs on the files of before
    verdict = await verdict_on(Case(SHELL, f"{RUNS.format(log=log)}; ./check.sh", deed), tmp_path, sandbox="off")
    assert verdict.level == "proven"
    assert log.read_text().split() == ["run"] * runs
    assert not list((home / "workspaces").glob("*.copy")) + list((home / "workspaces").glob("*.end"))
    assert all(path.with_suffix("").is_dir() for path in (home / "workspaces").glob("*.start"))  # beside a kept copy


async def test_what_the_workspace_run_leaves_does_not_reach_the_copy(tmp_path: Path) -> None:
    bent = write(Makefile="test:\n\techo 5 > sum\n")
    case = Case({"Makefile": "test:\n\tgrep -q 5 sum\n"}, "make test", bent)
    assert (await verdict_on(case, tmp_path)).code == "check_tampered"


async def test_a_failed_check_is_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    case = Case(SHELL, f"echo run >> {log}; ./check.sh", write(check_dot_sh="#!/bin/sh\nexit 3\n"))
    verdict = await verdict_on(case, tmp_path, sandbox="off")
    assert (verdict.code, verdict.verified) == ("not_met", True)
    assert log.read_text().split() == ["run"]


async def test_no_compiled_python_file_of_the_child_is_used(tmp_path: Path) -> None:
    def compiled(root: Path) -> None:
        (root / "calc.py").write_text(RIGHT)
        py_compile.compile(str(root / "calc.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        (root / "calc.py").write_text(WRONG)

    assert (await verdict_on(Case(CALC, f"{UNITTEST} test_calc", compiled), tmp_path)).code == "not_met"


async def test_a_large_file_that_decides_a_check_is_what_it_was(tmp_path: Path) -> None:
    large = f"{CHECK}# {'x' * (1 << 20)}\n"
    case = Case({**SHELL, "check.sh": large}, "./check.sh", both(fixed, write(check_dot_sh=f"{CHECK}true\n")))
    assert (await verdict_on(case, tmp_path)).level == "proven"
    bent = Case({**SHELL, "check.sh": large}, "./check.sh", write(check_dot_sh="#!/bin/sh\n"))
    (tmp_path / "second").mkdir()
    assert (await verdict_on(bent, tmp_path / "second")).code == "check_tampered"


async def test_a_check_that_cannot_succeed_in_a_copy_is_not_called_tampered(tmp_path: Path) -> None:
    case = Case(
        {**SHELL, "check.sh": CHECK + 'test "$(pwd)" = "$(cat where)"\n'},
        "./check.sh",
        both(fixed, write(check_dot_sh=CHECK + 'test "$(pwd)" = "$(cat where)" # the same\n'),
             lambda root: (root / "where").write_text(str(root))),
    )  # fmt: skip
    verdict = await verdict_on(case, tmp_path, sandbox="off")
    assert (verdict.verdict, verdict.verified, verdict.code) == ("PASS", False, "no_clean_room")


@pytest.mark.parametrize("goal", ["Make ./check.sh succeed; don't change it.", "./check.sh \u4e0d\u8981\u6539\u3002"])
async def test_a_change_of_a_check_that_the_goal_names_is_never_verified(goal: str, tmp_path: Path) -> None:
    """Whether the words permit it isn't guessed: the verdict names the file, and its level is `own_checks`."""
    case = Case(SHELL, "./check.sh", write(check_dot_sh="#!/bin/sh\n"), goal=goal)
    verdict = await verdict_on(case, tmp_path)
    assert (verdict.level, verdict.verified) == ("own_checks", False)
    assert "`check.sh`, which the child changed" in verdict.criteria[0].reason


async def test_each_of_several_checks_is_confirmed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_all({**SHELL, "other.sh": CHECK.replace("calc.add(2, 3)", "5")})(project)

    async def child(job: Job) -> str:
        write_all({"check.sh": "#!/bin/sh\n"})(job.workspace)
        return "The sums are right and every check succeeds."

    checks = [{"kind": "shell", "command": command} for command in ("./check.sh", "./other.sh", "test -f calc.py")]
    task = Task(goal=GOAL, acceptance_criteria=checks, workspace=Workspace(mode="copy", path=project))
    async with Delegator(runner=FunctionRunner(child), client=Scripted([]), commands="allow") as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    assert verdict
    assert [one.code for one in verdict.criteria] == ["check_tampered", "met", "met"]


async def test_cancelling_in_the_clean_room_leaves_no_copy(tmp_path: Path, home: Path) -> None:
    started = tmp_path / "started"
    command = f"touch {started}; sleep 60; ./check.sh"
    case = Case(SHELL, command, both(fixed, write(check_dot_sh=f"{CHECK}true\n")))
    running = asyncio.create_task(result_of(case, tmp_path, sandbox="off"))
    while not started.exists() and not running.done():  # noqa: ASYNC110 - only the command shows that it has started
        await asyncio.sleep(0.01)
    assert list((home / "workspaces").glob("*.copy"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not list((home / "workspaces").glob("*.copy"))


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
async def test_under_bubblewrap_the_copy_has_the_path_of_the_workspace(tmp_path: Path) -> None:
    log = f"{CHECK.rstrip()} || exit 1\npwd > where\n"
    case = Case({**SHELL, "check.sh": log}, "PROJECT/check.sh && test \"$(cat where)\" = PROJECT",
                both(fixed, write(check_dot_sh=f"{log}true\n")), mode="shared")  # fmt: skip
    assert (await verdict_on(case, tmp_path, sandbox="require")).verified
    bent = Case(SHELL, "cd / && cd PROJECT && ./check.sh", write(check_dot_sh="#!/bin/sh\n"), mode="shared")
    (tmp_path / "second").mkdir()
    assert (await verdict_on(bent, tmp_path / "second", sandbox="require")).code == "check_tampered"


# ------------------------------------------------------------------------------- what changes besides the machinery


async def test_what_a_check_changes_is_seen_by_nothing_else(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_all(CALC)(project)

    async def child(job: Job) -> str:
        fixed(job.workspace)
        return "add() subtracted; now it adds."

    checks = [{"kind": "shell", "command": command} for command in ("rm calc.py", "echo x > new", "! test -e new")]
    checks.append({"kind": "shell", "command": f"{UNITTEST} test_calc"})
    task = Task(goal=GOAL, acceptance_criteria=checks, workspace=Workspace(mode="shared", path=project))
    async with Delegator(runner=FunctionRunner(child), client=Scripted([])) as delegator:
        result = (await delegator.run(task)).results[0]
    assert result.verdict
    assert result.verdict.verdict == "PASS"
    assert (project / "calc.py").read_text() == RIGHT
    assert not (project / "new").exists()


async def test_a_change_after_the_checks_fails(tmp_path: Path) -> None:
    """A process that the child left undoes its work while the judge is asked."""
    project = tmp_path / "project"
    project.mkdir()
    write_all(SHELL)(project)

    async def child(job: Job) -> str:
        fixed(job.workspace)
        return "add() subtracted; now it adds."

    def judge(request: Any) -> str:
        (project / "calc.py").write_text(WRONG)
        return met_by("add() subtracted")(request)

    checks = [{"kind": "shell", "command": "./check.sh"}, "the report says what was wrong"]
    task = Task(goal=GOAL, acceptance_criteria=checks, workspace=Workspace(mode="shared", path=project))
    async with Delegator(runner=FunctionRunner(child), client=words([], judge), commands="allow") as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    assert verdict
    assert (verdict.verdict, verdict.decided_by, verdict.code) == ("FAIL", "check", "changed_after_check")
    assert "calc.py" in verdict.reasoning
    assert [one.outcome for one in verdict.criteria] == ["met", "met"]


async def test_changed_folders_that_artifacts_do_not_list_are_named(tmp_path: Path) -> None:
    deed = both(fixed, write_all({"node_modules/left/index.js": "", ".venv/a.cfg": ""}))
    verdict = await verdict_on(Case(SHELL, "./check.sh", deed), tmp_path)
    (finding,) = [one for one in verdict.findings if one.code == "ignored_folder_changed"]
    assert ".venv/, node_modules/" in finding.message
    assert verdict.verified


# ------------------------------------------------------------------------------------------- protect and may_change


async def test_existing_work_cannot_be_protected(tmp_path: Path) -> None:
    write_all({**SHELL, "calc.py": RIGHT})(tmp_path)
    work: dict[str, Any] = {"goal": GOAL, "report": "add() adds.", "workspace": tmp_path}
    async with Delegator(client=Scripted([])) as delegator:
        plain = await delegator.judge(acceptance_criteria=[{"kind": "shell", "command": "./check.sh"}], **work)
        criterion = {"kind": "shell", "command": "./check.sh", "protect": ["limits.csv"]}
        protected = await delegator.judge(acceptance_criteria=[criterion], **work)
    assert (plain.verdict, plain.verified) == ("PASS", True)
    assert (protected.verdict, protected.verified, protected.code) == ("PASS", False, "no_clean_room")


@pytest.mark.parametrize("field", ["protect", "may_change"])
@pytest.mark.parametrize("glob", ["/etc/passwd", "../other/*", "", "a\0b"])
async def test_a_glob_outside_the_workspace_is_refused(field: str, glob: str) -> None:
    criterion = {"kind": "shell", "command": "true", field: [glob]}
    async with Delegator(client=Scripted([])) as delegator:
        result = await delegator.call({"goal": "g", "acceptance_criteria": [criterion]})
    assert result.error
    assert result.error.code in ("invalid_criterion", "empty")
    assert result.error.field == f"acceptance_criteria[0].{field}[0]"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root can read everything")
async def test_a_folder_that_nobody_can_read_does_not_matter_unless_it_is_new(tmp_path: Path) -> None:
    locked = both(write_all({"locked/a.txt": ""}), lambda root: (root / "locked").chmod(0))
    before = Case(SHELL, "./check.sh", fixed, prepare=locked, mode="shared")
    assert (await verdict_on(before, tmp_path)).verified
    (tmp_path / "second").mkdir()
    after = Case(SHELL, "./check.sh", both(fixed, locked), mode="shared")
    assert (await verdict_on(after, tmp_path / "second")).code == "no_clean_room"
