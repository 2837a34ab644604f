"""Finds out by trying whether a criterion can fail: commands in an empty folder, on the files of before and in a folder
with what they name, conditions on reports that say nothing.

What succeeds wherever it is tried can't fail, as far as that can be known: `pytest || true`, `.*`, `{}`. Commands run
in copies, so that the user's files don't change, in a sandbox unless the settings allow them anywhere, with the network
that the settings give, and for at most `MAX_SECONDS`.
"""

import asyncio
import json
import re
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import regex

from delegate._util.threads import run_in_thread
from delegate.judging.checks.json_schema import SchemaProblem, validate
from delegate.judging.checks.predicate.evaluate import PredicateError, evaluate
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.filesystem.trees import copy_tree, remove_soon
from delegate.sandbox.workspace.snapshot import CACHES
from delegate.types import (
    CONDITIONS,
    AnyCriterion,
    Author,
    CitationsCriterion,
    FileCriterion,
    JsonObject,
    JsonPredicateCriterion,
    JsonSchemaCriterion,
    ManualCriterion,
    ProbeCriterion,
    ReceiptCriterion,
    RegexCriterion,
    ShellCriterion,
    Task,
)
from delegate.types.errors import CallError, ToolError

MAX_SECONDS = 10.0
"""For one run of a command; of one that takes longer, nothing is known."""
_AT_ONCE = 2
_VALUES: tuple[Any, ...] = ({}, [], "", None, 0)
"""JSON that says nothing."""
_TEXTS = ("{}", "[]", "null", "0")
"""Reports that say nothing. An empty one is refused before it is checked."""
_RICH = """The quick brown fox, 12.5 (and) [more]: {"a": 1};

\t<b>O'K</b> - #1 @x _y_ *z* / \\ | & % $ + = ~ ^ ! ? \u00e9\u4e2d.
"""
"""A text with a little of everything, on which fails what asks for the absence of something, such as of commas."""
_REGEX_SECONDS = 1.0
_COMMON = ("x.py", "test_x.py", "x.js", "x.test.js", "x.json", "x.sh", "x.md", "x.txt", "x.csv", "x.yaml", "x.toml")
_WITHOUT_WORK = "it succeeds in an empty folder"


@dataclass(frozen=True, slots=True)
class Trial:
    """Whether a criterion can fail, None if that isn't known, and how that was found out."""

    can_fail: bool | None
    how: str
    held_before: bool = False
    """Whether a command that can fail succeeds without any work: it shows nothing unless that is to stay so."""


async def try_out(
    task: Task,
    commands: Commands,
    *,
    author: Author,
    folder: Path | None = None,
    is_start: bool = True,
    held_before: bool = True,
) -> list[Trial]:
    """Try `task.criteria`. `folder` is the workspace, if there is one; with `is_start`, it has the files of before.

    Nothing is known of commands that the settings or this machine refuse to run. Without `held_before`, those that fail
    in an empty folder aren't run again.
    """
    place = None if folder is None else await run_in_thread(lambda: folder.expanduser().resolve())
    trial = _Commands(commands, author, place, is_start, held_before)
    few = asyncio.Semaphore(_AT_ONCE)

    async def attempt(criterion: AnyCriterion) -> Trial:
        async with few:
            if isinstance(criterion, ShellCriterion):
                return await trial.try_out(criterion)
            return await _try_condition(criterion, task.goal)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(attempt(criterion)) for criterion in task.criteria]
    return [pending.result() for pending in running]


async def refuse_vacuous(
    task: Task, commands: Commands | None, *, author: Author, folder: Path | None, is_start: bool = True
) -> None:
    """Raise CallError for the first criterion that can't fail. Without `commands`, only conditions are tried."""
    if commands is not None:
        trials = await try_out(task, commands, author=author, folder=folder, is_start=is_start, held_before=False)
    else:
        conditions = (one if isinstance(one, CONDITIONS) else None for one in task.acceptance_criteria)
        trials = [await _try_condition(one, task.goal) if one else None for one in conditions]
    for n, trial in enumerate(trials[: len(task.acceptance_criteria)]):
        if trial is not None and trial.can_fail is False:
            hint = "name something that only the finished work meets"
            message = f"it can't fail: {trial.how}"
            raise CallError("vacuous_check", message, field=f"acceptance_criteria[{n}]", hint=hint)


