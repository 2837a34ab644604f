"""delegate with criteria that don't say what they are about: one more model call reads those of every three tasks."""

from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path

from scripts.bench.contenders import ours
from scripts.bench.contenders.ours import Ours
from scripts.bench.workload import CRITERIA, Workload

_numbers = count()


def _new() -> list[str]:
    """Criteria that nobody has read before."""
    number = next(_numbers)
    return [f"{text.removeprefix('report: ')} ({number})" for text in CRITERIA]


def open_contender(url: str, work: Workload, folder: Path) -> AbstractAsyncContextManager[Ours]:
    """Open one delegator for all calls."""
    return ours.open_contender(url, work, folder, _new)
