"""Write prices and capabilities into judges/catalog.toml (`make catalog`).

    pip install genai-prices && python scripts/write_catalog.py [--litellm WHEEL_OR_JSON]

The list of models and their family, tier, aliases, accuracy, tokenizer and caching are maintained by hand and kept.
Prices and their dates come from genai-prices' embedded snapshot; limits, capabilities and switch-off dates come from
litellm's price file, which is extracted from its wheel without installing it. Values that neither source has are kept.
If the sources disagree, a comment says so. Models that the SDKs' own lists name and the catalog lacks are reported, so
that a new release isn't missed. The figures are also written to tests/data/catalog_sources.json, with which
the tests compare the catalog.
"""

import argparse
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast, get_args

from delegate.models.catalog import read_catalog

ROOT = Path(__file__).resolve().parent.parent
CATALOG = ROOT / "judges" / "catalog.toml"
EXTRACT = ROOT / "tests" / "data" / "catalog_sources.json"
PRICE_FILE = "litellm/model_prices_and_context_window_backup.json"

Json = dict[str, Any]

PRICING_PAGES = {
    "openai": "https://developers.openai.com/api/docs/pricing",
    "anthropic": "https://platform.claude.com/docs/en/about-claude/pricing",
    "google": "https://ai.google.dev/gemini-api/docs/pricing",
}

CORRECTIONS: dict[str, dict[str, tuple[Any, str]]] = {
    "gemini-4-argon": {
        "max_output_tokens": (
            65_536,
            "litellm's 1_048_576 is for input and output together.",
        ),
    },
}
"""Fields for which a source's value isn't usable: the value to write and the reason."""

BY_HAND: dict[str, str] = {
    "gpt-6.2-astra": (
        "prices by hand, from the announcement of 2026-11-17. The prices of cache writes and of long contexts follow "
        "from the input price by the factors of all GPT-6 models."
    ),
    "gpt-6.2-sol": "prices by hand, from https://developers.openai.com/api/docs/models/gpt-6.2-sol.",
}
"""Where the values of models come from that neither source knows yet."""

MODEL_LISTS = {
    "openai": ("openai.types.shared.chat_model:ChatModel", "openai.types.shared.responses_model:ResponsesModel"),
    "anthropic": ("anthropic.types.model_param:ModelParam",),
}
"""The types with which the SDKs list their providers' models."""

LEFT_OUT = re.compile(
    r"gpt-(?:3\.5|4\w*|5)\b(?!\.6).*|o\d\b.*|chatgpt-.*|codex-.*|claude-\w+-4\b.*"
    r"|.*(?:audio|search|computer-use|research|cyber|daybreak|rosalind|-law|-pro\b|-preview|mythos).*"
)
"""Listed models that the catalog lacks on purpose: older generations, and models for special work."""

HISTORY = timedelta(days=365)
"""Prices that ended longer ago are dropped."""

