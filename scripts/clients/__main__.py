"""Play the scenarios: `python -m scripts.clients [CLIENT …] [--scenario NAME] [--long-seconds N]`."""

import argparse
import json
import subprocess
import time
from typing import Any

from scripts.clients import page
from scripts.clients.driven import ALL, Driven, installed
from scripts.clients.play import SCENARIOS, kill, play


def main() -> None:
    """Play what is asked for, store the results, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m scripts.clients", description=__doc__)
    parser.add_argument(
        "clients", nargs="*", metavar="CLIENT", help=f"all, or some of: {', '.join(c.name for c in ALL)}"
    )
    parser.add_argument("--scenario", action="append", default=[], help="only this scenario; may be repeated")
    parser.add_argument("--long-seconds", type=float, default=600, help="how long the child of `long call` works")
    parser.add_argument("--page", action="store_true", help="only write the page, from the stored results")
    options = parser.parse_args()
    if not options.page:
        for client in ALL:
            if client.name in options.clients or not options.clients:
                _play_all(client, set(options.scenario), options.long_seconds)
    page.write()


def _play_all(client: Driven, wanted: set[str], long_seconds: float) -> None:
    try:
        program, version = installed(client)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"{client.name}: can't be installed: {getattr(error, 'stderr', None) or error}")
        return
    for scenario in SCENARIOS:
        if scenario.clients and client.name not in scenario.clients:
            continue
        if scenario.name in wanted or not (wanted or scenario.only_if_named):
            outcome, facts = scenario.judge(play(client, program, scenario, long_seconds))
            if scenario.name in {"long call", "default timeout"}:
                facts["child_seconds"] = long_seconds
            _note(client, version, scenario.name, outcome, facts)
    if not wanted or "kill" in wanted:
        for name, seen in kill(client, program).items():
            _note(client, version, name, *seen)


def _note(client: Driven, version: str, scenario: str, outcome: str, facts: dict[str, Any]) -> None:
    """Store and print what was seen, so that nothing is lost if a later scenario is interrupted."""
    page.save(client.name, version, time.strftime("%Y-%m-%d"), {scenario: outcome}, {scenario: facts})
    print(f"{client.name}: {scenario}: {outcome}\n    {json.dumps(facts, ensure_ascii=False)[:1500]}", flush=True)


if __name__ == "__main__":
    main()
