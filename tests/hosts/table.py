"""Results of the conformance suite, one file per host: written by the tests, read when docs/hosts.md is generated."""

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
class HostResults:
    """The results of one host."""

    host: str
    version: str
    python: str
    outcomes: Mapping[str, str]
    """For each scenario `yes`, `no`, or `gap: ` with the reason."""

    def save(self, folder: Path) -> None:
        """Write one file per host and version, so that several versions can be in the table."""
        folder.mkdir(parents=True, exist_ok=True)
        name = self.version.replace(" ", "-")
        (folder / f"{self.host}@{name}.json").write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def name_and_version(driver: Driver) -> tuple[str, str]:
    """The host's name, and its framework with the version."""
    return driver.name, f"{driver.package} {importlib.metadata.version(driver.package)}"


def load(folder: Path) -> list[HostResults]:
    """All saved results, by host."""
    return [HostResults(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def rows(results: list[HostResults], number: Mapping[str, int]) -> Iterator[list[str]]:
    """The rows of the table: a mark per scenario and host, for a gap the number of its reason."""
    yield ["", *(one.host for one in results)]
    yield ["---"] * (len(results) + 1)
    yield ["version", *(one.version.rpartition(" ")[2] for one in results)]
    for scenario in SCENARIOS:
        yield [scenario.replace("_", " "), *(_mark(one.outcomes.get(scenario, "no"), number) for one in results)]


def reasons(results: list[HostResults]) -> list[str]:
    """The reasons of all gaps, each once, in the order of the table."""
    outcomes = (one.outcomes.get(scenario, "") for scenario in SCENARIOS for one in results)
    return list(dict.fromkeys(outcome.removeprefix(GAP) for outcome in outcomes if outcome.startswith(GAP)))


def _mark(outcome: str, number: Mapping[str, int]) -> str:
    if outcome == PASSED:
        return "✓"
    return f"[{number[outcome.removeprefix(GAP)]}]" if outcome.startswith(GAP) else "✗"
