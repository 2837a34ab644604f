"""`delegate models`: lists the models, the one that would judge, and why the others would not."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.cli.input.choice import Choice, choose
from delegate.cli.input.options import VERDICT_TOKENS, Format, FormatOption
from delegate.cli.screen.layout import Prose, Trimmed
from delegate.cli.screen.output import NARROW, ROOMY, console, plain, print_as_json, slim_table
from delegate.delegator import Delegator
from delegate.models.catalog import Catalog, Model
from delegate.models.routing import NEAR_TIE
from delegate.money import usd
from delegate.settings import Settings
from delegate.types import Candidate, JsonObject

NARROWING = ("judge_model", "min_judge_accuracy", "max_false_pass", "max_cost_usd", "parent_tier", "max_tier")
"""Settings that exclude models from judging, or put others before them."""
CHOOSING = ("model", "tier", "min_tier")
"""Settings that select the model of children."""


def models(
    worker: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model whose work is judged; by default that of children."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Input tokens of the judge for one verdict.")] = VERDICT_TOKENS,
    format: FormatOption = Format.pretty,
) -> None:
    """List the models: which one judges, which is next, and why the others can't.

    Shows today's prices and the cost of a verdict.
    """
    with Delegator() as delegator:
        choice = choose(delegator, worker=worker, tokens=tokens)
        rows = _rows(delegator.catalog, choice, tokens)
        in_force = _in_force(delegator.settings, NARROWING if worker else NARROWING + CHOOSING)
    chosen = choice.judging.chosen
    names = {"worker": choice.worker.id if choice.worker else None, "judge": chosen.id if chosen else None}
    if not print_as_json(format, {**names, "tokens": tokens, "settings": in_force, "models": rows}, rows):
        _print(choice, rows, list(_summary(choice, in_force, worker, tokens)))


def _rows(catalog: Catalog, choice: Choice, tokens: int) -> list[JsonObject]:
    """One row per model: first those that can judge, best first, then the others sorted by their obstacle."""
    rows = [_row(catalog, candidate, tokens, choice) for candidate in choice.judging.candidates]
    eligible = len(choice.judging.ranked)
    return rows[:eligible] + sorted(rows[eligible:], key=_obstacle_then_cost)


def _obstacle_then_cost(row: JsonObject) -> tuple[str, float, str]:
    cost = row["verdict_cost_usd"]
    return row["reason"] or "", float("inf") if cost is None else cost, row["model"]


def _row(catalog: Catalog, candidate: Candidate, tokens: int, choice: Choice) -> JsonObject:
    model = catalog.find(candidate.model)
    assert model is not None
    worker = choice.worker.id if choice.worker else None
    rate = choice.false_pass.rate(model.id, worker) if choice.false_pass else None
    return {
        "model": candidate.model,
        "provider": model.endpoint or candidate.provider,
        "tier": candidate.tier,
        "family": candidate.family,
        **_prices(model, tokens),
        "verdict_cost_usd": candidate.estimated_cost_usd,
        "judges": candidate.reason is None,
        "rank": candidate.rank,
        "reason": candidate.reason,
        "judge_accuracy": model.accuracy,
        "judge_rulings": model.judge_accuracy.rulings if model.judge_accuracy else None,
        "judge_measured_on": model.judge_accuracy.measured_on if model.judge_accuracy else None,
        "false_pass": rate.model_dump(mode="json") if rate else None,
        "context_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "deprecated_on": model.deprecated_on,
    }


def _prices(model: Model, tokens: int) -> JsonObject:
    """Today's prices for a call with this many input tokens; all None if no price is known for today."""
    price = model.price(date.today(), model.tokens(tokens))
    return {
        "input_price": price.input if price else None,
        "cached_input_price": price.cached_input if price else None,
        "cache_write_price": price.cache_write if price else None,
        "output_price": price.output if price else None,
        "above_tokens": price.above_tokens if price else None,
    }


def _in_force(settings: Settings, names: tuple[str, ...]) -> JsonObject:
    """The settings that differ from their defaults."""
    defaults = type(settings).model_fields
    return {name: value for name in names if (value := getattr(settings, name)) != defaults[name].default}


def _summary(choice: Choice, in_force: JsonObject, worker: str | None, tokens: int) -> Iterator[str]:
    """The models of children and judge, the cost of a verdict, the next judge, and the settings that apply."""
    yield f"{_work(choice, worker)}; {_judge(choice)}."
    if choice.judging.chosen is not None:
        following = choice.judging.ranked[1].id if len(choice.judging.ranked) > 1 else "none"
        cost = _cost_text(choice.judging.candidates[0].estimated_cost_usd)
        yield f"A verdict on {tokens:,} tokens costs {cost}. Next judge: {following}."
    if in_force:
        yield f"Settings in force: {', '.join(f'{name} = {value}' for name, value in in_force.items())}."


