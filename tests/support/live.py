"""Recorded tasks of a capable model, with everybody's replies, as they are played again.

`tests/data/live/README.md` says how they were made.
"""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegate.models.providers.scripted import Scripted
from delegate.records.recorder import canonical
from delegate.types.errors import ToolError
from delegate.types.ports import ChatReply, ChatRequest, Tool
from tests.support.readings import DATA, Row, replayed
from tests.support.words import asked_ids, is_judge

LIVE = DATA / "live"
ABOUT: dict[str, Any] = json.loads((LIVE / "about.json").read_text(encoding="utf-8"))
_IN_THE_FOLDER = ("read_file", "write_file", "list_files")


@dataclass(frozen=True)
class Run:
    """One run of a task: honest, or faked. `row` is what was recorded of it."""

    task: Row
    row: Row

    @property
    def id(self) -> str:
        return f"{self.task['id']} {self.row['kind']}"

    @property
    def is_honest(self) -> bool:
        return self.row["kind"] == "honest"

    def prepare(self, folder: Path) -> None:
        """Write the files with which the work began."""
        folder.mkdir(parents=True)
        for name, content in self.task["files"].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        if self.task["git"]:
            for step in ("init -q", "add -A", "-c user.name=x -c user.email=x@example.org commit -qm start"):
                subprocess.run(["git", *step.split()], cwd=folder, check=True)

    def tools(self, folder: Path) -> list[Tool] | None:
        """The worker's tools, with the answers that they gave; None for the built-in ones."""
        if not self.task["tools"]:
            return None
        given: dict[str, list[Any]] = defaultdict(list)
        for name, args, *answer in self.row["log"]:
            given[_key(name, args)].append(answer)
        return [_tool(spec, given, folder) for spec in self.task["tools"]]

    def client(self) -> Scripted:
        """The recorded child, reader and judge."""
        return Scripted(self.answer, reading=replayed(self.task))

    def answer(self, request: ChatRequest) -> ChatReply | str:
        """What the recorded child or judge said to this."""
        said = self.row["judge" if is_judge(request) else "replies"]
        turn = said[sum(message.role == "assistant" for message in request.messages)]
        if not turn.get("calls"):
            return answers(turn["text"], request) if is_judge(request) else str(turn["text"])
        calls = ((call["name"], call.get("arguments", {})) for call in turn["calls"])
        return Scripted.calls(*calls, text=turn.get("text") or "")


def runs() -> Iterator[Run]:
    """All recorded runs."""
    for line in (LIVE / "tasks.jsonl").read_text(encoding="utf-8").splitlines():
        task: Row = json.loads(line)
        for row in task["runs"]:
            yield Run(task, row)


def rows(name: str) -> list[Row]:
    """The rows of another file of recorded tasks."""
    return [json.loads(line) for line in (LIVE / name).read_text(encoding="utf-8").splitlines()]


def answers(text: str, request: ChatRequest) -> str:
    """A judge's answers, without those about what code has come to decide alone.

    Times and counts in what commands print differ from run to run: a quote is looked for with other numbers.
    """
    shown = "\n".join(
        part for message in request.messages for part in (message.text, *(reply.text for reply in message.tool_replies))
    )
    given = [one for one in json.loads(text)["answers"] if one["id"] in asked_ids(request)]
    for one in given:
        piece = shown.partition(f"<<<{one['source']} ")[2].partition(f"<<<end {one['source']} ")[0]
        if one["evidence"] and one["evidence"] not in piece:
            pattern = re.sub(r"\d+(?:\\?\.\d+)?", r"\\d+(?:\\.\\d+)?", re.escape(one["evidence"]))
            found = re.search(pattern, piece)
            one["evidence"] = found[0] if found else one["evidence"]
    return json.dumps({"answers": given})


def _key(tool: str, args: Mapping[str, Any]) -> str:
    return f"{tool} {canonical(args)}"


def _tool(spec: list[Any], given: dict[str, list[Any]], folder: Path) -> Tool:
    name, description, parameters, read_only, effects = spec

    async def call(args: Mapping[str, Any]) -> str:
        if name in _IN_THE_FOLDER:
            return _in_folder(name, args, folder)
        answers = given[_key(name, args)]
        assert answers, f"{name}({args}) was never called"
        text, *error = answers.pop(0) if len(answers) > 1 else answers[0]
        if error:
            raise ToolError(error[0])
        return text

    declared = None if effects is None else frozenset(effects)
    return Tool(name, description, parameters, call, read_only=read_only, effects=declared)


def _in_folder(name: str, args: Mapping[str, Any], folder: Path) -> str:
    if name == "list_files":
        return "\n".join(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    path = folder / args["path"]
    if name == "read_file":
        return path.read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(args["content"])
    return f"wrote {args['path']}"
