"""Finds shell criteria that cannot fail: `pytest || true`, `make test | tee log`, `pytest; exit 0` and their kin.

    command ──shell──▶ tree ──flow──▶ every way it may end ──▶ always the wanted one?  then: where was the failure lost
                                └─ programs, conditions, oneliners: what single commands can and can't do

It asks whether the wanted exit code can be missed because the work isn't right. It runs nothing. What it can't know
counts as a real check, so it finds most muffled commands and blames no honest one.
"""

from delegate.judging.checks.vacuous.flow import walk
from delegate.judging.checks.vacuous.rules import RULES, Muffle
from delegate.judging.checks.vacuous.shell import Unreadable, read
from delegate.judging.checks.vacuous.state import Note
from delegate.judging.checks.vacuous.statuses import always, never

__all__ = ["RULES", "Muffle", "describe", "find_muffles"]


def find_muffles(command: str, *, exit_code: int = 0) -> tuple[Muffle, ...]:
    """Where `command` loses a failure, when it is meant to leave with `exit_code`; nothing for an honest command."""
    try:
        notes = _look(command, exit_code)
    except (Unreadable, RecursionError):
        notes = [Note("unparsable", 0, len(command))]
    places = dict.fromkeys((note.rule, note.start, note.end) for note in notes)
    return tuple(
        Muffle(rule, start, end, command[start:end], RULES[rule])
        for rule, start, end in sorted(places, key=lambda place: place[1:])
    )


def describe(muffle: Muffle) -> str:
    """The finding in one line."""
    text = " ".join(muffle.text.split())
    shown = text if len(text) <= 80 else text[:79] + "…"
    return f"{muffle.rule} at {muffle.start}-{muffle.end} ({shown}): {muffle.why}"


def _look(command: str, exit_code: int) -> list[Note]:
    script = read(command)
    seen = walk(script, uses_pipestatus="PIPESTATUS" in command)
    told = [note for note in seen.notes if note.alone]
    if script.broken:
        return told or [Note("unparsable", 0, len(command))]
    if not seen.sure:
        return told
    if always(seen.ends, exit_code):
        return seen.notes or [Note("constant", 0, len(command))]
    return [*told, Note("never_holds", 0, len(command))] if never(seen.ends, exit_code) else told
