"""One contender in a process of its own: `python -m scripts.bench.worker CONTENDER URL`.

The first line on stdin is the workload; each further line asks for one measurement (`{"measure": NAME, ...}`) and is
answered with one line, the number. It ends with stdin.
"""

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path

from scripts.bench.workload import Workload


async def serve(contender: str, url: str) -> None:
    """Open the contender, make its first calls, then measure whatever is asked for."""
    work = Workload(**json.loads(sys.stdin.readline()))
    module = importlib.import_module(f"scripts.bench.contenders.{contender}")
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as folder:
        async with module.open_contender(url, work, Path(folder)) as opened:
            await opened.delegate(3)
            for line in sys.stdin:
                asked = json.loads(line)
                measure = importlib.import_module(f"scripts.bench.measures.{asked.pop('measure')}")
                print(json.dumps(await measure.inside(opened, **asked)), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
