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
from delegate.models.catalog import Catalog
from delegate.models.routing import NEAR_TIE
from delegate.policy.settings import Settings
from delegate.types import Candidate, JsonObject
from delegate.types.money import usd

NARROWING = ("judge_model", "min_judge_accuracy", "max_false_pass", "max_cost_usd", "parent_tier", "max_tier")
"""Settings that exclude models from judging, or put others before them."""
CHOOSING = ("model", "tier", "min_tier")
"""Settings that select the model of children."""


def models(
    worker: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model whose work is judged; by default that of children.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Input tokens of the judge for one verdict.")] = VERDICT_TOKENS,
    format: FormatOption = Format.pretty,
) -> None:
    """List the models: which one judges, which is next, and why the others can't.

    Shows today's prices and the cost of a verdict.
    """
    with Delegator() as delegator:
        choice = choose(delegator, worker=worker, tokens=tokens)
        # First those that can judge, best first, then the others by their obstacle.
        rows = [_row(delegator.catalog, one, tokens, choice) for one in choice.judging.candidates]
        eligible = len(choice.judging.ranked)
        rows[eligible:] = sorted(rows[eligible:], key=_obstacle_then_cost)
        settings, defaults = delegator.settings, Settings.model_fields
    names = NARROWING if worker else NARROWING + CHOOSING
    in_force = {name: value for name in names if (value := getattr(settings, name)) != defaults[name].default}
    chosen = choice.judging.chosen
    models = {"worker": choice.worker.id if choice.worker else None, "judge": chosen.id if chosen else None}
    if print_as_json(format, {**models, "tokens": tokens, "settings": in_force, "models": rows}, rows):
        return
    out = console()
    for line in _summary(choice, in_force, worker, tokens):
        out.print(Prose(plain(line)))
    out.print("", Trimmed(_table(slim_table(out), choice, rows, out.width)), sep="\n")
    if any(row["above_tokens"] for row in rows):
        out.print("* price of calls of this length")


def _obstacle_then_cost(row: JsonObject) -> tuple[str, float, str]:
    cost = row["verdict_cost_usd"]
    return row["reason"] or "", float("inf") if cost is None else cost, row["model"]


def _row(catalog: Catalog, candidate: Candidate, tokens: int, choice: Choice) -> JsonObject:
    """What is known of a model. Prices are today's for this many input tokens; None if none is known for today."""
    model = catalog.find(candidate.model)
    assert model is not None
    worker = choice.worker.id if choice.worker else None
    rate = choice.false_pass.rate(model.id, worker) if choice.false_pass else None
    price, accuracy = model.price(date.today(), model.tokens(tokens)), model.judge_accuracy
    return {
        "model": candidate.model,
        "provider": model.endpoint or candidate.provider,
        "tier": candidate.tier,
        "family": candidate.family,
        "input_price": price.input if price else None,
        "cached_input_price": price.cached_input if price else None,
        "cache_write_price": price.cache_write if price else None,
        "output_price": price.output if price else None,
        "above_tokens": price.above_tokens if price else None,
        "verdict_cost_usd": candidate.estimated_cost_usd,
        "judges": candidate.reason is None,
        "rank": candidate.rank,
        "reason": candidate.reason,
        "judge_accuracy": model.accuracy,
        "judge_rulings": accuracy.rulings if accuracy else None,
        "judge_measured_on": accuracy.measured_on if accuracy else None,
        "false_pass": rate.model_dump(mode="json") if rate else None,
        "context_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "deprecated_on": model.deprecated_on,
    }


def _summary(choice: Choice, in_force: JsonObject, worker: str | None, tokens: int) -> Iterator[str]:
    """The models of children and judge, the cost of a verdict, the next judge, and the settings that apply."""
    chosen, ranked, problem = choice.judging.chosen, choice.judging.ranked, choice.problem
    if problem is not None:
        works = f"Children can't run: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")
    else:
        works = f"{'Worker:' if worker else 'Children run on'} {choice.worker.id if choice.worker else 'no model'}"
    judges = f"{chosen.id} judges" if chosen else "no model can judge; the last column gives the reasons"
    yield f"{works}; {judges}."
    if chosen is not None:
        cost = choice.judging.candidates[0].estimated_cost_usd
        words = "an unknown amount" if cost is None else f"about {usd(cost)}" if cost else "nothing"
        following = ranked[1].id if len(ranked) > 1 else "none"
        yield f"A verdict on {tokens:,} tokens costs {words}. Next judge: {following}."
    if in_force:
        yield f"Settings in force: {', '.join(f'{name} = {value}' for name, value in in_force.items())}."


def _table(table: Table, choice: Choice, rows: list[JsonObject], width: int) -> Table:
    """Providers only on a wide console, prices not on a narrow one, accuracy only if one is known."""
    roomy = width >= ROOMY
    standings = [_standing(choice, row, rows[0]["verdict_cost_usd"]) for row in rows]
    if not roomy:  # a text that repeats the one before it is shortened
        pairs = zip(standings, ["", *standings], strict=False)
        standings = ["as above" if text == before else text for text, before in pairs]
    columns = {"model": [row["model"] for row in rows]}
    columns |= {"provider": [row["provider"] for row in rows]} if roomy else {}
    columns |= {"tier": [row["tier"] for row in rows]}
    if width >= NARROW:
        unmarked = " " if any(row["above_tokens"] for row in rows) else ""
        for name, field in (("in $/M", "input_price"), ("out $/M", "output_price")):
            columns[name] = [_price(row[field]) + ("*" if row["above_tokens"] else unmarked) for row in rows]
    columns |= {"verdict": [usd(row["verdict_cost_usd"]) for row in rows]}
    if any(row["judge_accuracy"] is not None for row in rows):
        shares = [row["judge_accuracy"] for row in rows]
        columns["accuracy" if roomy else "acc."] = ["" if share is None else f"{share:.0%}" for share in shares]
    for name in columns:
        table.add_column(name, justify="left" if name in ("model", "provider", "tier") else "right", no_wrap=True)
    table.add_column("judges?", overflow="fold")
    for row, standing, *cells in zip(rows, standings, *columns.values(), strict=True):
        style = "bold green" if row["judges"] else "" if row["rank"] else "dim"
        table.add_row(*(Text(one_line(cell, 60)) for cell in cells), Text(one_line(standing, 200), style))
    return table


def _price(price: float | None) -> str:
    if price is None:
        return "?"
    return f"{price:.2f}" if round(price, 2) == price else f"{price:g}"


def _standing(choice: Choice, row: JsonObject, least: float | None) -> str:
    """Why a model judges, its rank among those that can, or why it can't. `least`: what the one that judges costs."""
    ranked = choice.judging.candidates[: len(choice.judging.ranked)]
    if row["judges"]:
        if choice.pinned:
            return "judges: the setting judge_model"
        if len(ranked) == 1:
            return "judges: the only model that can"
        costs = [candidate.estimated_cost_usd for candidate in ranked]
        is_cheapest = all(cost is None or cost >= (least or 0) for cost in costs)
        return f"judges: {'the cheapest' if is_cheapest else 'near tie, different family'}"
    if row["rank"] is None:
        return str(row["reason"])
    rank, cost = "next" if row["rank"] == 2 else f"#{row['rank']}", row["verdict_cost_usd"]
    if cost and least is not None and cost > least * NEAR_TIE:
        return f"{rank}: {cost / least:.1f} × the cost" if least else f"{rank}: not free"
    return f"{rank}: {row['reason']}"
