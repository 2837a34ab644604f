"""What `import delegate` gives, and what it costs."""

import os
import subprocess
import sys
from pathlib import Path

import delegate


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert delegate.__all__ == sorted(delegate.__all__)
    assert len(delegate.__all__) <= 16
    for name in delegate.__all__:
        assert getattr(delegate, name).__name__ == name


def test_importing_delegate_and_its_door_loads_no_sdk_host_or_cli_library() -> None:
    code = """
import sys
from delegate import Delegator, Task
heavy = {"openai", "anthropic", "google.genai", "aiohttp", "typer", "rich", "httpx", "httpx2", "jsonschema", "mcp",
         "tree_sitter", "yaml", "requests"}
print(sorted(heavy & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_front_door_imports_in_under_120_ms_beside_pydantics_own(tmp_path: Path) -> None:
    """Pydantic, which loads its parts lazily, is loaded first and not counted. The best of three counts, with
    bytecode cached, as it is after the first start of an installed package; `import delegate` alone is far below."""
    code = """
import time
from pydantic import BaseModel, Field
class Loaded(BaseModel):
    x: int = Field(ge=0)
Loaded(x=1)
before = time.perf_counter()
import delegate
alone = time.perf_counter()
from delegate import Delegator, Task
print((alone - before) * 1000, (time.perf_counter() - before) * 1000)
"""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True, env=environ).split() for _ in range(4)]
    alone, door = (min(float(run[n]) for run in runs) for n in (0, 1))
    assert alone < 10, runs
    assert door < 120, runs
