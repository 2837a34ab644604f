"""Write docs/failure-modes.md from the outcome of every failure, measured anew (`make pages`).

It takes about 20 s, and fails where an outcome isn't the one that `tests/failure_modes/` expects.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.failure_modes.children import SITUATIONS, play_all
from tests.failure_modes.document import document
from tests.failure_modes.measure import every_scene, measure

FILE = Path(__file__).resolve().parent.parent / "docs" / "failure-modes.md"


def main() -> None:
    """Measure and write."""
    os.environ.clear()  # whose keys would make real models eligible as judges
    with tempfile.TemporaryDirectory() as home:
        found = asyncio.run(measure(Path(home), scenes_of=every_scene))
        played = asyncio.run(play_all(Path(home)))
    outcomes = {(one.row.words, one.wire, one.scene): one.outcome for one in found}
    wrong = [line for one in found for line in one.problems()]
    wrong += [f"{one.words}: {played[one.words]}" for one in SITUATIONS if played[one.words] != one.expected]
    if wrong:
        sys.exit("\n".join(wrong))
    FILE.parent.mkdir(exist_ok=True)
    page = document(lambda row, wire, scene: outcomes[row.words, wire, scene], lambda one: played[one.words])
    FILE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
