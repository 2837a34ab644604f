"""A process that runs the batch of a random program until it is killed: `python -m tests.budget.killed HOME URL SEED`.

It prints the id of its run, and then the id of each item whose outcome it has.
"""

import asyncio
import sys
from pathlib import Path

from delegate.models import ratelimit
from tests.budget.programs import Program, fast_limiter


async def main(home: Path, url: str, seed: int) -> None:
    """Run the batch."""
    ratelimit.POLL_SECONDS = 0.001
    program = Program.killed(seed)
    async with program.delegator(url, home) as delegator:
        delegator.connections.limiters.make = lambda _: fast_limiter()
        batch = delegator.batches.run(program.tasks, concurrency=program.concurrency)
        print(batch.run_id, flush=True)
        async for outcome in batch:
            print(outcome.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
