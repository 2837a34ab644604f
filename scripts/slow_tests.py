"""Runs the slow tests: `python -m scripts.slow_tests [--in-ci] [ARGUMENTS OF PYTEST …]`.

Most of them measure times or race processes, so that another program on the machine can make one of them fail. With
`--in-ci`, what failed runs once more, alone, and what passes then is named. More cases of what `make test` tries a few
of are left out: they find what nobody has thought of, which is worth the time before a release.
"""

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path("build/slow").absolute()
PYTEST = [
    *(sys.executable, "-m", "pytest", "-q", "--durations=10", "--durations-min=5"),
    # In place of the options in pyproject.toml, which leave out slow tests and the cache that a second try needs.
    *("-o", "addopts=--strict-markers --strict-config --import-mode=importlib", "-o", f"cache_dir={CACHE}"),
]
SOME_FAILED = 1  # the exit status if all ran; others are of a run that broke off, which no second try can complete


def main() -> int:
    """Run them, and return the exit status of pytest, or 0 if all that failed passed in a second try."""
    in_ci = "--in-ci" in sys.argv
    arguments = ["-m", "slow and not more_cases" if in_ci else "slow"]
    arguments += [argument for argument in sys.argv[1:] if argument != "--in-ci"]
    status = subprocess.call([*PYTEST, "-n", "3", "--dist", "worksteal", "--cache-clear", *arguments])
    if status == SOME_FAILED and in_ci:
        status = _second_try(arguments)
    if status:
        print("slow tests failed", flush=True)
    return status


def _second_try(arguments: list[str]) -> int:
    in_company = _failed()
    print(f"\nOnce more, alone: {len(in_company)} of the slow tests", flush=True)
    status = subprocess.call([*PYTEST, "-n", "0", "--last-failed", "--last-failed-no-failures", "none", *arguments])
    if status == 0 and not _failed():  # also what wasn't found again is still there
        print("\nFailed in company, passed alone (tests of timing, on a shared machine):", *in_company, sep="\n  ")
        return 0
    return status or SOME_FAILED


def _failed() -> list[str]:
    """The tests that failed when they ran last."""
    file = CACHE / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []


if __name__ == "__main__":
    sys.exit(main())
