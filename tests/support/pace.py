"""How slow the machine is at the moment, for limits on what takes micro- or milliseconds.

What hangs or multiplies is told from what doesn't by seconds, on any machine. For a limit that is near to what it
bounds, use `pace`.
"""

import time
from collections.abc import Callable

USUAL_SECONDS = 0.0012
"""What `_work` takes on the machine for which the limits are given."""


def pace() -> float:
    """How many times as long as there plain Python takes here and now; 1 where it is faster.

    The best of several counts, as it should in what is compared with it: others work on the machine too.
    """
    return max(1.0, best_of(20, _work) / USUAL_SECONDS)


def best_of(times: int, action: Callable[[], object]) -> float:
    """The least of the seconds that the action took."""
    return min(_seconds(action) for _ in range(times))


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _work() -> int:
    counts: dict[str, int] = {}
    for n in range(8_000):
        word = f"w{n % 97}"
        counts[word] = counts.get(word, 0) + len(word)
    return sum(counts.values())
