"""Stores the results and writes docs/clients.md from them."""

import json
from pathlib import Path
from typing import Any

from scripts.clients.driven import ROOT

RESULTS = Path(__file__).parent / "results.json"
FILE = ROOT / "docs" / "clients.md"


def load() -> dict[str, Any]:
    """The stored results, by client."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def save(results: dict[str, Any]) -> None:
    """Store the results of all clients."""
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def write() -> None:
    """Write the page."""
