"""Tells by its own closing lines whether a command that succeeded ran anything, and whether what it ran succeeded.

The lines of test runners and build tools are data (`judges/nothing_ran.toml`).
"""

import re
import tomllib
from functools import cache
from typing import NamedTuple

from delegate._util.resources import text as text_of


class _Runner(NamedTuple):
    ran: re.Pattern[str] | None
    nothing: re.Pattern[str] | None
    only: re.Pattern[str] | None
    failed: re.Pattern[str] | None

    def has_run(self, output: str) -> bool:
        """Whether the runner says that it ran something. Another one's word doesn't count."""
        return self.ran is not None and self.ran.search(output) is not None


def ran_nothing(output: str) -> bool:
    """Whether a test runner says that it ran no test, or a build tool that there was nothing to do."""
    runners = _runners()
    if any(runner.nothing and runner.nothing.search(output) and not runner.has_run(output) for runner in runners):
        return True
    if any(runner.has_run(output) for runner in runners):
        return False
    lines = [line for line in output.splitlines() if line.strip()]
    return bool(lines) and all(any(runner.only and runner.only.search(line) for runner in runners) for line in lines)


def says_failed(output: str) -> bool:
    """Whether a test runner says that something failed."""
    return any(runner.failed and runner.failed.search(output) for runner in _runners())


@cache
def _runners() -> list[_Runner]:
    def any_of(patterns: list[str]) -> re.Pattern[str] | None:
        return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.MULTILINE) if patterns else None

    by_name = tomllib.loads(text_of("judges", "nothing_ran.toml"))
    return [_Runner(*(any_of(fields.get(key, [])) for key in _Runner._fields)) for fields in by_name.values()]
