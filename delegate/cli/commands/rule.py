"""`delegate rule`: records what a person says about a criterion that was judged."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.cli.input.documents import name_of, read_text
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.input.recorded import complete_run, find, records_of
from delegate.cli.screen.output import console, plain, print_as_json, refusals_as, user
from delegate.contract.amounts import counted
from delegate.delegator import Delegator
from delegate.judging.judge.evidence import Evidence, gather
from delegate.judging.judge.sources import Sources
from delegate.judging.submission import Submission
from delegate.sandbox.workspace.folder import Folder
from delegate.types import PASSING, ChildRun, JsonObject, RulingWord, Sampling, Task
from delegate.types.errors import CallError

SHOWN_CHARS = 2_500
"""Characters of each piece of evidence that are shown at first."""
SHOWN_CALLS = 8
KEYS = "[y] met  [n] not met  [a] all of the evidence  [s] skip  [q] quit"


def rule(
    handle: Annotated[
        str | None,
        typer.Argument(
            metavar="[HANDLE]",
            help="The handle of a task such as 1f2e3d4c5b6a7f8e9d0c-0, or the id or first characters of a run of one "
            "task, or `last`.",
            autocompletion=complete_run,
        ),
    ] = None,
    criterion: Annotated[str | None, typer.Argument(metavar="[CRITERION]", help="Its id, such as c1.")] = None,
    ruling: Annotated[RulingWord | None, typer.Argument(help="Whether the criterion is really met.")] = None,
    because: Annotated[str, typer.Option(metavar="TEXT", help="The reason.")] = "",
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who rules, or which check. Default: the user.")
    ] = None,
    review: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Show the run's criteria one after the other, without their verdicts, and ask."
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Draw N criteria at random, of all runs or of that of --review."),
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Read rulings from JSON lines; `-` is stdin.")
    ] = None,
    sampling: Annotated[
        Sampling, typer.Option(help="How the criteria of --import were selected, where a line doesn't say.")
    ] = "chosen",
    format: FormatOption = Format.pretty,
) -> None:
    """Say whether a criterion is really met. `delegate calibrate` measures the judges by that.

    `--sample N` draws criteria at random and shows each with its evidence but
    not its verdict. How often a judge is wrong is measured by these rulings.
    Rulings on criteria that you choose yourself are counted separately. Without
    a terminal, `--sample N --format jsonl` prints the criteria as lines with
    their evidence; fill in `ruling`, and read them with `--import`.
    """
    with refusals_as(format):
        sources = [handle is not None, review is not None or sample is not None, import_ is not None]
        if sum(sources) != 1:
            message = "only one of HANDLE, --review or --sample, and --import" if any(sources) else "nothing to rule on"
            hint = "give HANDLE CRITERION met|not_met, or --sample N, or --review RUN, or --import FILE"
            raise CallError("invalid_ruling", message, hint=hint)
        by = by or user() or "unknown"
        with Delegator() as delegator:
            if import_ is not None:
                text, name = read_text(import_), name_of(import_)
                reading = delegator.records.import_rulings(text, by=by, sampling=sampling, name=name)
                count = delegator.wait_for(reading)
                if not print_as_json(format, {"imported": count}):
                    print(f"{counted(count, 'ruling')} recorded")
            elif handle is not None:
                if criterion is None or ruling is None:
                    missing = "CRITERION" if criterion is None else "met or not_met"
                    raise CallError("invalid_ruling", f"{missing} is missing", hint="give HANDLE CRITERION met|not_met")
                _rule_one(delegator, handle, criterion, ruling, because, by, format)
            elif format is not Format.pretty:
                _print_drawn(delegator, review, sample, format)
            else:
                _review(delegator, review, sample, by)


def _rule_one(
    delegator: Delegator, text: str, criterion: str, word: RulingWord, because: str, by: str, format: Format
) -> None:
    (record,) = delegator.wait_for(records_of(delegator, [text]))
    rulings = delegator.wait_for(delegator.records.rule(record["handle"], criterion, word, because=because, by=by))
    rows = [ruling.model_dump(mode="json") for ruling in rulings]
    if not print_as_json(format, rows, rows):
        for ruling in rulings:
            agrees = "agrees" if (ruling.judged in PASSING) == (ruling.ruling == "met") else "differs"
            words = f"{ruling.ruling}, says {ruling.ruled_by}; {ruling.judge or 'no judge'} said {ruling.judged}"
            print(one_line(f"{ruling.task} {ruling.criterion}: {words} ({agrees})", 300))


async def _drawn(delegator: Delegator, run: str | None, sample: int | None) -> list[tuple[str, str]]:
    """The criteria to rule on. Raises CallError if there are none."""
    run_id, only = None, None
    if run is not None:
        record, tasks = await find(delegator, run, None)
        run_id, only = tasks[0].run_id, str(record["handle"]) if record else None
        if sample is not None and (only is not None or len(tasks) == 1):
            hint = "name a run of several tasks, or none to draw of all, or leave out --sample"
            raise CallError("invalid_ruling", "a sample of one task that somebody picked is not random", hint=hint)
    drawn = await delegator.records.draw(sample, run_id)
    drawn = [item for item in drawn if only is None or item[0] == only]
    if not drawn:
        message = "no criterion that a judge decided is left to rule on"
        raise CallError("nothing_to_rule", message, hint="name another run, or run tasks with criteria in words")
    return drawn


def _print_drawn(delegator: Delegator, run: str | None, sample: int | None, format: Format) -> None:
    """The criteria as rows to fill in, without their verdicts."""
    rows, sampling = list[JsonObject](), "chosen" if sample is None else "random"
    for handle, id in delegator.wait_for(_drawn(delegator, run, sample)):
        if record := delegator.wait_for(delegator.records.read(handle)):
            row = {"task": handle, "criterion": id, "ruling": None, "because": None, "sampling": sampling}
            evidence = {name: text for name, text in _evidence(record).sources.items() if text.strip()}
            rows.append({**row, "goal": record["task"]["goal"], "text": _text_of(record, id), "evidence": evidence})
    print_as_json(format, rows, rows)


def _review(delegator: Delegator, run: str | None, sample: int | None, by: str) -> None:
    """Show each criterion with its evidence, and ask. Every ruling is stored at once."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "without one, use --sample N --format jsonl, fill in `ruling`, and read the lines with --import"
        raise CallError("no_terminal", "a review needs a terminal to ask in", hint=hint)
    out, ruled = console(), 0
    items = delegator.wait_for(_drawn(delegator, run, sample))
    for n, (handle, id) in enumerate(items, start=1):
        record = delegator.wait_for(delegator.records.read(handle))
        if record is None:
            continue  # removed meanwhile
        word = _asked(out, record, id, f"{n} of {len(items)}")
        if word == "q":
            break
        if word == "s":
            continue
        because = typer.prompt("because", default="", show_default=False)
        answer: RulingWord = "met" if word == "y" else "not_met"
        sampling: Sampling = "random" if sample is not None else "chosen"
        delegator.wait_for(delegator.records.rule(handle, id, answer, by=by, because=because, sampling=sampling))
        ruled += 1
    print(f"{ruled} of {len(items)} ruled; `delegate calibrate` prints what that says of the judges")


