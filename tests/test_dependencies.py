"""docs/dependencies.md lists what pyproject.toml requires, and no package is required that nothing imports."""

import re
import tomllib
from pathlib import Path

from tests.support.pages import DOCS

ROOT = DOCS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAIN, EXTRAS = (DOCS / "dependencies.md").read_text(encoding="utf-8").split("## Extras")
IMPORTED_AS = {
    "docstring-parser": "docstring_parser",
    "google-genai": r"google(\.| import )genai",
    "markdown-it-py": "markdown_it",
    "pyyaml": "yaml",
    "quickjs-ng": "quickjs",
}


def names_in(text: str) -> list[str]:
    """The names in the first column of a table."""
    columns = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    return sorted(name for column in columns for name in re.findall(r"`([^`]+)`", column))


def required() -> list[str]:
    return sorted(re.split(r"[\[<>=;]", one)[0] for one in PROJECT["dependencies"])


def test_the_page_lists_every_dependency_and_extra() -> None:
    assert names_in(MAIN) == required()
    assert names_in(EXTRAS) == sorted(PROJECT["optional-dependencies"])


def test_every_dependency_is_imported() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(ROOT / "delegate").rglob("*.py"))
    unused = [
        name
        for name in required()
        if not re.search(rf"(^\s*(from|import) |import_module\(.){IMPORTED_AS.get(name, name)}\b", source, re.MULTILINE)
    ]
    assert unused == []
