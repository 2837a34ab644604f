"""The leanest public use of the OpenAI SDK, with functions of the program as tools."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from scripts.bench.contenders import openai_lean
from scripts.bench.contenders.contender import Use
from scripts.bench.contenders.openai_lean import OpenAILean
from scripts.bench.workload import Workload, use_function


def open_contender(url: str, work: Workload, folder: Path) -> AbstractAsyncContextManager[OpenAILean]:
    """Open one client for all calls."""
    return openai_lean.open_contender(url, Workload(**work.with_functions), folder, _tools)


def _tools(folder: Path) -> Use:
    return use_function
