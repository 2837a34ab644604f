"""`delegate models`: the judge, the next judge, and the reasons why other models can't judge."""

import json
import re
from functools import cache
from typing import Any

import pytest

from delegate.judging.versions import judge_version
from delegate.models.catalog import Catalog
from tests.cli.command import delegate
from tests.support.operator import own_settings

KEYS = {"OPENAI_API_KEY": "sk-dummy", "ANTHROPIC_API_KEY": "sk-dummy"}
LOCAL = """
[[endpoints]]
name = "shed"
base_url = "http://127.0.0.1:9/v1"
models = [
    { id = "free-one", tier = "standard", input_price = 0, output_price = 0 },
    { id = "no-price", tier = "fast", family = "odd" },
]
"""


def _lines(*arguments: str, **environment: str) -> list[str]:
    done = delegate("models", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _document(*arguments: str, **environment: str) -> dict[str, Any]:
    return json.loads("\n".join(_lines("--format", "json", *arguments, **environment)))


@cache
def _usual() -> tuple[list[str], dict[str, Any]]:
    """The output with two keys and no settings, as text and as JSON. Cached, because each start takes time."""
    return _lines(**KEYS), _document(**KEYS)


def _row(lines: list[str], model: str) -> str:
    (row,) = [line for line in lines if line.startswith(f"{model} ")]
    return row


def test_the_summary_names_worker_judge_cost_and_next_judge() -> None:
    (first, second, blank, *rest), document = _usual()
    judge, following = (row["model"] for row in document["models"][:2])
    assert first == f"Children run on {document['worker']}; {judge} judges."
    assert re.fullmatch(
        rf"A verdict on 5,000 tokens costs about \$[\d.]+\. Next judge: {re.escape(following)}\.", second
    )
    assert blank == ""
    assert " judges: " in _row(rest, judge)
    assert " next: " in _row(rest, following)


def test_eligible_judges_come_first_in_their_order() -> None:
    lines, document = _usual()
    rows = document["models"]
    ranks = [row["rank"] for row in rows]
    eligible = [rank for rank in ranks if rank is not None]
    assert eligible == list(range(1, len(eligible) + 1))
    assert ranks == eligible + [None] * (len(rows) - len(eligible))
    assert 1 < len(eligible) < len(rows)
    assert [line.split()[0] for line in lines[5:]] == [row["model"] for row in rows]


def test_in_a_pipe_each_model_has_one_line_with_its_obstacle() -> None:
    lines = _lines(OPENAI_API_KEY="sk-dummy")
    assert "no key (set ANTHROPIC_API_KEY)" in _row(lines, "claude-haiku-5-5")
    assert "tier deep is above" in _row(lines, "gpt-6-astra")
    assert max(map(len, lines)) <= 120


def test_a_narrow_table_fits_the_terminal_and_repeats_no_reason() -> None:
    lines = _lines(OPENAI_API_KEY="sk-dummy", COLUMNS="80")
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines).count("ANTHROPIC_API_KEY") == 1
    assert any(line.rstrip().endswith("as above") for line in lines)


def test_the_json_has_every_model_with_all_its_fields() -> None:
    document = _document("--worker", "claude-haiku-5-5", ANTHROPIC_API_KEY="sk-dummy")
    assert document["worker"] == "claude-haiku-5-5"
    rows = {row["model"]: row for row in document["models"]}
    assert rows.keys() == {model.id for model in Catalog.shipped().models}
    assert [name for name, row in rows.items() if row["judges"]] == [document["judge"]]
    assert {row["tier"] for row in rows.values() if row["rank"]} == {"fast"}
    assert all(row["judges"] or row["reason"] for row in rows.values())
    known = {"provider", "tier", "family", "input_price", "cached_input_price", "cache_write_price", "output_price",
             "above_tokens", "verdict_cost_usd", "judge_accuracy", "context_tokens", "deprecated_on"}  # fmt: skip
    assert all(known <= row.keys() for row in rows.values())
    chosen = rows[document["judge"]]
    assert (chosen["family"], chosen["context_tokens"] > 0) == ("claude", True)
    assert chosen["cached_input_price"] < chosen["input_price"]


def test_the_price_of_a_long_call_is_shown_and_marked() -> None:
    usual_lines, usual = _usual()
    long = _document("--tokens", "300000", **KEYS)
    before, after = (
        next(row for row in document["models"] if row["model"] == "gpt-6-luna") for document in (usual, long)
    )
    assert before["above_tokens"] == 0
    assert 0 < after["above_tokens"] < 300_000
    assert after["input_price"] > before["input_price"]
    assert after["verdict_cost_usd"] > before["verdict_cost_usd"] * 60
    lines = _lines("--tokens", "300000", **KEYS)
    assert f"{after['input_price']:.2f}*" in _row(lines, "gpt-6-luna")
    assert lines[-1] == "* price of calls of this length"
    assert "*" not in "".join(usual_lines)