HEADER = """\
# The models that delegate knows: their tier, limits, capabilities and prices.
#
# Maintained by hand: id, provider, family, tier, aliases, judge_accuracy, token_factor, caches_from_tokens,
# search_usd.
# `make catalog` keeps these and writes the rest. To add a model, write these fields and run it. A tier describes the
# work that a model is suitable for today, not its price (deep: the hardest work; standard: everyday agent work; fast:
# small, well-defined work, judging included), so a price cut doesn't move a model to another tier.
#
# prices: US dollars per million tokens, from `since` to `until` (both inclusive). A price with `above_tokens` applies
# to a whole call whose input is longer. Tokens read from the provider's cache cost `cached_input`, those written to it
# `cache_write`; without these fields, they cost `input`. context_tokens: the maximum input length; if the sources
# differ, the smaller value. deprecated_on: the day on which the provider shuts the model down. checked_on: the day on
# which the sources were last read. judge_accuracy: the fraction of correct verdicts; omitted if it wasn't measured.
#
# token_factor: the number of the model's own tokens per token that delegate estimates; 1 if omitted. Measured with
# scripts/measure_tokens.py for Claude: since Opus 4.7 and Sonnet 5, its tokenizer creates about 30 % more tokens
# (https://platform.claude.com/docs/en/build-with-claude/token-counting). Unknown for Gemini and GPT-6.
#
# caches_from_tokens: the length of the shortest prompt that the provider caches automatically. OpenAI: 1_024
# (https://developers.openai.com/api/docs/guides/prompt-caching). Google: 4_096, for Gemini 2.5 2_048
# (https://ai.google.dev/gemini-api/docs/caching, which doesn't mention Flash-Lite models: they are assumed to equal the
# others of their generation). Anthropic caches only on request, so its models have none
# (https://platform.claude.com/docs/en/build-with-claude/prompt-caching).
#
# search_usd: US dollars per web search that the provider itself makes; omitted if it makes none, or charges otherwise.
# OpenAI 0.01 per call (https://developers.openai.com/api/docs/pricing), Anthropic 0.01
# (https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool), Google 0.014 per query
# (https://ai.google.dev/gemini-api/docs/pricing; Gemini 2.5 is charged per prompt). The results are input tokens.
#
# Sources: {sources} (both MIT). Prices are those of genai-prices; limits, capabilities and
# shutdown dates those of litellm. Comments say where they differ or where one of them has no value.
"""


@dataclass
class Entry:
    """One model of the catalog: its fields and the comments above it."""

    fields: Json
    notes: list[str] = field(default_factory=list[str])
    seen: Json = field(default_factory=dict[str, Any])
    """The sources' values, for the extract."""

    @property
    def id(self) -> str:
        return self.fields["id"]


def main() -> None:
    """Read both sources, update the catalog, and write it and the extract."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--litellm", type=Path, help="a litellm wheel or its price JSON (default: download)")
    args = parser.parse_args()
    litellm, litellm_version = read_litellm(args.litellm)
    genai = read_genai_prices()
    entries = [Entry(fields) for fields in tomllib.loads(CATALOG.read_text(encoding="utf-8"))["models"]]
    today = date.today()
    for entry in entries:
        update(entry, genai.get((entry.fields["provider"], entry.id)), litellm.get(litellm_key(entry)), today)
    sources = f"genai-prices {importlib.metadata.version('genai-prices')} and litellm {litellm_version}"
    CATALOG.write_text(render(entries, sources), encoding="utf-8")
    EXTRACT.write_text(extract(entries, sources, today), encoding="utf-8")
    print(f"{CATALOG.relative_to(ROOT)}: {len(entries)} models from {sources}")
    for provider in MODEL_LISTS:
        if missing := list(unlisted(provider)):
            print(f"the {provider} SDK lists models that the catalog lacks: {', '.join(missing)}")


# -------------------------------------------------------------------------------------------------------- the sources


def read_litellm(given: Path | None) -> tuple[Json, str]:
    """Return litellm's price table and its version."""
    with tempfile.TemporaryDirectory() as folder:
        path = given or download_litellm(Path(folder))
        if path.suffix != ".whl":
            return json.loads(path.read_text(encoding="utf-8")), "(a local file)"
        with zipfile.ZipFile(path) as wheel:
            return json.loads(wheel.read(PRICE_FILE)), path.name.split("-")[1]


def download_litellm(folder: Path) -> Path:
    """Download the newest litellm wheel to `folder`."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "litellm"]
    subprocess.run([*download, "--dest", str(folder)], check=True, timeout=600)
    return next(folder.glob("litellm-*.whl"))


def unlisted(provider: str) -> Iterator[str]:
    """Yield the models that the provider's SDK lists and the catalog lacks, except those left out on purpose."""
    catalog = read_catalog(CATALOG.read_text(encoding="utf-8"))
    lists = [place.split(":") for place in MODEL_LISTS[provider]]
    listed = {model for module, name in lists for model in literals(getattr(importlib.import_module(module), name))}
    for model in sorted(listed):
        if catalog.find(model) is None and not LEFT_OUT.fullmatch(model):
            yield model