# ------------------------------------------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class _Commands:
    """Runs commands in copies that have the place of the workspace `folder`, which they may name."""

    commands: Commands
    author: Author
    folder: Path | None
    is_start: bool = False
    held_before: bool = False

    async def try_out(self, criterion: ShellCriterion) -> Trial:
        """Whether a command can fail."""
        start = self.folder if self.is_start else None
        before, empty = True, await self.succeeds(criterion, None)
        if start is not None:
            before = (self.held_before or empty is not False) and await self.succeeds(criterion, start)
        match empty, before:
            case (False, True) if start is not None:
                how = (
                    "it fails in an empty folder, but succeeds on the files of before: it shows only that this stays so"
                )
                return Trial(True, how, held_before=True)
            case (False, _):
                return Trial(True, "it fails in an empty folder")
            case (_, False):
                return Trial(True, "it fails on the files of before")
            case (True, True):
                how = _WITHOUT_WORK if start is None else f"{_WITHOUT_WORK}, and on the files of before"
                if await self.succeeds(criterion, None, fill=True) is not False:
                    return Trial(False, how)
                why = "the files of the task aren't known here" if start is None else "it shows only that this stays so"
                return Trial(True, f"{how}, but fails where what it names is there: {why}", held_before=True)
            case (True, why):
                return Trial(None, f"{_WITHOUT_WORK}; on the files of before, {why}")
            case (why, _):
                return Trial(None, str(why))

    async def succeeds(self, criterion: ShellCriterion, files: Path | None, *, fill: bool = False) -> bool | str:
        """Whether a command succeeds in a copy of `files`, or an empty or `filled` folder; or why that isn't known."""
        seconds = min(criterion.timeout_seconds, MAX_SECONDS)
        try:
            async with _copy_of(files) as (tree, elsewhere):
                place = self.folder or elsewhere
                command = await run_in_thread(partial(filled, tree, criterion.command)) if fill else criterion.command
                result = await self.commands.run_check(
                    command, cwd=place, timeout_seconds=seconds, author=self.author, copy=tree
                )
        except (ToolError, CallError, OSError) as error:
            return f"it couldn't be run: {error}"
        if result.timed_out and seconds < criterion.timeout_seconds:
            return f"it takes over {seconds:g} s"
        return not result.timed_out and result.exit_code == criterion.exit_code


def filled(folder: Path, command: str) -> str:
    """Put into an empty folder what a command may look for, such as what it forbids: the files and folders that it
    names, with its words and patterns in them. Return the command as it is run there, in a git repository.
    """
    text = re.sub(r"\[\^?\\?(\w)[^]]*\](?:\{(\d{1,2})[^}]*\})?", lambda match: match[1] * int(match[2] or 1), command)
    text = re.sub(r"\\[bABZ]|[\\^$]", "", text.replace(r"\d", "1"))
    text = "\n".join((*re.split(r"['\"|]", text), *_words_of(command), f"{_RICH} "))
    made = re.findall(r"(?:>|\btee|\bmkdir)(?:\s+-\w+)*\s*([\w./-]+)", command)
    for name in {*re.findall(r"[\w*.-]+(?:/[\w*.-]+)*", command), *_COMMON}.difference(made):
        path = folder / name.replace("*", "x")
        path = path if "." in path.name.strip(".") else path / "x.py"
        with suppress(OSError):  # a name is too long, or both a file and a folder
            if ".." not in path.parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    return f"{{ git init -q . && git add -N x.py; }} 2>/dev/null; {command}"


@asynccontextmanager
async def _copy_of(files: Path | None) -> AsyncGenerator[tuple[Path, Path]]:
    """A copy of the folder `files`, or an empty one, and an empty folder beside it. Raises CallError and OSError."""
    home, stop = Path(await run_in_thread(partial(tempfile.mkdtemp, prefix="delegate-try-"))), threading.Event()
    tree, elsewhere = home / "tree", home / "folder"
    try:
        tree.mkdir()
        elsewhere.mkdir()
        if files is not None:
            await run_in_thread(partial(copy_tree, files, tree, stop, without=CACHES), stop=stop)
        yield tree, elsewhere
    finally:
        await remove_soon(home)