def test_settings_that_exclude_models_are_named() -> None:
    assert not any(line.startswith("Settings in force") for line in _usual()[0])
    lines = _lines(
        DELEGATE_JUDGE_MODEL="gpt-5.4-mini", DELEGATE_MAX_TIER="parent-1", DELEGATE_PARENT_TIER="deep", **KEYS
    )
    assert "Settings in force: judge_model = gpt-5.4-mini, parent_tier = deep, max_tier = parent-1." in lines
    assert lines[0].endswith("; gpt-5.4-mini judges.")
    assert lines[1].endswith("Next judge: none.")
    assert " judges: the setting judge_model" in _row(lines, "gpt-5.4-mini")
    assert "judge_model is set to gpt-5.4-mini" in _row(lines, "gpt-6-luna")


def test_a_model_without_a_price_is_not_used_if_cost_is_limited() -> None:
    own_settings(LOCAL)
    lines = _lines(DELEGATE_MODEL="no-price", DELEGATE_MAX_COST_USD="1")
    assert lines[0].startswith("Children can't run: ")
    assert "Settings in force: max_cost_usd = 1.0, model = no-price." in lines


def test_a_free_model_costs_nothing_and_an_unknown_price_is_unknown() -> None:
    own_settings(LOCAL)
    lines = _lines(DELEGATE_MODEL="free-one", **KEYS)
    assert lines[1].startswith("A verdict on 5,000 tokens costs nothing. Next judge: ")
    assert " shed " in _row(lines, "free-one")
    assert " next: not free" in _row(lines, lines[1].rpartition(": ")[2].removesuffix("."))
    unknown = _row(lines, "no-price")
    assert " ? " in unknown
    assert " unknown " in unknown
    alone = _lines("--worker", "no-price")
    assert alone[1] == "A verdict on 5,000 tokens costs an unknown amount. Next judge: none."
    assert " judges: the only model that can" in _row(alone, "no-price")


def test_a_near_tie_won_by_another_family_is_shown() -> None:
    tied = "[[endpoints]]\nname = 'e'\nbase_url = 'http://127.0.0.1:9/v1'\nmodels = ["
    tied += "{id = 'mine', family = 'a', tier = 'fast', input_price = 1.00, output_price = 1},"
    tied += "{id = 'other', family = 'b', tier = 'fast', input_price = 1.05, output_price = 1}]\n"
    own_settings(tied)
    lines = _lines("--worker", "mine")
    assert " judges: near tie, different family" in _row(lines, "other")
    assert " next: near tie, but same family as the worker" in _row(lines, "mine")


def test_a_measured_accuracy_is_shown() -> None:
    assert " accuracy " not in "".join(_usual()[0])
    own_settings('[judge_accuracy]\n"gpt-6-luna" = 0.92\n')
    lines = _lines(**KEYS)
    assert any(" accuracy " in line for line in lines)
    assert " 92% " in _row(lines, "gpt-6-luna")


def test_judges_that_decide_alone_come_first_with_their_measured_rate() -> None:
    version = judge_version("gpt-6-sol")
    counts = f'rulings = 400, bad = 200, false_passes = 1, judge_version = "{version}", measured_on = 2026-11-20'
    own_settings(f'max_false_pass = 0.05\n[judge_accuracy]\n"gpt-6-sol" = {{ accuracy = 0.95, {counts} }}\n')
    document = _document("--worker", "gpt-6-sol", **KEYS)
    rows = {row["model"]: row for row in document["models"]}
    assert (document["judge"], document["settings"]["max_false_pass"]) == ("gpt-6-sol", 0.05)
    assert (rows["gpt-6-sol"]["false_pass"]["n"], rows["gpt-6-sol"]["judge_rulings"]) == (200, 400)
    assert "was never measured" in rows["gpt-6-luna"]["reason"]


@pytest.mark.parametrize("format", ["pretty", "json"])
def test_without_a_key_the_reasons_are_shown_without_an_error(format: str) -> None:
    done = delegate("models", "--format", format)
    assert done.returncode == 0
    assert "no key (set OPENAI_API_KEY)" in done.stdout
    if format == "pretty":
        assert done.stdout.startswith("Children can't run: no model can be called: there is no API key (set ")
        assert "; no model can judge; the last column gives the reasons.\n" in done.stdout


def test_an_unknown_worker_is_invalid_usage() -> None:
    done = delegate("models", "--worker", "gpt-99", **KEYS)
    assert done.returncode == 2
    assert "there is no model 'gpt-99' in the catalog" in done.stderr
