"""delegate with functions of the program as the children's tools."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from scripts.bench.contenders import ours
from scripts.bench.contenders.ours import Ours
from scripts.bench.workload import Workload


def open_contender(url: str, work: Workload, folder: Path) -> AbstractAsyncContextManager[Ours]:
    """Open one delegator for all calls."""
    return ours.open_contender(url, Workload(**work.with_functions), folder, tools=ours.functions())