def literals(annotation: Any) -> Iterator[str]:
    """Yield the strings in a type such as `Literal["a", "b"] | str`."""
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from literals(part)


def litellm_key(entry: Entry) -> str:
    """Return the model's name in litellm's table, where only Google's models have a prefix."""
    return f"gemini/{entry.id}" if entry.fields["provider"] == "google" else entry.id


def read_genai_prices() -> dict[tuple[str, str], Any]:
    """Return genai-prices' models by provider and id, from the snapshot in the package."""
    try:
        snapshot = importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    except ModuleNotFoundError:
        sys.exit("genai-prices is not installed; run: pip install genai-prices")
    return {(provider.id, model.id): model for provider in snapshot.providers for model in provider.models}


# -------------------------------------------------------------------------------------------------------- one entry


def update(entry: Entry, genai: Any, litellm: Json | None, today: date) -> None:
    """Bring one entry up to date with both sources; either may be silent."""
    if genai is None:
        entry.notes.append("genai-prices doesn't know this model: prices are kept as they stand.")
        entry.notes.extend([BY_HAND[entry.id]] if entry.id in BY_HAND else [])
    else:
        update_prices(entry, genai, today)
    if litellm is None:
        entry.notes.append("litellm doesn't know this model: limits and capabilities are by hand.")
    else:
        update_capabilities(entry, litellm)
    update_context(entry, getattr(genai, "context_window", None), (litellm or {}).get("max_input_tokens"))
    for name, (value, why) in CORRECTIONS.get(entry.id, {}).items():
        entry.fields[name] = value
        entry.notes.append(f"{name} by hand: {why}")
    if genai is not None and litellm is not None:
        entry.notes.extend(price_disagreements(entry.fields["prices"], litellm, today))
    entry.fields["source"] = PRICING_PAGES[entry.fields["provider"]]
    entry.fields["checked_on"] = today


def update_prices(entry: Entry, genai: Any, today: date) -> None:
    entry.fields["prices"] = [price for price in dated_prices(genai) if price.get("until", today) > today - HISTORY]
    entry.seen["genai_prices"] = entry.fields["prices"]


def dated_prices(genai: Any) -> Iterator[Json]:
    """Yield the prices with both dates. In genai-prices' ordered list, each price ends when the next one starts."""
    conditional: Any = genai.prices
    if not isinstance(conditional, list):
        yield from price_steps(conditional, {})
        return
    conditional = cast("list[Any]", conditional)
    starts = [item.constraint.start_date if item.constraint else None for item in conditional]
    for item, since, next_start in zip(conditional, starts, [*starts[1:], None], strict=True):
        until = next_start - timedelta(days=1) if next_start else None
        ends = {name: day for name, day in (("since", since), ("until", until)) if day}
        yield from price_steps(item.prices, ends)


def price_steps(prices: Any, ends: Json) -> Iterator[Json]:
    """Yield one price for each long-context step."""
    tiered = {
        "input": prices.input_mtok,
        "output": prices.output_mtok,
        "cached_input": prices.cache_read_mtok,
        "cache_write": prices.cache_write_mtok,
    }
    for start in sorted({0, *(tier.start for price in tiered.values() for tier in getattr(price, "tiers", ()))}):
        step = {"above_tokens": start} if start else {}
        amounts = {name: amount(price, start) for name, price in tiered.items() if price is not None}
        yield {**ends, **step, **amounts}


def amount(price: Any, start: int) -> float:
    """Return a plain or tiered price for calls longer than `start`."""
    reached = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= start]
    return float(reached[-1] if reached else getattr(price, "base", price))


def update_capabilities(entry: Entry, litellm: Json) -> None:
    found: Json = {
        "max_output_tokens": litellm["max_output_tokens"],
        "structured_output": bool(litellm.get("supports_response_schema")),
        "tools": bool(litellm.get("supports_function_calling")),
        "effort": takes_effort(entry, litellm),
        "images": bool(litellm.get("supports_vision")),
        "pdfs": bool(litellm.get("supports_pdf_input")),
    }
    if day := litellm.get("deprecation_date"):
        found["deprecated_on"] = date.fromisoformat(day)
    else:
        entry.fields.pop("deprecated_on", None)
    entry.fields.update(found)
    entry.seen["litellm"] = found


