"""CPU time of one verdict: everything between a finished run and its verdict, except the model call.

The judge is scripted and replies immediately, so only delegate's own work is measured: parsing criteria, the gate,
collecting evidence, the prompt, parsing the reply, finding quotes, digests and building the verdict. Files and commands
aren't used.
"""

import asyncio
import gc
import json
import time
from statistics import median

from delegate import Delegator, Settings
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatRequest
from scripts.bench.arena import Arena, Row

LIMIT = 0.3
ROUNDS, REPEAT = 7, 200
OUTPUT_CHARS = 20_000

_LINE = "Service {n:03d}: the retry cap of {n} was reached, and the log says so where it bites. "
_HEAD = "Sources: `limits.toml` and `retries.log`. I wrote nothing.\n\n"
OUTPUT = (_HEAD + "".join(_LINE.format(n=n) for n in range(300)))[:OUTPUT_CHARS]
CRITERIA = tuple(f"The report names the retry cap of service {n:03d}." for n in (3, 60, 120, 180, 230))
QUOTES = tuple(_LINE.format(n=n).strip() for n in (3, 60, 120, 180, 230))
"""Quotes from the beginning to the end of the output."""
_ANSWERS = [
    {"id": f"c{n}", "source": "output", "evidence": quote, "reason": "The report says so.", "verdict": "met"}
    for n, quote in enumerate(QUOTES, start=1)
]
REPLY = json.dumps({"answers": _ANSWERS})


async def milliseconds(rounds: int, repeat: int) -> float:
    """Return the milliseconds of CPU time per verdict: the median of the rounds."""
    async with Delegator(Settings(), client=Scripted(_answer)) as delegator:
        await _judge(delegator, 20)
        figures: list[float] = []
        for _ in range(rounds):
            gc.collect()
            started = time.process_time()
            await _judge(delegator, repeat)
            figures.append((time.process_time() - started) * 1000 / repeat)
    return median(figures)


async def _judge(delegator: Delegator, repeat: int) -> None:
    for n in range(repeat):
        verdict = await delegator.judge(
            goal=f"Report the retry caps, run {n}.", acceptance_criteria=CRITERIA, output=OUTPUT
        )
        assert (verdict.verdict, verdict.verified) == ("PASS", True), verdict.reasoning


def _answer(request: ChatRequest) -> str:
    return REPLY


def measure(arena: Arena) -> list[Row]:
    figure = asyncio.run(milliseconds(1 if arena.quick else ROUNDS, REPEAT))
    what = f"CPU of a verdict, {len(CRITERIA)} criteria on {OUTPUT_CHARS // 1000} kB, ms"
    return [Row(what, figure, LIMIT, "everything except the model call")]