# ----------------------------------------------------------------------------------------------------- conditions


async def _try_condition(criterion: AnyCriterion, goal: str) -> Trial:
    match criterion:
        case JsonSchemaCriterion():
            return await _try_schema(criterion.schema_, goal)
        case JsonPredicateCriterion():
            return await _try_expression(criterion.expr)
        case ProbeCriterion():
            expr = criterion.expr
            return await (_try_schema(criterion.schema_ or {}, goal) if expr is None else _try_expression(expr))
        case RegexCriterion():
            how = "it is found in any text, such as the goal"
            texts = filter(None, (*_TEXTS, goal, _RICH, _RICH * 50, " ".join(_words_of(criterion.pattern))))
            return await _try_on(list(texts), partial(_is_found, criterion.pattern), how)
        case FileCriterion():
            return _try_file(criterion)
        case ReceiptCriterion():
            fails_with = criterion.mode == "none" or not criterion.calls
            how = f"it fails {'with' if fails_with else 'without'} such a call"
            names = ", ".join(f"`{call.tool}`" for call in criterion.calls)
            return Trial(True, f"{how}; which tools there are isn't known here: {names}" if names else how)
        case CitationsCriterion():
            return Trial(True, "it fails without a source that was opened")
        case ManualCriterion():
            return Trial(None, "a person decides it")
        case _:
            return Trial(None, "a judge decides it")


async def _try_schema(schema: JsonObject, goal: str) -> Trial:
    async def fits(value: Any) -> bool:
        return await validate(value, schema) is None

    how = "the schema accepts any JSON, such as {}, [], null and the goal as text"
    text = json.dumps(schema)
    forbidden = _objects_with(text) if '"not"' in text else ()
    return await _try_on((*_VALUES, goal, *forbidden), fits, how)


async def _try_expression(expr: str) -> Trial:
    async def holds(value: Any) -> bool:
        return (await evaluate(expr, value)).holds

    values: list[Any] = [{}, [], None, *_objects_with(expr)]
    return await _try_on(values, holds, "the expression holds for {}, [] and null")


def _words_of(condition: str) -> list[str]:
    """The words that a condition names: what it forbids is among them."""
    return list(dict.fromkeys(re.findall(r"\w+", re.sub(r"\\[A-Za-z]", " ", condition))))


def _objects_with(condition: str) -> Iterator[JsonObject]:
    for value in ("x", True, 1, ["x"]):
        yield dict.fromkeys(_words_of(condition), value)


async def _try_on(values: Sequence[Any], accepts: Callable[[Any], Awaitable[bool]], if_all: str) -> Trial:
    for value in values:
        try:
            if not await accepts(value):
                return Trial(True, f"it fails on {_shown(value)}")
        except PredicateError:  # of this value: the expression itself was checked
            return Trial(True, f"it fails on {_shown(value)}")
        except (SchemaProblem, TimeoutError) as problem:
            return Trial(None, f"it couldn't be tried: {problem}")
    return Trial(False, if_all)


def _shown(value: object) -> str:
    if isinstance(value, dict) and value:
        return "an object with all that it names"
    if isinstance(value, str):
        return f"`{value}`" if value in _TEXTS else "a text" if value else "an empty text"
    return json.dumps(value)


async def _is_found(pattern: str, text: str) -> bool:
    return await asyncio.to_thread(regex.search, pattern, text, timeout=_REGEX_SECONDS, concurrent=True) is not None


def _try_file(criterion: FileCriterion) -> Trial:
    idle = ["`min_bytes` is 0"] if criterion.min_bytes == 0 else []
    idle += ["`contains` is empty"] if criterion.contains == "" else []
    if idle and not criterion.min_bytes and not criterion.contains and criterion.json_schema is None:
        return Trial(False, f"{' and '.join(idle)}, which any file meets; leave it out if the file only has to exist")
    return Trial(True, f"it fails {'without' if criterion.exists else 'with'} the file")
