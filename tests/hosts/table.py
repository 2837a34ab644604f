"""What the conformance suite found, host by host: written as it is found, read when the docs are made."""

import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.hosts.driving import Driver
from tests.hosts.scenarios import SCENARIOS

PASSED = "yes"
GAP = "gap: "


@dataclass(frozen=True)
class Found:
    """One host's row."""

    host: str
    version: str
    python: str
    outcomes: Mapping[str, str]
    """For each scenario `yes`, `no`, or `gap: ` and why."""

    def save(self, folder: Path) -> None:
        """One file for each host and version, so that several versions may stand side by side."""
        folder.mkdir(parents=True, exist_ok=True)
        name = self.version.replace(" ", "-")
        (folder / f"{self.host}@{name}.json").write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def told_of(driver: Driver) -> tuple[str, str]:
    """The host's name, and its framework with its version."""
    return driver.name, f"{driver.package} {importlib.metadata.version(driver.package)}"


def load(folder: Path) -> list[Found]:
    """All rows that were found, by host."""
    return [Found(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def rows(found: list[Found], number: Mapping[str, int]) -> Iterator[list[str]]:
    """The table's rows: a mark for each scenario; a gap is the number of its reason."""
    yield ["", *(one.host for one in found)]
    yield ["---"] * (len(found) + 1)
    yield ["version", *(one.version.rpartition(" ")[2] for one in found)]
    for scenario in SCENARIOS:
        yield [scenario.replace("_", " "), *(_mark(one.outcomes.get(scenario, "no"), number) for one in found)]


def reasons(found: list[Found]) -> list[str]:
    """Every gap's reason, each once, in the order in which the table shows them."""
    outcomes = (one.outcomes.get(scenario, "") for scenario in SCENARIOS for one in found)
    return list(dict.fromkeys(outcome.removeprefix(GAP) for outcome in outcomes if outcome.startswith(GAP)))


def _mark(outcome: str, number: Mapping[str, int]) -> str:
    if outcome == PASSED:
        return "✓"
    return f"[{number[outcome.removeprefix(GAP)]}]" if outcome.startswith(GAP) else "✗"
