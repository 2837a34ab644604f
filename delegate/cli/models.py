"""`delegate models`: what is known about each model, and which one would judge."""

from typing import TYPE_CHECKING, Annotated

import typer

from delegate.cli.formats import Format, FormatOption

if TYPE_CHECKING:
    from rich.table import Table

    from delegate.cli.choice import Choice
    from delegate.delegator import Delegator
    from delegate.types import Candidate, JsonObject

VERDICT_TOKENS = 5_000
"""What a judge typically reads: its card, the criteria, a report, a few files and tool calls."""
REPLY_TOKENS = 300
"""What it then writes, for one criterion."""


def models(
    worker: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Whose work is judged. By default what children run on.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens that the judge reads for one verdict.")] = VERDICT_TOKENS,
    format: FormatOption = Format.pretty,
) -> None:
    """List the models: tier, price today, what one verdict would cost, and who may judge or why not."""
    from delegate.cli.choice import choose
    from delegate.cli.output import console, print_json, print_jsonl, slim_table
    from delegate.delegator import Delegator

    with Delegator() as delegator:
        choice = choose(delegator, worker=worker, tokens=tokens)
        rows = [_row(delegator, candidate, tokens) for candidate in choice.judging.candidates]
    if format is Format.pretty:
        out = console()
        out.print(_summary(choice, worker, tokens), soft_wrap=True)
        out.print(_table(rows, slim_table(out)))
    elif format is Format.json:
        chosen = choice.judging.chosen
        names = {"worker": choice.worker.id if choice.worker else None, "judge": chosen.id if chosen else None}
        print_json({**names, "tokens": tokens, "models": rows})
    else:
        print_jsonl(rows)


def _row(delegator: "Delegator", candidate: "Candidate", tokens: int) -> "JsonObject":
    from datetime import date

    model = delegator.catalog.find(candidate.model)
    price = model.price(date.today(), tokens) if model else None
    return {
        "model": candidate.model,
        "provider": model.endpoint if model and model.endpoint else candidate.provider,
        "tier": candidate.tier,
        "input_price": price.input if price else None,
        "output_price": price.output if price else None,
        "verdict_cost_usd": candidate.estimated_cost_usd,
        "judges": candidate.reason is None,
        "reason": candidate.reason,
    }


def _summary(choice: "Choice", worker: str | None, tokens: int) -> str:
    from delegate.cli.output import usd

    problem = choice.problem
    children = f"Children run on {choice.worker.id}" if choice.worker else "Children can't run"
    if worker and choice.worker:
        children = f"Work of {choice.worker.id}"
    if problem is not None:
        children += f": {problem.message} ({problem.hint})"
    if choice.judging.chosen is None:
        return f"{children}; no model may judge: the last column says why."
    cost = usd(choice.judging.candidates[0].estimated_cost_usd)
    return f"{children}; {choice.judging.chosen.id} judges, at about {cost} for a verdict on {tokens:,} tokens."


def _table(rows: "list[JsonObject]", table: "Table") -> "Table":
    from rich.text import Text

    from delegate.cli.output import usd

    for name in ("model", "provider", "tier"):
        table.add_column(name, no_wrap=True)
    for name in ("in $/M", "out $/M", "verdict"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("judges?", overflow="fold")
    for row in rows:
        prices = [f"{price:.2f}" if price is not None else "?" for price in (row["input_price"], row["output_price"])]
        reason = Text("yes: cheapest", "bold green") if row["judges"] else Text(str(row["reason"]))
        names = (Text(str(row["model"])), Text(str(row["provider"])), row["tier"])
        table.add_row(*names, *prices, usd(row["verdict_cost_usd"]), reason)
    return table
