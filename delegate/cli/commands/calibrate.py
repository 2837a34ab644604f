"""`delegate calibrate`: prints how often each judge is wrong, as measured by rulings."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.text import Text

from delegate._util.fencing import one_line
from delegate.cli.ci.logs import inert_json, print_as_is
from delegate.cli.input.options import Format, FormatOption
from delegate.cli.input.recorded import complete_run, find
from delegate.cli.screen.layout import Trimmed
from delegate.cli.screen.output import add_title_column, console, print_as_json, refusals_as, slim_table, title
from delegate.delegator import Delegator
from delegate.judging.calibration import detector
from delegate.judging.calibration.corrected import CorrectedRate, corrected
from delegate.judging.calibration.fitting import fit
from delegate.judging.calibration.layers import ablation
from delegate.judging.calibration.measure import LIMITS, Measured, judge_name, measure
from delegate.judging.calibration.statistics import Interval
from delegate.judging.rulings import judge_words
from delegate.types import Ruling, RulingWord
from delegate.types.errors import CallError

SHOWN_CODES = 4


def calibrate(
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Correct the PASS rate of this run or batch; with --layers, count its verdicts only.",
            autocompletion=complete_run,
        ),
    ] = None,
    layers: Annotated[
        bool,
        typer.Option("--layers", help="Count how many FAILs on record the gate, checks, quotes and judges decided."),
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit a detector of reports that aren't true to the rulings, and store it.")
    ] = False,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print the accuracies as lines for delegate.toml, to take them elsewhere.")
    ] = False,
    format: FormatOption = Format.pretty,
) -> None:
    """Print how often each judge is wrong: false PASS, false FAIL and kappa, with 95 % intervals.

    The rates come from rulings on criteria that were drawn at random
    (`delegate rule --sample N`). Rulings on criteria that a person chose are
    printed separately, since such criteria aren't typical.
    """
    with refusals_as(format):
        if sum((layers, fit, toml)) > 1 or (batch is not None and (fit or toml)):
            hint = "use --batch alone or with --layers, and the others by themselves"
            raise CallError("invalid_options", "these options don't go together", hint=hint)
        with Delegator() as delegator:
            rulings = delegator.wait_for(delegator.records.rulings())
            if layers:
                _layers(delegator, rulings, batch, format)
            elif fit:
                _fit(delegator, rulings, format)
            else:
                _measure(delegator, rulings, batch, format, toml=toml)


def _measure(delegator: Delegator, rulings: Sequence[Ruling], batch: str | None, format: Format, *, toml: bool) -> None:
    measured = measure(rulings)
    rates = _corrected(delegator, rulings, measured, batch) if batch is not None else []
    if toml:
        print_as_is(inert_json("\n".join(_toml(measured))))  # strings are escaped as in JSON
        return
    ruled_twice, disagree = delegator.wait_for(delegator.records.disagreements())
    judges = [judge.as_json() for judge in measured]
    document = {"rulings": len(rulings), "ruled_by_several": ruled_twice, "disagreements": disagree, "judges": judges}
    document["corrected"] = [rate.as_json() for rate in rates]
    if print_as_json(format, document, judges):
        return
    if not measured:
        print("no rulings are on record; `delegate rule --sample 50` draws criteria at random, and asks about each")
    else:
        _print(measured)
        if ruled_twice:
            several = f"several people ruled on {ruled_twice} criteria, and disagree on {disagree}"
            print(f"{several}; the latest ruling counts")
    for rate in rates:
        print(one_line(_rate_line(rate), 300))


def _print(measured: Sequence[Measured]) -> None:
    """A table of the judges whose criteria were drawn at random, and one of the others."""
    out, limits = console(), [f"<{limit:.0%}" for limit in LIMITS]
    # A judge of one worker alone has one line: that of the worker would say the same.
    counts = Counter((judge.judge, judge.judge_version, judge.sampling) for judge in measured)
    shown = [
        judge
        for judge in measured
        if judge.worker is None or counts[judge.judge, judge.judge_version, judge.sampling] != 2
    ]
    headings = {"random": "Drawn at random", "chosen": "Chosen by hand, so these rates don't hold for other criteria"}
    for sampling, heading in headings.items():
        if not (rows := [judge for judge in shown if judge.sampling == sampling]):
            continue
        out.print(Text(heading, "bold"))
        table = slim_table(out)
        for name in ("judge", "n", "false PASS", "false FAIL", "kappa", *limits):
            table.add_column(name, no_wrap=True, justify="left" if name == "judge" else "right")
        for judge in rows:
            name = judge_name(judge, measured) if judge.worker is None else f"on {judge.worker or 'unknown'}"
            kappa = "?" if judge.kappa is None else f"{judge.kappa:.3f}"
            if judge.kappa is not None and judge.kappa_interval:
                kappa += f" ({judge.kappa_interval.lower:.2f}–{judge.kappa_interval.upper:.2f})"
            cells = ["  " * (judge.worker is not None) + one_line(name, 44), str(judge.table.n)]
            cells += [_percent(judge.false_pass_rate, judge.false_pass)]
            cells += [_percent(judge.false_fail_rate, judge.false_fail), kappa]
            more = (judge.more[limit] for limit in LIMITS)
            cells += ["–" if count is None else f"{count:,}" if count else "shown" for count in more]
            table.add_row(*map(Text, cells))
        out.print(Trimmed(table))
    note = "how many more random rulings would show a false-PASS rate below that"
    out.print(f"{', '.join(limits)}: {note}", soft_wrap=True)


def _percent(rate: float | None, interval: Interval | None) -> str:
    if rate is None or interval is None:
        return "?"
    return f"{rate:.1%} ({interval.lower:.1%}–{interval.upper:.1%})"


def _toml(measured: Sequence[Measured]) -> Iterator[str]:
    """The newest version of each judge as an inline table."""
    yield "[judge_accuracy]"
    seen = set[str]()
    for judge in measured:
        if judge.worker is not None or judge.sampling != "random" or not judge.judge_version or judge.judge in seen:
            continue
        seen.add(judge.judge)
        fields = {"accuracy": round(judge.accuracy or 0, 4), "rulings": judge.table.n, "bad": judge.table.bad}
        fields |= {"false_passes": judge.table.false_pass}
        text = ", ".join(f"{name} = {value}" for name, value in fields.items())
        key, version = _toml_string(judge.judge), _toml_string(judge.judge_version)
        yield f"{key} = {{ {text}, judge_version = {version}, measured_on = {judge.measured_on} }}"


def _toml_string(text: str) -> str:
    """As JSON, which is TOML but for two things: no surrogates, and DEL has to be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _corrected(
    delegator: Delegator, rulings: Sequence[Ruling], measured: Sequence[Measured], text: str
) -> list[CorrectedRate]:
    run_id = _run_id(delegator, text)
    everything = delegator.wait_for(delegator.records.verdicts())
    batch = [verdict for _, run, verdict in everything if run == run_id]
    answers = [word for verdict in batch for word in judge_words(verdict)]
    return corrected(batch, answers, [(handle, verdict) for handle, _, verdict in everything], rulings, measured)


