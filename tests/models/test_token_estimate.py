"""The error of the token estimate, compared with real tokenizers.

`data/token_counts.json` contains the actual counts of the texts; `scripts/measure_tokens.py` writes it.
"""

import hashlib
import json
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from delegate._util.tokens import tokens_of
from delegate.models.catalog import Catalog
from tests.support.pace import best_of, pace

DATA = Path(__file__).parents[1] / "data"
TEXTS: list[dict[str, Any]] = json.loads((DATA / "token_counts.json").read_text("utf-8"))["texts"]
MODELS = {
    "o200k": "gpt-6-luna",
    "deepseek": None,
    "claude_4": "claude-haiku-4-5",
    "claude_5": "claude-haiku-5-5",
}
"""A model of the catalog for each tokenizer; None: one that the catalog lacks, and knows no factor of."""


@cache
def file(name: str) -> Any:
    text = (DATA / name).read_text("utf-8")
    return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def text_of(counted: dict[str, Any]) -> str:
    row = file(counted["file"])[counted["place"]]
    if "calls" in row:
        return json.dumps(row["calls"])
    return next(row[name] for name in ("report", "reply", "text") if name in row)


def error(counted: dict[str, Any], tokenizer: str) -> float:
    """The error of the estimate in percent of the actual count; negative if the estimate is too low."""
    name = MODELS[tokenizer]
    model = Catalog.shipped().find(name) if name else None
    estimated = tokens_of(text_of(counted))
    return 100 * ((model.tokens(estimated) if model else estimated) / counted["tokens"][tokenizer] - 1)


def test_the_counts_are_of_the_texts_that_are_here() -> None:
    for counted in TEXTS:
        text = text_of(counted)
        assert (hashlib.sha256(text.encode()).hexdigest()[:16], len(text)) == (counted["sha256"], counted["chars"])


MEASURED = {
    # kind: {tokenizer: (lowest, median, highest) error in percent}
    "tool calls": {
        "o200k": (2, 9, 14),
        "deepseek": (-2, 5, 10),
        "claude_4": (-6, -1, 7),
        "claude_5": (-7, -1, 8),
    },
    "prose": {
        "o200k": (-23, 18, 40),
        "deepseek": (-30, 17, 39),
        "claude_4": (-24, 20, 40),
        "claude_5": (-48, 12, 30),
    },
    "attacks": {
        "o200k": (12, 17, 21),
        "deepseek": (3, 11, 19),
        "claude_4": (-3, 12, 27),
        "claude_5": (2, 5, 9),
    },
    "other scripts": {
        "o200k": (22, 59, 127),
        "deepseek": (21, 37, 78),
        "claude_4": (-26, -2, 41),
        "claude_5": (-2, 29, 86),
    },
    "other languages": {
        "o200k": (17, 18, 18),
        "deepseek": (-5, -2, 1),
        "claude_4": (-20, -13, -7),
        "claude_5": (-27, -18, -9),
    },
    "code": {
        "o200k": (1, 12, 15),
        "deepseek": (-5, 9, 10),
        "claude_4": (-9, 4, 4),
        "claude_5": (2, 4, 19),
    },
    "commands": {
        "o200k": (-15, -12, -12),
        "deepseek": (-18, -17, -16),
        "claude_4": (-18, -17, -10),
        "claude_5": (-15, -12, -9),
    },
    "logs": {
        "o200k": (-17, 24, 66),
        "deepseek": (-18, 18, 55),
        "claude_4": (-15, 18, 50),
        "claude_5": (-7, 27, 60),
    },
    "numbers": {
        "o200k": (21, 21, 21),
        "deepseek": (21, 21, 21),
        "claude_4": (33, 33, 33),
        "claude_5": (76, 76, 76),
    },
    "keys": {
        "o200k": (-58, -44, -29),
        "deepseek": (-59, -45, -30),
        "claude_4": (-64, -44, -24),
        "claude_5": (-56, -33, -9),
    },
    "emoji": {
        "o200k": (-26, -26, -26),
        "deepseek": (-31, -31, -31),
        "claude_4": (-53, -53, -53),
        "claude_5": (-41, -41, -41),
    },
    "judging": {
        "o200k": (-5, -2, 0),
        "deepseek": (-10, -6, -2),
        "claude_4": (-3, 0, 3),
        "claude_5": (-6, 0, 3),
    },
}


@pytest.mark.parametrize("kind", MEASURED)
def test_the_error_is_as_measured(kind: str) -> None:
    for tokenizer, expected in MEASURED[kind].items():
        errors = [error(counted, tokenizer) for counted in TEXTS if counted["kind"] == kind]
        found = (min(errors), statistics.median(errors), max(errors))
        assert found == pytest.approx(expected, abs=1), tokenizer


@pytest.mark.parametrize("tokenizer", MODELS)
def test_on_agents_and_judges_input_an_estimate_is_rarely_a_fifth_too_low(tokenizer: str) -> None:
    read = [counted for counted in TEXTS if counted["kind"] in ("tool calls", "judging", "code", "commands", "attacks")]
    errors = sorted(error(counted, tokenizer) for counted in read)
    assert errors[0] > -20
    assert statistics.quantiles(map(abs, errors), n=20)[-1] < 20, "95 of 100 are within a fifth"
    assert abs(statistics.median(errors)) < 10


@pytest.mark.parametrize("tokenizer", MODELS)
def test_over_all_texts_together_the_estimate_is_not_too_low(tokenizer: str) -> None:
    true = sum(counted["tokens"][tokenizer] for counted in TEXTS)
    off = sum(error(counted, tokenizer) / 100 * counted["tokens"][tokenizer] for counted in TEXTS) / true
    assert 0 < off < 0.2


def test_the_estimate_of_a_text_is_never_below_that_of_any_part_of_it() -> None:
    text = 'naïve 漢字 {"a": [1, 22]} 🎉\n'
    assert tokens_of("") == 0
    estimates = [tokens_of(text[:end]) for end in range(len(text) + 1)]
    assert estimates == sorted(estimates)


def test_a_lone_surrogate_is_counted_and_not_an_error() -> None:
    assert tokens_of("\ud800 a broken file name") > 0


@pytest.mark.slow
def test_a_million_characters_are_estimated_in_a_few_milliseconds() -> None:
    text = json.dumps([call["calls"] for call in file("tau_airline_runs.jsonl")] * 20)[:1_000_000]
    assert best_of(5, lambda: tokens_of(text)) < 0.02 * pace()
