"""Reads what coding agents tell their hooks when an agent wants to end, and what its work is judged by.

Claude Code, Codex and Gemini CLI send one JSON object on stdin. What an agent was asked for, did and said is in its
transcript, and the criteria are in what it was asked for, or in a file of the project.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from delegate.cli import PROGRAM
from delegate.cli.input.documents import read_document, read_text
from delegate.cli.input.workfile import LocatedCriterion, listed_criteria, to_task, typed
from delegate.contract.brief import criteria_in
from delegate.judging.transcripts.sessions import Session, read_session
from delegate.policy import trust
from delegate.types import Task
from delegate.types.errors import CallError
from delegate.types.faults import error_text

Json = Mapping[str, Any]

CRITERIA_FILE = Path(".delegate", "criteria.toml")
"""The criteria of a project: `acceptance_criteria` for its main agent, and those of `[agents.NAME]` for a subagent of
that name, or of `[agents."*"]` for all."""
TOLD = f"{PROGRAM}: FAIL ("
"""How what an agent is told begins. Some hosts pass it on as the user's words."""
EVENTS = ("SubagentStop", "Stop", "TaskCompleted", "AfterAgent")
_MOST_BYTES = 32 << 20
"""How long a transcript may be."""


class _Listed(BaseModel, extra="forbid"):
    acceptance_criteria: list[Any] = []


class _Project(_Listed):
    agents: dict[str, _Listed] = {}


@dataclass(frozen=True, slots=True)
class Ending:
    """An agent that wants to end, and what its work is judged by."""

    event: str
    folder: Path
    goal: str
    session: Session
    criteria: tuple[LocatedCriterion, ...]
    is_trusted: bool
    """Whether a person stands by the criteria: they are all in a file that is trusted."""
    key: str
    """Tells the agents of all sessions apart."""


def read_ending(text: str) -> Ending | None:
    """What the hook was told; None for another event, which is none of its business. Raises CallError."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, Mapping) or "hook_event_name" not in event:
        hint = f"let a coding agent run this command as its hook for one of {', '.join(EVENTS)}"
        raise CallError("invalid_json", "stdin has no JSON object with `hook_event_name`", field="stdin", hint=hint)
    event = cast("Json", event)
    name = str(event["hook_event_name"])
    if name not in EVENTS:
        return None
    folder = Path(str(event.get("cwd") or "."))
    session = _session(event)
    brief = _brief(event, session)
    agent = str(event["agent_type"]) if name == "SubagentStop" and event.get("agent_type") else None
    of_project, is_trusted = _of_project(folder, is_main=name != "SubagentStop", agent=agent)
    of_brief = tuple(typed(f"the brief, criterion {n}", text) for n, text in enumerate(criteria_in(brief), start=1))
    return Ending(
        event=name,
        folder=folder,
        goal=brief,
        session=session,
        criteria=(*of_brief, *of_project),
        is_trusted=is_trusted and not of_brief,
        key=json.dumps([name, event.get("session_id"), event.get("agent_id"), event.get("task_id")]),
    )


def _session(event: Json) -> Session:
    """What is in the transcript, if there is one. The event knows the last message even before it is written."""
    path = event.get("agent_transcript_path") or event.get("transcript_path")
    session = Session("")
    if isinstance(path, str) and path and (file := Path(path).expanduser()).is_file():
        if file.stat().st_size > _MOST_BYTES:
            message = f"the transcript {file} has over {_MOST_BYTES >> 20} MB, which is too long to be judged"
            raise CallError("too_large", message, field="transcript_path")
        session = read_session(read_text(file), str(file))
    session.says(str(event.get("last_assistant_message") or event.get("prompt_response") or ""))
    return session


def _brief(event: Json, session: Session) -> str:
    """What the agent was asked for: a subagent first of all, the main agent with its user's last message."""
    name = event["hook_event_name"]
    if name == "TaskCompleted":
        return "\n\n".join(str(part) for part in (event.get("task_subject"), event.get("task_description")) if part)
    prompts = [*session.prompts, *([str(event["prompt"])] if event.get("prompt") else [])]
    own = [prompt for prompt in prompts if not prompt.startswith(TOLD)]
    return own[0 if name == "SubagentStop" else -1] if own else ""


def _of_project(folder: Path, *, is_main: bool, agent: str | None) -> tuple[tuple[LocatedCriterion, ...], bool]:
    """The criteria of the project's file for this agent, and whether the file is trusted, or isn't there."""
    file = next((file for at in (folder, *folder.parents) if (file := at / CRITERIA_FILE).is_file()), None)
    if file is None:
        return (), True
    project = _project_in(file)
    table = project if is_main else project.agents.get(agent or "", project.agents.get("*", _Listed()))
    return tuple(listed_criteria(str(file), table.acceptance_criteria)), trust.is_trusted(file)


def criteria_as_tasks(file: Path) -> list[tuple[str, Task]]:
    """What a project's file asks of each agent, as tasks. Raises CallError."""
    project = _project_in(file)
    tables = {"the main agent": project, **project.agents}
    return [
        (name, to_task(name, list(listed_criteria(name, table.acceptance_criteria)))) for name, table in tables.items()
    ]


def _project_in(file: Path) -> _Project:
    try:
        return _Project.model_validate(read_document(file))
    except ValidationError as error:
        text = error_text(error, list(_Project.model_fields))
        raise CallError("invalid_criterion", f"{file}: {text}", field="acceptance_criteria") from None
