"""Git, as somebody who isn't configured on this machine."""

import subprocess
from pathlib import Path

_WHO = (
    "-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "init.defaultBranch=main", "-c", "gc.auto=0",
    "-c", "commit.gpgsign=false",
)  # fmt: skip


def git(place: Path, *args: str, code: int = 0) -> str:
    """What git prints in `place`. It must exit with `code`."""
    ran = subprocess.run(["git", *_WHO, *args], cwd=place, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == code, ran.stderr
    return ran.stdout
