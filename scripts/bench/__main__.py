"""Benchmark delegate against the bare SDK in one run on this machine: `python -m scripts.bench [--quick]`.

Each module in `measures/` is one benchmark, and each module in `contenders/` one implementation of a judged delegation.
`soak` and `stalls` don't measure speed, `batch` takes minutes, and `hosts` and `peers` need frameworks, so they run
only if they are named: `python -m scripts.bench soak`. `--before` compares two checkouts instead. Absolute times depend
on the machine; ratios are comparable between machines. The exit code is 1 if a limit is exceeded.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from scripts.bench.arena import Arena, Row
from scripts.bench.contenders import ours
from scripts.bench.measures import (
    batch,
    before,
    conversation,
    cpu,
    first,
    hosts,
    judging,
    memory,
    peers,
    share,
    soak,
    stalls,
    wall,
)

MEASURES = {
    "wall": wall,
    "cpu": cpu,
    "judging": judging,
    "share": share,
    "conversation": conversation,
    "memory": memory,
    "first": first,
}
LONG = {"soak": soak, "stalls": stalls, "batch": batch, "hosts": hosts, "peers": peers}


def show(row: Row) -> None:
    """Print one line of the table."""
    word = "ok" if row.ok else "OVER"
    print(f"{row.what:<60} {row.value:>7.3g} {row.limit:>6.3g}  {word:<4}  {row.note}", flush=True)


def main() -> int:
    """Run the benchmarks and print the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description="Benchmark delegate.")
    parser.add_argument("--quick", action="store_true", help="run one short round of each, for rough figures")
    parser.add_argument(
        "measures", nargs="*", choices=[[], *MEASURES, *LONG], help=f"default: all except {', '.join(LONG)}"
    )
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with the delegate of another checkout")
    args = parser.parse_args()
    measures = [before] if args.before else [(MEASURES | LONG)[name] for name in args.measures or MEASURES]
    started = time.monotonic()
    print(f"{'':<60} {'here':>7} {'limit':>6}")
    rows: list[Row] = []
    with Arena(asyncio.run(ours.capture()).to_json(), quick=args.quick, before=args.before) as arena:
        for measure in measures:
            for row in measure.measure(arena):
                show(row)
                rows.append(row)
    over = sum(not row.ok for row in rows)
    print(f"{len(rows) - over} of {len(rows)} within their limits, in {time.monotonic() - started:.0f} s")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
