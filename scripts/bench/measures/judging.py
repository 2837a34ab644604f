"""CPU time of judging, without the model call: of what is checked, and of a whole verdict.

What is checked is the gate, parsing the judge's reply and verifying its quotes. A whole verdict through
`Delegator.judge` also parses the criteria, collects evidence, writes the prompt, computes digests and builds the
verdict. Files and commands aren't used.
"""

import asyncio
import gc
import json
import time
from statistics import median

from delegate import Delegator, Settings
from delegate.judging import gate
from delegate.judging.combine import combine
from delegate.judging.judge import decide
from delegate.judging.judge.evidence import gather
from delegate.judging.judge.session import JudgeReply
from delegate.judging.judge.sources import Sources
from delegate.judging.proof.calls import recorded
from delegate.judging.reading.statements import TaskReading, declared_readings
from delegate.judging.submission import Submission
from delegate.models.providers.scripted import Scripted
from delegate.types import ChildRun, Task, Usage
from delegate.types.ports import ChatReply, ChatRequest
from scripts.bench.arena import Arena, Row

CHECKED_LIMIT = 0.3
LIMIT = 0.5
ROUNDS, REPEAT = 7, 200
REPORT_CHARS = 20_000

_LINE = "Service {n:03d}: the retry cap of {n} was reached, and the log says so where it bites. "
_HEAD = "Sources: `limits.toml` and `retries.log`. I wrote nothing.\n\n"
REPORT = (_HEAD + "".join(_LINE.format(n=n) for n in range(300)))[:REPORT_CHARS]
CRITERIA = tuple(f"report: The report names the retry cap of service {n:03d}." for n in (3, 60, 120, 180, 230))
QUOTES = tuple(_LINE.format(n=n).strip() for n in (3, 60, 120, 180, 230))
"""Quotes from the beginning to the end of the report."""
_ANSWERS = [
    {"id": f"c{n}", "source": "report", "evidence": quote, "reason": "The report says so.", "verdict": "met"}
    for n, quote in enumerate(QUOTES, start=1)
]
REPLY = json.dumps({"answers": _ANSWERS})


def checked(rounds: int, repeat: int) -> float:
    """Return the milliseconds of CPU time per judge's reply that is checked: the median of the rounds."""
    task = Task(goal="Report the retry caps.", acceptance_criteria=CRITERIA)
    reading = TaskReading(declared_readings(task))
    submission = Submission(task, ChildRun(status="completed", report=REPORT), None, "person", None)
    reply = JudgeReply(ChatReply(REPLY, "end", Usage()))
    figures: list[float] = []
    for _ in range(rounds):
        evidence = [gather(Sources(submission)) for _ in range(repeat)]  # each remembers what it has searched
        gc.collect()
        started = time.process_time()
        for one in evidence:
            assert gate.inspect(task, submission.run, lambda path: True) is None
            calls = recorded(submission, reading.effects)
            opened = decide.opened(submission, task.criteria, reading, calls)
            assert combine(decide.read_reply(submission, opened, calls, reply, one)).verdict == "PASS"
        figures.append((time.process_time() - started) * 1000 / repeat)
    return median(figures)


async def whole(rounds: int, repeat: int) -> float:
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
            goal=f"Report the retry caps, run {n}.", acceptance_criteria=CRITERIA, report=REPORT
        )
        assert (verdict.verdict, verdict.verified) == ("PASS", True), verdict.reasoning


def _answer(request: ChatRequest) -> str:
    return REPLY


def measure(arena: Arena) -> list[Row]:
    rounds, what = 1 if arena.quick else ROUNDS, f"{len(CRITERIA)} criteria on {REPORT_CHARS // 1000} kB, ms"
    return [
        Row(f"CPU of gate, parsing and quotes, {what}", checked(rounds, REPEAT), CHECKED_LIMIT, "of a judge's reply"),
        Row(f"CPU of a verdict, {what}", asyncio.run(whole(rounds, REPEAT)), LIMIT, "everything but the model call"),
    ]
