"""Coverage-guided fuzzing with atheris, which isn't a dependency of delegate.

    pip install atheris && python -m tests.fuzz.guided call -max_total_time=600

The first argument is a target, `path` or one of `targets.TARGETS`; the others are libFuzzer's.
"""

import importlib
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def main() -> None:
    """Fuzz until the time is up or a failure is found."""
    atheris: Any = importlib.import_module("atheris")
    name = sys.argv.pop(1)
    with ExitStack() as stack:
        with atheris.instrument_imports(include=["delegate", "json"]):
            from tests.fuzz import targets
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        target = targets.TARGETS.get(name) or stack.enter_context(targets.path_target(place / "tree"))
        corpus = place / "corpus"
        corpus.mkdir()
        for n, seed in enumerate(targets.SEEDS[name]):
            (corpus / str(n)).write_bytes(seed)
        atheris.Setup([*sys.argv, str(corpus)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
