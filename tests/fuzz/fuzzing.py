"""How long the fuzzing takes: short and always the same in the suite, as long as you like by hand.

    DELEGATE_FUZZ_SECONDS=600 pytest tests/fuzz --timeout=0

gives each test that many seconds with other examples each time. What it finds becomes a plain test of its module.
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
"""CPU seconds that one example may take: some hundred times what it usually does, as other work slows it down."""


def fuzz(examples: int, **given_by: st.SearchStrategy[object]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Run a test on that many examples of its arguments, or on any number for `SECONDS`."""

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
    """Fail where the block takes more of this thread's CPU time."""
    started = time.thread_time()
    yield
    took = time.thread_time() - started
    assert took < seconds, f"it took {took:.1f} s"
