"""Share of judging in the cost of a judged delegation, for a `standard` worker at the catalog's current prices.

The server counts tokens by the lengths of requests and replies, so both parts are charged in the same way. No tokens
count as cached, and the child makes only three calls: with longer work, the share decreases.
"""

import asyncio
import json
import os
import tempfile
from pathlib import Path

from delegate import Delegator, Settings, Task
from delegate._util.tokens import tokens_of
from scripts.bench.arena import Arena, Row
from scripts.bench.workload import CRITERIA, answer, goal
from tests.support.model_server import Call, ModelServer, Reply

LIMIT = 0.05
KEYS = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
}
SETS = (("openai",), ("anthropic",), ("google",), tuple(KEYS))
"""The providers with a key, for each measurement."""


def counted(call: Call) -> Reply:
    """Return the workload's reply, with tokens counted from the lengths of request and reply."""
    said = answer(call)
    written = said.text + "".join(name + json.dumps(args) for name, args in said.tool_calls)
    return Reply(
        said.text,
        said.tool_calls,
        input_tokens=tokens_of(call.raw.decode()),
        output_tokens=tokens_of(written),
    )


async def share(providers: tuple[str, ...], server: ModelServer, home: Path) -> tuple[float, str]:
    """Return the share, and the models of worker and judge."""
    urls = {"openai": server.openai_url, "anthropic": server.anthropic_url, "google": server.google_url}
    for provider, (key, url) in KEYS.items():
        for name, value in ((key, "dummy"), (url, urls[provider])):
            os.environ.pop(name, None)
            os.environ |= {name: value} if provider in providers else {}
    async with Delegator(Settings(home=home)) as delegator:
        run = await delegator.run(
            Task.model_validate({"goal": goal(1), "acceptance_criteria": CRITERIA, "tier": "standard"})
        )
    (result,) = run.results
    assert result.verdict is not None
    assert result.verdict.verdict == "PASS", result.verdict.reasoning
    assert result.verdict.judge is not None
    assert result.verification_share is not None
    return result.verification_share, f"{result.requested_model} by {result.verdict.judge.model}"


async def shares() -> dict[str, float]:
    """Return the share for each set of providers."""
    with tempfile.TemporaryDirectory(prefix="delegate-bench-") as home, ModelServer(counted, record=False) as server:
        found = [await share(providers, server, Path(home)) for providers in SETS]
    return {models: value for value, models in found}


def measure(arena: Arena) -> list[Row]:
    figures = asyncio.run(shares())
    note = ", ".join(f"{models} {value:.1%}" for models, value in figures.items())
    return [Row("judging's share of the cost, standard worker, the worst", max(figures.values()), LIMIT, note)]
