"""The map in AGENTS.md is the one that import-linter checks, and its glossary stays short."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "AGENTS.md").read_text(encoding="utf-8")


def _first_cells(heading: str) -> list[str]:
    """The first cells of the table below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_the_map_shows_the_layers_that_import_linter_checks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    layers = [{name.strip() for name in layer.split("|")} for layer in contract["layers"]]
    shown = [set(re.findall(r"`(\w+)(?:/|\.py)`", cell)) for cell in _first_cells("Map")]
    assert shown == layers


def test_the_glossary_has_at_most_30_rows() -> None:
    assert 20 <= len(_first_cells("Glossary")) <= 30
