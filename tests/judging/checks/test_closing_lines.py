"""What test runners and build tools say at their end, as they print it, of a command that exits with 0."""

import pytest

from delegate.judging.checks.nothing_ran import ran_nothing, says_failed

NOTHING = [
    "============================ no tests ran in 0.01s =============================",
    "collected 0 items\n",
    "======================== 3 skipped in 0.02s ========================",
    "2 deselected in 0.01s",
    "----------------------------------------------------------------------\nRan 0 tests in 0.000s\n\nOK",
    "Ran 0 tests in 0.000s\n\nNO TESTS RAN",
    "Ran 3 tests in 0.000s\n\nOK (skipped=3)",
    "# tests 0\n# pass 0\n# fail 0",
    "No tests found, exiting with code 0",
    "Tests:       2 skipped, 2 total",
    "No test files found, exiting with code 0",
    "  0 passing (2ms)",
    "?   \texample.com/calc\t[no test files]",
    "ok  \texample.com/calc\t0.003s [no tests to run]",
    "ok  \texample.com/calc\t(cached)",
    "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
    "make: Nothing to be done for 'all'.",
    "make[1]: Entering directory '/w'\nmake[1]: 'app' is up to date.\nmake[1]: Leaving directory '/w'",
    "ninja: no work to do.",
]
FAILED = [
    "======================== 1 failed, 2 passed in 0.12s =========================",
    "1 failed, 2 passed in 0.12s",
    "2 errors in 0.10s",
    "Ran 3 tests in 0.001s\n\nFAILED (failures=1)",
    "# pass 2\n# fail 1\n",
    "Tests:       1 failed, 4 passed, 5 total",
    "      Tests  1 failed | 2 passed (3)",
    "  1 failing\n\n  1) adds",
    "--- FAIL: TestAdd (0.00s)\nFAIL\tcalc\t0.002s",
    "test result: FAILED. 1 passed; 1 failed; 0 ignored",
]
RAN = [
    "3 passed in 0.02s",
    "3 passed, 1 skipped, 1 xfailed in 0.02s",
    "Ran 3 tests in 0.001s\n\nOK",
    "Ran 3 tests in 0.001s\n\nOK (skipped=1)",
    "# tests 2\n# pass 2\n# fail 0",
    "Tests:       5 passed, 5 total",
    "      Tests  3 passed (3)",
    "  2 passing (4ms)",
    "ok  \texample.com/calc\t0.003s",
    "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
    "cc -o app app.c\nmake: 'docs' is up to date.",
    "the import of 1 failed order was repeated",
    "all 12 checks ok, 0 failed",
    "",
]


@pytest.mark.parametrize("output", NOTHING)
def test_a_program_says_that_it_ran_nothing(output: str) -> None:
    assert (ran_nothing(output), says_failed(output)) == (True, False)


@pytest.mark.parametrize("output", FAILED)
def test_a_test_runner_says_that_something_failed(output: str) -> None:
    assert (says_failed(output), ran_nothing(output)) == (True, False)


@pytest.mark.parametrize("output", RAN)
def test_a_program_that_ran_says_neither(output: str) -> None:
    assert (ran_nothing(output), says_failed(output)) == (False, False)