def _cost_text(cost: float | None) -> str:
    if cost is None:
        return "an unknown amount"
    return f"about {usd(cost)}" if cost else "nothing"


def _work(choice: Choice, worker: str | None) -> str:
    problem = choice.problem
    if problem is not None:
        return f"Children can't run: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")
    return f"{'Worker:' if worker else 'Children run on'} {choice.worker.id if choice.worker else 'no model'}"


def _judge(choice: Choice) -> str:
    chosen = choice.judging.chosen
    return f"{chosen.id} judges" if chosen else "no model can judge; the last column gives the reasons"


def _print(choice: Choice, rows: list[JsonObject], summary: list[str]) -> None:
    out = console()
    for line in summary:
        out.print(Prose(plain(line)))
    out.print()
    table, roomy = slim_table(out), out.width >= ROOMY
    standings = [_standing(choice, row, rows[0]) for row in rows]
    columns = _columns(rows, standings if roomy else _without_repeats(standings), roomy=roomy)
    if out.width < NARROW:
        columns = {name: cells for name, cells in columns.items() if not name.endswith("$/M")}
    _fill(table, columns, [_style(row) for row in rows])
    out.print(Trimmed(table))
    if any(row["above_tokens"] for row in rows):
        out.print("* price of calls of this length")


def _columns(rows: list[JsonObject], standings: list[str], *, roomy: bool) -> dict[str, list[str]]:
    """The columns of the table: providers only on a wide console, accuracy only if one is known."""
    in_prices, out_prices = _prices_in(rows, "input_price"), _prices_in(rows, "output_price")
    columns = {"model": [row["model"] for row in rows]}
    columns |= {"provider": [row["provider"] for row in rows]} if roomy else {}
    columns |= {"tier": [row["tier"] for row in rows], "in $/M": in_prices, "out $/M": out_prices}
    columns |= {"verdict": [usd(row["verdict_cost_usd"]) for row in rows]}
    if any(row["judge_accuracy"] is not None for row in rows):
        columns["accuracy" if roomy else "acc."] = [_accuracy(row["judge_accuracy"]) for row in rows]
    return columns | {"judges?": standings}


def _fill(table: Table, columns: dict[str, list[str]], styles: list[str]) -> None:
    *short, last = columns
    for name in short:
        table.add_column(name, justify="left" if name in ("model", "provider", "tier") else "right", no_wrap=True)
    table.add_column(last, overflow="fold")
    for style, *cells, standing in zip(styles, *columns.values(), strict=True):
        table.add_row(*(Text(one_line(cell, 60)) for cell in cells), Text(one_line(standing, 200), style))


def _style(row: JsonObject) -> str:
    return "bold green" if row["judges"] else "" if row["rank"] else "dim"


def _prices_in(rows: list[JsonObject], field: str) -> list[str]:
    """The prices of one kind; those for long calls are marked with `*`."""
    unmarked = " " if any(row["above_tokens"] for row in rows) else ""
    return [_price(row[field]) + ("*" if row["above_tokens"] else unmarked) for row in rows]


def _accuracy(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _price(price: float | None) -> str:
    if price is None:
        return "?"
    return f"{price:.2f}" if round(price, 2) == price else f"{price:g}"


def _standing(choice: Choice, row: JsonObject, first: JsonObject) -> str:
    """Why a model judges, its rank among those that can, or why it can't."""
    if row["judges"]:
        return f"judges: {_advantage(choice, first['verdict_cost_usd'])}"
    if row["rank"] is None:
        return str(row["reason"])
    rank = "next" if row["rank"] == 2 else f"#{row['rank']}"
    cost, least = row["verdict_cost_usd"], first["verdict_cost_usd"]
    if cost and least is not None and cost > least * NEAR_TIE:
        return f"{rank}: {cost / least:.1f} × the cost" if least else f"{rank}: not free"
    return f"{rank}: {row['reason']}"


def _without_repeats(texts: list[str]) -> list[str]:
    """Replace a text that repeats the one before it by `as above`."""
    return ["as above" if text == before else text for text, before in zip(texts, ["", *texts], strict=False)]


def _advantage(choice: Choice, cost: float | None) -> str:
    ranked = choice.judging.candidates[: len(choice.judging.ranked)]
    costs = [candidate.estimated_cost_usd for candidate in ranked]
    is_cheapest = all(other is None or other >= (cost or 0) for other in costs)
    if choice.pinned:
        return "the setting judge_model"
    if len(ranked) == 1:
        return "the only model that can"
    return "the cheapest" if is_cheapest else "near tie, different family"