def _run_id(delegator: Delegator, text: str) -> str:
    _, tasks = delegator.wait_for(find(delegator, text, None))
    return tasks[0].run_id


def _rate_line(rate: CorrectedRate) -> str:
    name = f"{rate.of} by {rate.judge}" if rate.judge else rate.of
    text = f"{name}: {rate.apparent:.1%} of {rate.n} as judged"
    if rate.rate is None:
        return f"{text}; too few rulings to correct it ({rate.rulings})"
    low, high = rate.rate.interval
    text += f", {rate.rate.corrected:.1%} ({low:.1%}–{high:.1%}) corrected for the judge's errors"
    return f"{text}, known from {rate.rulings} rulings"


def _layers(delegator: Delegator, rulings: Sequence[Ruling], batch: str | None, format: Format) -> None:
    run_id = _run_id(delegator, batch) if batch is not None else None
    verdicts = delegator.wait_for(delegator.records.verdicts(run_id))
    words: dict[tuple[str, str], RulingWord] = {(ruling.task, ruling.criterion): ruling.ruling for ruling in rulings}
    result = ablation(((handle, verdict) for handle, _, verdict in verdicts), words)
    document = result.as_json()
    if print_as_json(format, document, document["layers"]):
        return
    out = console()
    out.print(f"{result.verdicts} verdicts: {result.passed} PASS, {result.not_looked_at} at which nobody could look")
    table = slim_table(out)
    for name in ("layer", "stopped", "PASS without it", "unknown", "ruled", "wrongly"):
        table.add_column(name, no_wrap=True, justify="left" if name == "layer" else "right")
    add_title_column(table, "codes")
    for layer in result.layers:
        counts = (layer.stopped, layer.alone, layer.unknown, layer.ruled, layer.wrong)
        codes = [f"{one_line(code, 40)} {count}" for code, count in layer.codes.most_common(SHOWN_CODES)]
        codes += ["…"] if len(layer.codes) > SHOWN_CODES else []
        table.add_row(Text(layer.name), *(Text(str(count)) for count in counts), title(", ".join(codes)))
    out.print(Trimmed(table))


def _fit(delegator: Delegator, rulings: Sequence[Ruling], format: Format) -> None:
    home = delegator.settings.home
    fitted = fit(delegator.wait_for(delegator.records.ruled_runs(rulings)))
    if fitted.is_useful:
        detector.store(home, fitted.detector)
    else:
        (home / detector.FILE).unlink(missing_ok=True)
    if print_as_json(format, {**fitted.detector.about, "stored": fitted.is_useful}):
        return
    low, high = fitted.interval
    counts = f"{fitted.runs} runs, {fitted.false} of them false"
    print(f"AUROC {fitted.auroc:.2f} ({low:.2f}–{high:.2f}) in cross-validation over {counts}")
    if fitted.is_useful:
        print(f"stored in {home / detector.FILE}; verdicts now have the finding `looks_unsupported` where it applies")
    else:
        print("no better than chance, as far as these rulings tell; nothing is stored")
