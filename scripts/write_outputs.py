"""Rewrite the output that README.md shows, where its program no longer prints it. Run by `make pages`.

The first `text` block of the README is what its Python block prints. It is kept if only ids, models, costs or times
differ; see `stable`.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from delegate.models.catalog import Catalog

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
WIDTH = 120
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHOWN_HOME = "/home/you"


def blocks(markdown: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [text for name, text in _BLOCK.findall(markdown) if name == language]


def printed(source: str, python: Sequence[str] = (sys.executable,)) -> str:
    """What a Python program prints, with nothing of this environment but the PATH."""
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run(
            [*python, "-c", source],
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": home},
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            check=True,
        )
        lines = ran.stdout.replace(os.path.realpath(home), _SHOWN_HOME).replace(home, _SHOWN_HOME).splitlines()
    return "\n".join("\n".join(textwrap.wrap(line, WIDTH)) if len(line) > WIDTH else line.rstrip() for line in lines)


def stable(text: str) -> str:
    """The text with its ids, models, numbers, spaces and rules made equal: what is the same in every run."""
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{12,20}\b", "ID", text)
    names = sorted((model.id for model in Catalog.shipped().models), key=len, reverse=True)
    text = re.sub("|".join(map(re.escape, names)), "MODEL", text)
    text = re.sub(r"\d[\d,.]*", "#", text)
    return " ".join(re.sub("─+", "─", text).split())


def with_outputs(readme: str) -> str:
    """The README with the output of its program replaced, if that has changed."""
    (program,), shown = blocks(readme, "python"), blocks(readme, "text")[0]
    output = printed(program)
    if stable(output) == stable(shown):
        return readme
    return readme.replace(f"```text\n{shown}```", f"```text\n{output}\n```", 1)


if __name__ == "__main__":
    README.write_text(with_outputs(README.read_text(encoding="utf-8")), encoding="utf-8")
