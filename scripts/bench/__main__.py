"""The ratios that delegate keeps to, measured in one run on this machine: `python -m scripts.bench [--quick]`.

Each module in `measures/` is one measured thing and each in `contenders/` one way to make a judged delegation. `soak`
says nothing about speed, `batch` takes minutes, and `hosts` needs the frameworks, so they are only run when they are
named: `python -m scripts.bench soak`.
Absolute times are this machine's; the ratios hold elsewhere. Leaves with 1 when a limit is exceeded.
"""

import argparse
import asyncio
import sys
import time

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders import ours
from scripts.bench.measures import batch, conversation, cpu, hosts, judging, memory, share, soak, wall

MEASURES = {
    "wall": wall,
    "cpu": cpu,
    "judging": judging,
    "share": share,
    "conversation": conversation,
    "memory": memory,
}
LONG = {"soak": soak, "batch": batch, "hosts": hosts}


def show(row: Row) -> None:
    """One line of the table."""
    word = "ok" if row.ok else "OVER"
    print(f"{row.what:<60} {row.value:>7.3g} {row.limit:>6.3g}  {word:<4}  {row.beside}", flush=True)


def main() -> int:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description="delegate's ratios")
    parser.add_argument("--quick", action="store_true", help="one round of everything: rough figures in seconds")
    parser.add_argument(
        "measures", nargs="*", choices=[[], *MEASURES, *LONG], help="default: all but soak, batch and hosts"
    )
    asked = parser.parse_args()
    began = time.monotonic()
    print(f"{'':<60} {'here':>7} {'limit':>6}")
    rows: list[Row] = []
    with Arena(asyncio.run(ours.capture()).to_json(), quick=asked.quick) as arena:
        for name in asked.measures or MEASURES:
            for row in (MEASURES | LONG)[name].measure(arena):
                show(row)
                rows.append(row)
    over = sum(not row.ok for row in rows)
    print(f"{len(rows) - over} of {len(rows)} within their limits, in {time.monotonic() - began:.0f} s")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
