"""Rewrites the table of settings in README.md. Run by `make docs`; a test fails when it is stale."""

import ast
import inspect
import itertools
import re
import sys
from pathlib import Path

from delegate.settings import ONLY_IN_FILES, Settings, variable

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- settings: made by `make docs` -->", "<!-- end of settings -->"


def settings_table() -> str:
    """The fields of `Settings` with their variables, defaults and the docstrings beside them."""
    rows = ["| field | variable | default | what it decides |", "|---|---|---|---|"]
    docs = _docstrings()
    for name, info in Settings.model_fields.items():
        default = "" if info.default_factory else f"`{_shown(info.default)}`"
        where = f"`{variable(name)}`" if name not in ONLY_IN_FILES else "–"
        rows.append(f"| `{name}` | {where} | {default} | {docs[name]} |")
    return "\n".join(rows)


def with_table(readme: str) -> str:
    """The README with the table as it should be now."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{settings_table()}\n{END}", readme)


def _shown(default: object) -> object:
    if isinstance(default, bool):
        return str(default).lower()
    return default if default or default == 0 else "none"


def _docstrings() -> dict[str, str]:
    """The docstring that stands below each field in the source."""
    tree = ast.parse(inspect.getsource(sys.modules[Settings.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    found: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
