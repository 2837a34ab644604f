"""One of several processes that share a rate limit: `python -m tests.models.limited_process HOME URL CHILDREN`.

It says `ready`, waits for a line, runs its children at once and prints the status of each.
"""

import asyncio
import sys
from pathlib import Path

from delegate import Delegator, Settings, Task
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel


def settings(home: Path, url: str, children: int, key_env: str | None = None) -> Settings:
    """Settings with one model at this address."""
    model = DeclaredModel(id="model-0", tier="standard", input_price=1, output_price=1)
    endpoint = DeclaredEndpoint(name="e0", base_url=url, protocol="openai", models=(model,), key_env=key_env)
    return Settings(home=home, endpoints=(endpoint,), model="model-0", max_concurrent=children)


async def main(home: Path, url: str, children: int) -> None:
    """Run the children."""
    async with Delegator(settings(home, url, children)) as host:
        await host.connections.open(host.connections.catalog.models[-1])  # imports the SDK
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        results = await asyncio.gather(*(host.run(Task(goal=f"Count part {n}.")) for n in range(children)))
    print(*(f"{one.status}:{one.error.code if one.error else ''}" for result in results for one in result.results))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
