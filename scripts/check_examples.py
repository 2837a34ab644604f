"""Check what users write with Pyright in strict mode: the examples of README.md and docs/, and calls in short forms."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.write_outputs import ROOT, blocks
from tests.support import pages

CALLS = """
from pathlib import Path

from delegate import Delegator, Job, Task, Tool
from delegate.policy.settings import Settings


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


def sources() -> dict[str, str]:
    """The examples, by names that modules may have."""
    readme = {f"readme_{n}": text for n, text in enumerate(blocks((ROOT / "README.md").read_text("utf-8"), "python"))}
    docs = {f"{block}": block.text for block in pages.all_blocks("python") if block.is_run}
    unnamed = dict.fromkeys(map(ord, "/.:-"), "_")
    return {name.translate(unnamed): text for name, text in (readme | docs | {"calls": CALLS}).items()}


def main() -> int:
    """Write the examples to a folder and check it. The exit code is Pyright's."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "include": ["."],
            "typeCheckingMode": "strict",
            "reportUnnecessaryTypeIgnoreComment": True,
            "reportMissingTypeStubs": False,
            "extraPaths": [str(ROOT)],
        }
        Path(folder, "pyrightconfig.json").write_text(json.dumps(config))
        for name, text in sources().items():
            Path(folder, f"{name}.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pyright", "--project", folder, "--pythonpath", sys.executable]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
