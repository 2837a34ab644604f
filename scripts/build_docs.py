"""Build the site of docs/ into build/docs/site, strictly: a link, an anchor or a reference that leads nowhere fails.

Run by `make docs` with the tools of the extra `docs`. The pages are copied first, together with the files elsewhere in
the repository that they link to, whose links are set right: what is `../judges/README.md` from a page on disk is
`judges/README.md` on the site.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "docs"
PAGES = BUILD / "pages"

_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")


def main() -> None:
    """Copy and build. Ends the process with Zensical's exit code."""
    shutil.rmtree(BUILD, ignore_errors=True)
    waiting, copied = sorted(DOCS.rglob("*.md")), set[Path]()
    while waiting:
        copied.add(file := waiting.pop())
        waiting += _copied(file) - copied
    shutil.copy(DOCS / "zensical.toml", BUILD)
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--config-file", str(BUILD / "zensical.toml")]
    sys.exit(subprocess.run(command).returncode)


def _copied(file: Path) -> set[Path]:
    """Copy one file to its place on the site. Gives the files outside of docs/ that it links to."""
    target = _place(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copy(file, target)
        return set()
    linked: set[Path] = set()

    def moved(link: re.Match[str]) -> str:
        to = (file.parent / link[1]).resolve()
        if not to.is_file() or not to.is_relative_to(ROOT):
            return link[1]  # for the builder to report
        if not to.is_relative_to(DOCS):
            linked.add(to)
        return Path(os.path.relpath(_place(to), target.parent)).as_posix()

    target.write_text(_LINK.sub(moved, file.read_text(encoding="utf-8")), encoding="utf-8")
    return linked


def _place(file: Path) -> Path:
    return PAGES / file.relative_to(DOCS if file.is_relative_to(DOCS) else ROOT)


if __name__ == "__main__":
    main()
