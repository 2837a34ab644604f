"""`make slow`: what fails beside other tests gets a second try in continuous integration, and nothing else does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.samples import MORE_CASES

ROOT = Path(__file__).parents[1]
PASSED_ALONE = "Failed in company, passed alone (tests of timing, on a shared machine):\n  test_it.py::test_b\n"


def slow(name: str, body: str) -> str:
    return f"@pytest.mark.slow\ndef test_{name}():\n    {body}\n"


ALONE = '"PYTEST_XDIST_WORKER" not in os.environ'
FAILS_IN_COMPANY = slow("b", f"assert {ALONE}")
MORE = f"@pytest.mark.more_cases\n{slow('c', 'assert False')}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "arguments", "status"),
    [
        pytest.param(FAILS_IN_COMPANY + MORE, ["--in-ci"], 0, id="passes alone"),
        pytest.param(FAILS_IN_COMPANY, [], 1, id="one try only", marks=MORE_CASES),
        pytest.param(FAILS_IN_COMPANY + slow("a", "assert False"), ["--in-ci"], 1, id="fails alone"),
        pytest.param(
            FAILS_IN_COMPANY + slow("c", f"assert {ALONE}") + f"if {ALONE}:\n    del test_c\n", ["--in-ci"], 1,
            id="is not there alone", marks=MORE_CASES,
        ),
        pytest.param(FAILS_IN_COMPANY, ["--in-ci", "-k", "nothing"], 5, id="none ran", marks=MORE_CASES),
        pytest.param(
            FAILS_IN_COMPANY + slow("c", "os.kill(os.getppid(), 9)"), ["--in-ci"], -9, id="broken off", marks=MORE_CASES
        ),
    ],
)  # fmt: skip
def test_a_second_try(tests: str, arguments: list[str], status: int, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"import os\nimport pytest\n{tests}\ndef test_quick():\n    assert False\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  more_cases\n")
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.slow_tests", *arguments],
        cwd=tmp_path,
        env={**alone, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status % 256, done.stdout + done.stderr
    assert done.stdout.endswith(PASSED_ALONE if status == 0 else "slow tests failed\n"), done.stdout + done.stderr
