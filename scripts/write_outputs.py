"""Rewrite the output that README.md shows, where its program no longer prints it. Run by `make pages`.

The first `text` block of the README is what its Python block prints. It is kept if only ids, costs or times differ; see
`stable`. The tests don't compare models either, since prices and the ends of models have dates.
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
_MODELS = re.compile(
    "|".join(re.escape(name) for name in sorted((one.id for one in Catalog.shipped().models), key=len, reverse=True))
)
_AS_LETTERS = str.maketrans("0123456789", "abcdefghij")
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
    """The text with its ids, models, numbers, spaces and rules made equal: what is the same on every day."""
    return _without_numbers(_MODELS.sub("MODEL", text))


def _without_numbers(text: str) -> str:
    """What is the same in every run of a day."""
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{12,20}\b", "ID", text)
    text = _MODELS.sub(lambda name: name[0].translate(_AS_LETTERS), text)
    text = re.sub(r"\d[\d,.]*", "#", text)
    return " ".join(re.sub("─+", "─", text).split())


def with_outputs(readme: str) -> str:
    """The README with the output of its program replaced, if that has changed."""
    (program,), shown = blocks(readme, "python"), blocks(readme, "text")[0]
    output = printed(program)
    if _without_numbers(output) == _without_numbers(shown):
        return readme
    return readme.replace(f"```text\n{shown}```", f"```text\n{output}\n```", 1)


if __name__ == "__main__":
    README.write_text(with_outputs(README.read_text(encoding="utf-8")), encoding="utf-8")