def takes_effort(entry: Entry, litellm: Json) -> bool:
    """Return whether the model supports reasoning effort, which litellm encodes differently for each provider."""
    if entry.fields["provider"] == "openai":
        return any(name.endswith("_reasoning_effort") for name in litellm)
    if entry.fields["provider"] == "anthropic":
        return bool(litellm.get("supports_output_config"))
    # Google introduced thinking levels with Gemini 3. Earlier models have a budget in tokens.
    return bool(litellm.get("supports_reasoning")) and not entry.id.startswith("gemini-2")


def update_context(entry: Entry, genai: int | None, litellm: int | None) -> None:
    known = [tokens for tokens in (genai, litellm) if tokens]
    if known:
        entry.fields["context_tokens"] = min(known)
        entry.seen["context_tokens"] = known
    if len(set(known)) > 1:
        entry.notes.append(f"context: genai-prices {genai:_}, litellm {litellm:_}.")


LITELLM_PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
}


def price_disagreements(prices: list[Json], litellm: Json, today: date) -> Iterator[str]:
    """Yield a sentence for each of today's prices that is different in litellm."""
    for price in prices:
        if not price.get("since", today) <= today <= price.get("until", today):
            continue
        step = price.get("above_tokens", 0)
        suffix = f"_above_{step // 1000}k_tokens" if step else ""
        for name, key in LITELLM_PRICES.items():
            theirs = round(litellm.get(key + suffix, 0) * 1_000_000, 6)
            if name in price and theirs != price[name]:
                yield f"{name} price{f' above {step:_}' if step else ''}: litellm {theirs or 'silent'}."


# ---------------------------------------------------------------------------------------------------------- writing


def render(entries: list[Entry], sources: str) -> str:
    """Return the whole catalog as TOML."""
    return "\n".join([HEADER.format(sources=sources), *(render_entry(entry) for entry in entries)])


ORDER = (
    "id", "provider", "family", "tier", "aliases", "context_tokens", "max_output_tokens", "structured_output", "tools",
    "effort", "images", "pdfs", "deprecated_on", "judge_accuracy", "token_factor", "caches_from_tokens", "prices",
    "search_usd", "source", "checked_on",
)  # fmt: skip


def render_entry(entry: Entry) -> str:
    lines = [f"# {note}" for note in entry.notes]
    lines.append("[[models]]")
    lines += [f"{name} = {toml(entry.fields[name])}" for name in ORDER if name in entry.fields]
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """Format a value in TOML as a person would write it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value:_}"
        case float():
            return f"{value:.2f}" if round(value, 2) == value else repr(value)
        case date():
            return value.isoformat()
        case dict():
            pairs = cast("Json", value).items()
            return "{ " + ", ".join(f"{name} = {toml(item)}" for name, item in pairs) + " }"
        case [dict(), *_]:
            return "[\n" + "".join(f"    {toml(item)},\n" for item in cast("list[Json]", value)) + "]"
        case list():
            return "[" + ", ".join(toml(item) for item in cast("list[Any]", value)) + "]"
        case _:
            return json.dumps(value)


def extract(entries: list[Entry], sources: str, today: date) -> str:
    """Return the sources' values for the catalog's models as JSON."""
    document = {
        "sources": sources,
        "licence": "MIT: genai-prices, copyright Pydantic Services Inc.; litellm, copyright 2023 Berri AI",
        "urls": ["https://github.com/pydantic/genai-prices", "https://github.com/BerriAI/litellm"],
        "read_on": today,
        "models": {entry.id: entry.seen for entry in entries},
    }
    return json.dumps(document, indent=1, default=str) + "\n"


if __name__ == "__main__":
    main()
