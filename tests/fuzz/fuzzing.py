"""Controls the length of fuzzing: short and deterministic in the test suite, any length when run by hand.

    DELEGATE_FUZZ_SECONDS=600 pytest tests/fuzz --timeout=0

runs each test for the given time, with different examples each time. A failure should be added to its module as a test.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("DELEGATE_FUZZ_SECONDS") or 0)
SOON = 5.0
"""Maximum CPU seconds per example: about a hundred times the usual time, for slow machines."""


def fuzz(examples: int, **given_by: st.SearchStrategy[object]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Run a test with the given number of examples, or with any number for `SECONDS`."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        hunt = settings(
            max_examples=examples,
            derandomize=not SECONDS,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        )(given(**given_by)(test))

        @wraps(test)
        def run() -> None:
            end = time.monotonic() + SECONDS
            hunt()
            while time.monotonic() < end:
                hunt()

        del run.__wrapped__  # or pytest would look for fixtures with the names of the arguments
        return run

    return decorate


@contextmanager
def ends_soon(seconds: float = SOON) -> Generator[None]:
    """Fail if the block takes more CPU time of this thread."""
    started = time.thread_time()
    yield
    took = time.thread_time() - started
    assert took < seconds, f"it took {took:.1f} s"
