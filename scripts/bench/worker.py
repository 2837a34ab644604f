"""Run one contender in a separate process: `python -m scripts.bench.worker CONTENDER URL [cold]`.

The first line on stdin is the workload. Each further line requests one measurement (`{"measure": NAME, ...}`), whose
result is written as one line. The process ends when stdin is closed.
"""

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path

from scripts.bench.workload import Workload


async def serve(contender: str, url: str, *options: str) -> None:
    """Open the contender, warm it up unless it should be `cold`, and serve requests for measurements."""
    work = Workload(**json.loads(sys.stdin.readline()))
    module = importlib.import_module(f"scripts.bench.contenders.{contender}")
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as folder:
        async with module.open_contender(url, work, Path(folder)) as opened:
            if "cold" not in options:
                await opened.delegate(3)
            for line in sys.stdin:
                request = json.loads(line)
                measure = importlib.import_module(f"scripts.bench.measures.{request.pop('measure')}")
                print(json.dumps(await measure.inside(opened, **request)), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
