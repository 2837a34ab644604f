"""Which files of a workspace a command runs."""

import os
from pathlib import Path

import pytest

from delegate.sandbox.tampering.scripts import scripts_of

FILES = {
    "check.sh": "#!/bin/sh\n. ./lib.sh\npython3 tools/verify.py || exit 1\n",
    "lib.sh": "",
    "tools/verify.py": "",
    "main.py": "",
    "calc.py": "",
    "suite.py": "",
    "out.txt": "",
    "unit.sh": "",
    "config.mk": "",
    "checks/run.py": "",
    "check.js": "",
    "pre.js": "",
    "Makefile": (
        "PY = python3\ninclude config.mk\n"
        "test: unit\n\t$(PY) checks/run.py\nunit:\n\t@./unit.sh\nrun:\n\tpython main.py\n"
    ),
    "package.json": '{"scripts": {"test": "node check.js && echo ok", "pretest": "node pre.js"}}',
}
NOTHING: set[str] = set()
SCRIPT = {"check.sh", "tools/verify.py"}
MAKE = {"Makefile", "config.mk", "checks/run.py"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "work"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("command", "scripts", "programs"),
    [
        ("./check.sh", SCRIPT, {"lib.sh"}),
        ("bash -e check.sh", SCRIPT, {"lib.sh"}),
        ("sh -c './check.sh && ls'", SCRIPT, {"lib.sh"}),
        ("if ./unit.sh; then echo ok; fi", NOTHING, {"unit.sh"}),
        ('test "$(./unit.sh)" = ok', NOTHING, {"unit.sh"}),
        ("FOO=1 timeout 5 ./unit.sh", NOTHING, {"unit.sh"}),
        ("cd tools && python verify.py", {"tools/verify.py"}, NOTHING),
        ("python -m tools.verify", {"tools/verify.py"}, NOTHING),
        ("python main.py | grep -q 3", NOTHING, {"main.py"}),
        ("bash < unit.sh", NOTHING, {"unit.sh"}),
        ("cat unit.sh | bash", {"unit.sh"}, NOTHING),
        ('eval "$(cat unit.sh)"', {"unit.sh"}, NOTHING),
        ("cat out.txt | grep -q x", NOTHING, NOTHING),
        ("grep -q x < out.txt", NOTHING, NOTHING),
        ("grep -q x < ./out.txt", NOTHING, NOTHING),
        ("awk -f unit.sh out.txt", NOTHING, {"unit.sh"}),
        ("python -c 'import tools.verify as v; v.run()'", {"tools/verify.py"}, NOTHING),
        ("python -c 'exec(open(\"tools/verify.py\").read())'", {"tools/verify.py"}, NOTHING),
        ("make test", MAKE, {"unit.sh"}),
        ("make -C . test", MAKE, {"unit.sh"}),
        ("make run", {"Makefile", "config.mk"}, {"main.py"}),
        ("npm test", {"package.json", "check.js"}, {"pre.js"}),
        ("npm run -s test", {"package.json", "check.js"}, {"pre.js"}),
        ("python -c 'import calc'", NOTHING, NOTHING),
        ("grep -q x out.txt && diff out.txt calc.py", NOTHING, NOTHING),
        ("../other.sh; ./nowhere.sh; /bin/sh -c true", NOTHING, NOTHING),
        ("echo 'unbalanced && ./unit.sh", NOTHING, {"unit.sh"}),
    ],
)
def test_a_command_runs_these_files(root: Path, command: str, scripts: set[str], programs: set[str]) -> None:
    found = scripts_of(root, [command])
    assert {path for path, role in found.items() if role == "script"} == scripts
    assert {path for path, role in found.items() if role == "program"} == programs


def test_test_runners_run_the_files_that_they_name(root: Path) -> None:
    for command in ("python3 -m unittest suite.Sums.test_one", "pytest suite.py::test_one", "pytest ./suite.py"):
        assert scripts_of(root, [command]) == {"suite.py": "test"}
    assert scripts_of(root, ["pytest --doctest-modules calc.py"]) == {"calc.py": "program"}


def test_scripts_that_run_each_other_are_followed_once(root: Path) -> None:
    (root / "a.sh").write_text("./b.sh\n")
    (root / "b.sh").write_text("./a.sh\n")
    assert set(scripts_of(root, ["./a.sh"])) == {"a.sh", "b.sh"}
