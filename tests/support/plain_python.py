"""A Python with pytest and nothing else installed, as a project has it that isn't this one.

In checks and in recorded work, pytest starts twice as fast as where it loads this project's plugins too.
"""

import re
import shutil
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path


def create(folder: Path) -> Path:
    """Create it in `folder`. Returns the folder for the PATH, with `python3`, `python` and `pytest`."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for installed in _with_requirements("pytest"):
        for name in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            # Copied: sandboxes hide what else is in a temporary folder, where this project may be.
            source = Path(str(installed.locate_file(name)))
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, packages / name)
    program = folder / "bin" / "pytest"
    program.write_text(f"#!{folder}/bin/python3\nimport pytest\nraise SystemExit(pytest.main())\n", encoding="utf-8")
    program.chmod(0o755)
    return folder / "bin"


def _with_requirements(name: str) -> Iterator[metadata.Distribution]:
    yield (installed := metadata.distribution(name))
    for requirement in installed.requires or ():
        words = re.match(r"[\w.-]+", requirement)
        if words and ";" not in requirement:
            yield from _with_requirements(words[0])
