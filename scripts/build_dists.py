"""Build the sdist and the wheel into dist/, twice: both builds must give the same bytes.

The second one is made from the unpacked sdist, in another folder, with other times and permissions of the files. All
dates in the packages are SOURCE_DATE_EPOCH, by default the time of the last commit.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def main() -> None:
    """Build, compare, and print what `sha256sum` would print."""
    if date := os.environ.get("SOURCE_DATE_EPOCH") or date_of_last_commit():
        os.environ["SOURCE_DATE_EPOCH"] = date
    shutil.rmtree(DIST, ignore_errors=True)
    first = build(ROOT, DIST)
    with tempfile.TemporaryDirectory() as folder:
        second = build(unpacked(next(DIST.glob("*.tar.gz")), Path(folder)), Path(folder, "dist"))
    if different := {name for name, _ in first.items() ^ second.items()}:
        sys.exit(f"two builds differ: {', '.join(sorted(different))}")
    for name, digest in first.items():
        print(f"{digest}  {name}")


def date_of_last_commit() -> str:
    """In seconds since the epoch; empty outside of a clone."""
    command = ["git", "log", "-1", "--format=%ct"]
    if not (ROOT / ".git").exists():
        return ""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def build(source: Path, target: Path) -> dict[str, str]:
    """Build the sdist of a tree, and from it the wheel. Returns the SHA-256 of each file by its name."""
    # Without isolation, so that the version of the build backend is the one in pyproject.toml.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if built.returncode != 0:
        sys.exit(built.stdout)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(target.iterdir())}


def unpacked(sdist: Path, folder: Path) -> Path:
    """The tree in an sdist, as written now by a user who lets nobody else read it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    for path in tree.rglob("*"):
        os.utime(path)
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
    return tree


if __name__ == "__main__":
    main()
