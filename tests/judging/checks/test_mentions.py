"""Whether a task allows its child to change a file."""

import pytest

from delegate import Task
from delegate.judging.checks.mentions import Mentions


@pytest.mark.parametrize(
    ("goal", "path"),
    [
        ("Add a target to the Makefile.", "Makefile"),
        ("Add a target to the Makefile; don't change anything else.", "Makefile"),
        ("Edit `tests/test_a.py`, but leave calc.py alone.", "tests/test_a.py"),
        ("Rename title in title.snap.", "tests/__snapshots__/title.snap"),
        ("Don't forget to change the Makefile.", "Makefile"),
        ("Use lodash for it.", "node_modules/lodash/index.js"),
        ("Rename add() to plus() and update the tests.", "test_calc.py"),
        ("Rename it everywhere, including the tests.", "test_calc.py"),
    ],
)
def test_a_file_that_the_task_names_may_change(goal: str, path: str) -> None:
    assert Mentions(Task(goal=goal)).allow(path, is_test="test" in path)
    assert Mentions(Task(goal="Do it.", context=goal)).allow(path, is_test="test" in path)


@pytest.mark.parametrize(
    ("goal", "path"),
    [
        ("Fix add() in calc.py.", "test_calc.py"),
        ("Fix the sums. The tests must pass.", "test_calc.py"),
        ("Make the tests in test_calc.py pass; don't change them.", "test_calc.py"),
        ("Make test_calc.py pass without editing the tests.", "test_calc.py"),
        ("Make test_calc.py pass. The tests must not be changed.", "test_calc.py"),
        ("Make test_calc.py pass, leave test_calc.py unchanged.", "test_calc.py"),
        ("Make test_calc.py pass. Never touch any files.", "test_calc.py"),
        ("Update the tests/ folder's owner in CODEOWNERS.", "tests/test_a.py"),
        ("Fix the Makefile.am parser.", "Makefile"),
        ("Fix my-conftest.py", "conftest.py"),
    ],
)
def test_a_file_that_is_not_named_or_is_forbidden_may_not(goal: str, path: str) -> None:
    assert not Mentions(Task(goal=goal)).allow(path, is_test="test_" in path)
