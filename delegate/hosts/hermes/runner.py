"""Children as agents of Hermes: the parent's model and tools, Hermes's own prompts, our deadline and our verdict.

Each child has a thread of its own, in which Hermes's loop blocks. It works in its workspace as far as Hermes's terminal
and file tools keep to a working directory; nothing confines it there.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

from delegate.child.job import Job
from delegate.errors import DelegateError
from delegate.hosts.hermes.borrowed import borrow, toolset_of
from delegate.hosts.hermes.sessions import Session, calling, sessions
from delegate.hosts.hermes.threads import Thread
from delegate.hosts.hermes.watch import Watch
from delegate.types import ChildRun, ErrorDetail, RunStatus, Usage

OWN_TOOLSET = "delegate"
"""Where our own tools are, which no child gets."""
BLOCKED = frozenset(("delegate_task", "clarify", "memory", "send_message", "execute_code", "cronjob"))
"""What Hermes's own children don't get either: they don't delegate, ask, remember, send, or plan ahead."""
STOP_SECONDS = 5.0
"""How long a child that was told to stop is waited for."""
_PRICED = ("actual", "estimated", "included")

_log = logging.getLogger(__name__)


class HermesChildren:
    """Runs each child on an `AIAgent`."""

    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        """Run one child in a thread; when it has to end, interrupt it and wait for its end."""
        session = calling.get() or Session()
        child = _Child(job, session, asyncio.get_running_loop())
        ended = Thread(child.work, "delegate-hermes-child").ended
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            child.stop()
            if not (await asyncio.wait([ended], timeout=STOP_SECONDS))[0]:
                _log.warning("a child of Hermes's did not end within %g s of its interrupt", STOP_SECONDS)
            elif not ended.exception():
                job.recorder.output = _last_words(ended.result())
            child.book()
            raise
        child.book()
        return _end(job, ended.result())


def may_have(tool: str) -> bool:
    """Whether Hermes's tool of that name is for children."""
    return tool not in BLOCKED and toolset_of(tool) != OWN_TOOLSET


def _tools_for(job: Job, session: Session) -> frozenset[str]:
    """What the parent's model was offered, without what is not for children; where that isn't known, nothing."""
    tools = frozenset(tool for tool in session.tools or () if may_have(tool))
    return tools if job.task.tools is None else tools & frozenset(job.task.tools)


class _Child:
    """One agent, from its making to its end."""

    def __init__(self, job: Job, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._job = job
        self._session = session
        self._tools = _tools_for(job, session)
        self._watch = Watch(job, loop)
        self._lock = threading.Lock()
        self._stopped = False
        self._agent: Any = None

    def work(self) -> Mapping[str, Any]:
        """Make the agent and let it work, on the thread that calls. Gives what Hermes says of the run."""
        agent = self._made()
        task_id = agent.session_id  # what it leaves running under this name ends when it is closed
        sessions.add_child(task_id)
        set_place = borrow("tools.terminal_tool", "register_task_env_overrides")
        forget_place = borrow("tools.terminal_tool", "clear_task_env_overrides")
        try:
            with self._lock:
                self._agent = agent
                if self._stopped:
                    return {"interrupted": True}
            if set_place:
                set_place(task_id, {"cwd": str(self._job.workspace)})
            return agent.run_conversation(self._job.prompt, task_id=task_id)
        finally:
            if forget_place:
                forget_place(task_id)
            agent.close()

    def stop(self) -> None:
        """Interrupt it, from any thread: Hermes aborts the request or the tool that is running."""
        with self._lock:
            self._stopped = True
            if self._agent is not None:
                self._agent.interrupt("the delegated task was stopped")

    def book(self) -> None:
        """Put what the agent has used so far on the child's bill."""
        agent = self._agent
        if agent is None or not agent.session_api_calls:
            return
        usage = Usage(
            model_calls=agent.session_api_calls,
            input_tokens=agent.session_prompt_tokens,
            cached_tokens=agent.session_cache_read_tokens,
            cache_write_tokens=agent.session_cache_write_tokens,
            output_tokens=agent.session_completion_tokens,
            reasoning_tokens=agent.session_reasoning_tokens,
        )
        priced = agent.session_cost_status in _PRICED
        cost = float(agent.session_estimated_cost_usd) if priced else None
        self._job.record_usage(usage, cost, provenance="estimated", model=agent.model)

    def _made(self) -> Any:
        make = borrow("run_agent", "AIAgent")
        resolve = borrow("hermes_cli.runtime_provider", "resolve_runtime_provider")
        if make is None or resolve is None:
            raise DelegateError("this Hermes gives plugins no agents of its own: set children to own")
        model = self._job.task.model or self._session.model
        way = resolve(requested=self._session.provider or None, target_model=model or None)
        agent = make(
            **{name: way.get(name) for name in ("base_url", "api_key", "provider", "api_mode")},
            model=model or way.get("model") or "",
            max_iterations=self._job.max_steps,
            enabled_toolsets=sorted({toolset for tool in self._tools if (toolset := toolset_of(tool))}),
            quiet_mode=True,
            platform="subagent",
            skip_context_files=True,
            skip_memory=True,
            clarify_callback=None,
            tool_progress_callback=self._watch.progress,
            tool_complete_callback=self._watch.completed,
            parent_session_id=self._session.id or None,
        )
        # A toolset may hold more than the parent was offered of it.
        agent.tools = [tool for tool in agent.tools or () if tool["function"]["name"] in self._tools]
        agent.valid_tool_names = {tool["function"]["name"] for tool in agent.tools}
        return agent


def _end(job: Job, said: Mapping[str, Any]) -> ChildRun:
    """How the run ended. That there is some text says nothing: Hermes reports its own failures as text, too."""
    text, reason = str(said.get("final_response") or ""), str(said.get("turn_exit_reason") or "")
    status, code = _status(said, reason)
    if status == "completed":
        return job.recorder.finish("completed", output=text)
    message = str(said.get("error") or reason or text or "Hermes gave no reason")
    return job.recorder.finish(status, output=text, error=ErrorDetail(code=code, message=message))


def _last_words(said: Mapping[str, Any]) -> str:
    """What a child that was stopped had written last; its final response is Hermes's word on the interrupt."""
    texts = [one.get("content") for one in said.get("messages") or () if one.get("role") == "assistant"]
    own = [text for text in texts if isinstance(text, str) and text.strip() and text != said.get("final_response")]
    return own[-1] if own else ""


def _status(said: Mapping[str, Any], reason: str) -> tuple[RunStatus, str]:
    if said.get("interrupted"):
        return "cancelled", "interrupted"
    if reason.startswith("max_iterations") or reason == "budget_exhausted":
        return "max_steps", "max_steps"
    clean = not reason or reason.startswith("text_response(")
    if said.get("completed") and clean and not said.get("failed") and not said.get("partial"):
        return ("failed", "truncated") if "=length" in reason else ("completed", "")
    return "failed", "hermes_failed"
