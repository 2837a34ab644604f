"""What users write passes Pyright in strict mode: the examples of README.md and docs/, and the short forms of calls."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.write_outputs import ROOT, blocks
from tests.support import pages

CALLS = """
from pathlib import Path

from delegate import Delegator, Job, Task, Tool
from delegate.settings import Settings


async def child(job: Job) -> str:
    return job.task.goal


def stock(part: str) -> int:
    return len(part)


Task(goal="g", acceptance_criteria=["a fact", {"kind": "file", "path": "a"}], workspace="w", tools=["read_file"])
Task(goal="g", workspace={"mode": "copy", "path": Path("w")})
Delegator(runner=child, tools=[stock, Tool.from_function(stock, read_only=True)], max_steps=3, home="records")
Delegator(Settings(model="m"), commands="allow", fetch_hosts=["intranet:80"], models=[{"id": "m"}])

# Each of these is an error, or its comment would be one.
Delegator(max_stps=3)  # pyright: ignore[reportCallIssue]
Delegator(commands="maybe")  # pyright: ignore[reportArgumentType]
Delegator(runner=stock)  # pyright: ignore[reportArgumentType]
Task(goal="g", acceptance_criteria=[3])  # pyright: ignore[reportArgumentType]
Task(goal="g", criteria=["a fact"])  # pyright: ignore[reportCallIssue]
"""


PYRIGHT = [sys.executable, "-m", "pyright"]


@pytest.fixture
def pyright() -> None:
    """Skip the test where Pyright isn't installed, or can't download the Node.js that it runs on."""
    if (
        importlib.util.find_spec("pyright") is None
        or subprocess.run([*PYRIGHT, "--version"], capture_output=True).returncode
    ):
        pytest.skip("needs pyright")


def test_examples_and_short_forms_pass_a_strict_type_checker(pyright: None, tmp_path: Path) -> None:
    sources = {f"readme_{n}": text for n, text in enumerate(blocks((ROOT / "README.md").read_text("utf-8"), "python"))}
    sources |= {f"{block}": block.text for block in pages.all_blocks("python") if block.is_run}
    sources["calls"] = CALLS
    for name, text in sources.items():
        (tmp_path / f"{name.translate(dict.fromkeys(map(ord, '/.:-'), '_'))}.py").write_text(text, encoding="utf-8")
    config = {
        "include": [str(tmp_path)],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": True,
        "reportMissingTypeStubs": False,
        "extraPaths": [str(ROOT)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [*PYRIGHT, "--project", str(tmp_path), "--pythonpath", sys.executable]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(sources) >= 20