def _asked(out: Console, record: JsonObject, id: str, place: str) -> str:
    """The key that the person typed: y, n, s or q."""
    evidence = _evidence(record)
    out.print()
    out.rule(Text(f"{place}: {record['handle']} {id}"))
    out.print(Text("goal       ", "bold") + plain(record["task"]["goal"][:SHOWN_CHARS]))
    out.print(Text("criterion  ", "bold") + plain(_text_of(record, id)))
    if record["workspace"]:
        out.print(Text("folder     ", "bold") + plain(str(record["workspace"])))
    _show(out, evidence, whole=False)
    while True:
        word = typer.prompt(KEYS, prompt_suffix=" > ").strip().lower()[:1]
        if word == "a":
            _show(out, evidence, whole=True)
        elif word in ("y", "n", "s", "q"):
            return word


def _show(out: Console, evidence: Evidence, *, whole: bool) -> None:
    """The evidence that the judge saw, without checks, whose results would tell the verdict."""
    calls = [name for name in evidence.sources if name.startswith("receipt:")]
    hidden = set[str]() if whole else set(calls[:-SHOWN_CALLS])
    for name, text in evidence.sources.items():
        if name in hidden or not text.strip():
            continue
        part = text if whole else text[:SHOWN_CHARS]
        out.print(Text(f"── {name}", "dim"))
        out.print(plain(part), soft_wrap=True)
        if len(part) < len(text):
            out.print(Text(f"… {len(text) - len(part):,} more characters", "dim"))
    if hidden:
        out.print(Text(f"… {len(hidden)} earlier tool calls", "dim"))


def _evidence(record: JsonObject) -> Evidence:
    """What the judge saw of a task, as far as it is still there."""
    workspace = Path(record["workspace"]) if record["workspace"] else None
    folder = Folder.of_existing(workspace) if workspace is not None and workspace.is_dir() else None
    run = ChildRun.model_validate(record["run"])
    return gather(Sources(Submission(Task(goal=record["task"]["goal"]), run, folder, "person", None)))


def _text_of(record: JsonObject, id: str) -> str:
    """The criterion in words."""
    verdict = record["result"]["verdict"]
    return next((str(criterion["text"]) for criterion in verdict["criteria"] if criterion["id"] == id), id)
