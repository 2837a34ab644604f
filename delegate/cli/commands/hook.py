"""`delegate hook`: judges the work of a coding agent's own agents, when they want to end."""

import hashlib
import json
import os
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from pydantic import BaseModel, PrivateAttr

from delegate._util.fencing import one_line
from delegate._util.redaction import redactor
from delegate.budget.nested import PARENT
from delegate.cli import PROGRAM
from delegate.cli.input.documents import STDIN, read_text
from delegate.cli.input.hooks import TOLD, Ending, read_ending
from delegate.cli.input.workfile import to_task
from delegate.cli.work import work
from delegate.delegator import Delegator
from delegate.policy.settings import load_settings, override
from delegate.sandbox.workspace.folder import Folder
from delegate.types import Parent, Task, Verdict

SWITCH = "DELEGATE_HOOK"
"""The variable that turns the hook off, with `off`."""
_BLOCKED = 2
"""The exit code that keeps a task of Claude Code's teams from being completed."""
_REASON_CHARS = 400
_KEPT_SECONDS = 30 * 86_400
"""How long it is remembered what an agent was told."""


def hook(
    timeout: Annotated[
        float, typer.Option(min=1, help="Let the agent end if there is no verdict after this many seconds.")
    ] = 50,
    max_cost_usd: Annotated[float, typer.Option(min=0, help="Spend at most this much for one verdict.")] = 0.5,
    max_blocks: Annotated[
        int, typer.Option(min=0, help="Let an agent end after it was told this often what is missing; 0 never blocks.")
    ] = 2,
) -> None:
    """Judge the work of a coding agent's subagent, before it may end.

    Claude Code, Codex and Gemini CLI run this as a hook: see docs/hook.md. The
    criteria are the list below a line `Acceptance criteria` in what the agent
    was asked for, and those in .delegate/criteria.toml. Without any, it ends.

    If they aren't met, it goes on, and is told what is missing. If nobody could
    look, it ends: the user reads why. DELEGATE_HOOK=off turns the hook off.
    """
    if os.environ.get(SWITCH, "").strip().lower() in {"off", "0", "false", "no"} or os.environ.get(PARENT):
        return  # what a child of delegate does is judged by delegate
    try:
        ending = read_ending(read_text(STDIN))
        if ending is None or not ending.criteria:
            return
        settings = load_settings()
        memory = _Memory.of(settings.home, ending.key)
        allowed = max_cost_usd if settings.max_cost_usd is None else min(settings.max_cost_usd, max_cost_usd)
        verdict = _judged(ending, memory, Delegator(override(settings, max_cost_usd=allowed)), timeout)
    except Exception as error:  # a hook that fails must neither end nor hold up the session that it is in
        text = f"{error} ({hint})" if (hint := getattr(error, "hint", None)) else str(error)
        _tell(f"{PROGRAM} didn't judge this work: {one_line(redactor.text(text), _REASON_CHARS)}")
        return
    told = redactor.text(_told(verdict))
    if verdict.verdict == "PASS" or not verdict.examined:
        _tell(told)
    elif memory.blocks >= max_blocks:
        _tell(f"{told}\n(it was told so {memory.blocks} times)" if memory.blocks else told)
    else:
        memory.keep(blocks=memory.blocks + 1)
        _block(ending, f"{told}\nDo what is missing, or say in your report what can't be done, and why.")


class _Memory(BaseModel):
    """What an agent was told before, in a file of the home folder."""

    blocks: int = 0
    """How often the agent was told what is missing."""
    digest: str = ""
    """Of the work that was judged last."""
    verdict: Verdict | None = None
    _file: Path = PrivateAttr()

    @classmethod
    def of(cls, home: Path, key: str) -> Self:
        """The memory of an agent, which is empty if there is none that can be read."""
        file = home / "hooks" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        memory = cls()
        with suppress(OSError, ValueError):
            memory = cls.model_validate_json(file.read_bytes())
        memory._file = file
        return memory

    def failure_of(self, digest: str) -> Verdict | None:
        """The last verdict, if it is a FAIL of the same work. No PASS: an agent with a shell could write one here."""
        known = self.verdict if self.digest == digest else None
        return known if known is not None and known.verdict == "FAIL" else None

    def keep(self, **fields: Any) -> None:
        """Change these fields, also in the file."""
        for name, value in fields.items():
            setattr(self, name, value)
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.write_text(self.model_dump_json(), encoding="utf-8")
            for old in self._file.parent.iterdir():
                if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
                    old.unlink()


def _judged(ending: Ending, memory: _Memory, delegator: Delegator, timeout: float) -> Verdict:
    """The verdict on what the agent did: the last FAIL, if nothing has changed since. Raises DelegateError."""
    task = to_task(ending.goal or "What the acceptance criteria say.", ending.criteria)

    async def judge() -> Verdict:
        digest = await _digest(ending, task)
        if known := memory.failure_of(digest):
            return known
        verdict = await delegator.judge(
            goal=task.goal,
            acceptance_criteria=task.acceptance_criteria,
            report=ending.session.report or None,
            workspace=ending.folder,
            receipts=ending.session.receipts,
            recorded=False,  # who has a shell can write what will be read as its transcript
            author="person" if ending.is_trusted else "model",
            worker_model=ending.session.model,
            parent=Parent(seconds_left=timeout),
        )
        if verdict.verdict == "FAIL" and verdict.examined:
            memory.keep(digest=digest, verdict=verdict)
        return verdict

    return work(delegator, lambda _: judge())


async def _digest(ending: Ending, task: Task) -> str:
    """A digest of all that is judged; a new one each time if the folder has more files than are looked at."""
    folder = Folder.of_existing(ending.folder)
    files = sorted((item.path, item.sha256 or item.link_to or str(item.bytes)) for item in await folder.artifacts())
    if folder.unlisted or any(item[1].isdecimal() for item in files):
        return secrets.token_hex(16)
    parts = (task.model_dump(mode="json"), ending.session.report, len(ending.session.calls), files)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _told(verdict: Verdict) -> str:
    """The verdict and, if it is FAIL, the criteria that aren't met."""
    if verdict.verdict == "PASS":
        return f"{PROGRAM}: PASS ({verdict.code})"
    failed = [
        f'- {item.id} {item.code} ({item.decided_by}): "{one_line(item.text, 200)}" → '
        f"{one_line(item.reason, _REASON_CHARS)}"
        for item in verdict.criteria
        if item.outcome != "met"
    ]
    return "\n".join([f"{TOLD}{verdict.code})", *(failed or [verdict.reasoning])])


def _tell(text: str) -> None:
    """Let the agent end, and let the user read this."""
    print(json.dumps({"systemMessage": text}, ensure_ascii=False))


def _block(ending: Ending, reason: str) -> None:
    """Let the agent go on, as its host wants to be told."""
    if ending.event == "TaskCompleted":
        print(reason, file=sys.stderr)
        raise typer.Exit(_BLOCKED)
    decision = "deny" if ending.event == "AfterAgent" else "block"
    print(json.dumps({"decision": decision, "reason": reason}, ensure_ascii=False))
