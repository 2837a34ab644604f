"""Applies the diffs of worktrees to the checkout that these were made from, all or nothing."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from delegate.sandbox.processes.environment import find_program

APPLY_SECONDS = 120.0


def apply(diffs: Sequence[bytes], checkout: Path, *, undo: bool = False) -> str:
    """Apply the diffs, each on top of those before it. Returns why nothing was changed; empty if everything was.

    With `undo`, they are taken back.
    """
    git, way = find_program("git"), ("--reverse",) if undo else ()
    if git is None:
        return "git isn't installed"

    def run(*options: str) -> str:
        argv = [git, "apply", "--whitespace=nowarn", *options]
        done = subprocess.run(
            argv, cwd=checkout, input=b"".join(diffs), capture_output=True, timeout=APPLY_SECONDS, check=False
        )
        return done.stderr.decode(errors="replace").strip() or "git failed" if done.returncode else ""

    try:
        if not (problem := run(*way)):
            return ""
        return problem if undo or run("--reverse", "--check") else "these changes are there already"
    except subprocess.TimeoutExpired:
        return f"git took longer than {APPLY_SECONDS:g} s"
    except OSError as error:
        return f"{checkout}: {error.strerror}"
