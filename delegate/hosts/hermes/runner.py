"""Runs children as agents of Hermes, with the parent's model and tools and Hermes's own prompts.

Each child has a thread of its own, since Hermes's loop blocks. Its workspace is the working directory of Hermes's
terminal and file tools, but the child isn't confined to it.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from delegate.child.job import Job, failed
from delegate.hosts.hermes.compat import hermes_attribute, toolset_of
from delegate.hosts.hermes.sessions import Session, calling_session, sessions
from delegate.hosts.hermes.threads import WorkThread
from delegate.types import ChildRun, ErrorDetail, JsonObject, Usage
from delegate.types.errors import ConfigError, DelegateError, ToolError
from delegate.types.ports import Tool, ToolOutput

OWN_TOOLSET = "delegate"
"""The toolset of delegate's own tools, which children don't get."""
BLOCKED = frozenset(("delegate_task", "clarify", "memory", "send_message", "execute_code", "cronjob"))
"""Tools that Hermes's own subagents don't get either."""
STOP_SECONDS = 5.0
"""How long to wait for an interrupted child to end."""

_log = logging.getLogger(__name__)


class HermesChildren:
    """Runs each child as an `AIAgent` of Hermes's."""

    needs_model = False
    records_tools = True

    async def run(self, job: Job) -> ChildRun:
        """Run one child in a thread. On cancellation, interrupt it and wait until it has ended."""
        session = calling_session.get() or Session()
        child = _Child(job, session)
        result = WorkThread(child.work, "delegate-hermes-child").result
        try:
            await asyncio.wait([result])
        except asyncio.CancelledError:
            child.stop()
            if not (await asyncio.wait([result], timeout=STOP_SECONDS))[0]:
                _log.warning("an agent of Hermes did not end within %g s of its interrupt", STOP_SECONDS)
            elif not result.exception():
                job.recorder.report = _last_text(result.result())
            child.record_usage()
            raise
        child.record_usage()
        return _finish(job, result.result())


def may_have(tool: str) -> bool:
    """Whether children may have Hermes's tool of that name."""
    return tool not in BLOCKED and toolset_of(tool) != OWN_TOOLSET


class _Child:
    """One child's agent."""

    def __init__(self, job: Job, session: Session) -> None:
        self._job = job
        self._session = session
        tools = frozenset(tool for tool in session.tools or () if may_have(tool))
        self._tools = tools if job.task.tools is None else tools & frozenset(job.task.tools)
        """The parent's tools that the child may have; empty if the parent's tools aren't known."""
        self._loop = asyncio.get_running_loop()
        self._ended: JsonObject = {}
        """How the last tool call ended."""
        self._lock = threading.Lock()
        self._stopped = False
        self._agent: Any = None

    def work(self) -> Mapping[str, Any]:
        """Create and run the agent on the calling thread, and return Hermes's result of the run."""
        agent = self._create_agent()
        task_id = agent.session_id  # closing the agent ends the processes that it started under this id
        sessions.add_child(task_id)
        register_overrides = hermes_attribute("tools.terminal_tool", "register_task_env_overrides")
        clear_overrides = hermes_attribute("tools.terminal_tool", "clear_task_env_overrides")
        try:
            with self._lock:
                self._agent = agent
                if self._stopped:
                    return {"interrupted": True}
            if register_overrides:
                register_overrides(task_id, {"cwd": str(self._job.working_folder)})
            return agent.run_conversation(self._job.prompt, task_id=task_id)
        finally:
            if clear_overrides:
                clear_overrides(task_id)
            agent.close()

    def stop(self) -> None:
        """Interrupt the agent, from any thread: Hermes aborts the running request or tool."""
        with self._lock:
            self._stopped = True
            if self._agent is not None:
                self._agent.interrupt("the delegated task was stopped")

    def record_usage(self) -> None:
        """Record the tokens and cost that the agent has used so far."""
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
        cost_known = agent.session_cost_status in ("actual", "estimated", "included")
        cost = float(agent.session_estimated_cost_usd) if cost_known else None
        self._job.record_usage(usage, cost, provenance="estimated", model=agent.model)

    def _on_progress(self, event: str, *_: Any, **details: Any) -> None:
        """Remember how a tool call ended. Hermes reports it right before `_on_tool`, on the same thread."""
        if event == "tool.completed":
            self._ended = details

    def _on_tool(self, _call_id: str, tool: str, args: Mapping[str, Any] | None, result: Any) -> None:
        """Write a receipt, on the event loop. Hermes doesn't report calls that it refused, and that did nothing."""
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        output = ToolOutput(text, "error" if self._ended.get("is_error") else "ok")
        record = partial(self._job.record_tool, tool, dict(args or {}), output)
        with suppress(RuntimeError):  # the loop is closed: the child was abandoned
            self._loop.call_soon_threadsafe(partial(record, seconds=float(self._ended.get("duration") or 0)))

    def _create_agent(self) -> Any:
        create = hermes_attribute("run_agent", "AIAgent")
        resolve = hermes_attribute("hermes_cli.runtime_provider", "resolve_runtime_provider")
        if create is None or resolve is None:
            raise DelegateError(
                "this version of Hermes doesn't let plugins create agents: set `children: own` in config.yaml"
            )
        model = self._job.task.model or self._session.model
        provider = resolve(requested=self._session.provider or None, target_model=model or None)
        agent = create(
            **{name: provider.get(name) for name in ("base_url", "api_key", "provider", "api_mode")},
            model=model or provider.get("model") or "",
            max_iterations=self._job.max_steps,
            enabled_toolsets=sorted({toolset for tool in self._tools if (toolset := toolset_of(tool))}),
            quiet_mode=True,
            platform="subagent",
            skip_context_files=True,
            skip_memory=True,
            clarify_callback=None,
            tool_progress_callback=self._on_progress,
            tool_complete_callback=self._on_tool,
            parent_session_id=self._session.id or None,
        )
        # A toolset may have tools that the parent doesn't have.
        agent.tools = [tool for tool in agent.tools or () if tool["function"]["name"] in self._tools]
        agent.valid_tool_names = {tool["function"]["name"] for tool in agent.tools}
        return agent


def _finish(job: Job, result: Mapping[str, Any]) -> ChildRun:
    """Finish the run. A text alone doesn't mean success: Hermes reports its own failures as text, too."""
    text, reason = str(result.get("final_response") or ""), str(result.get("turn_exit_reason") or "")
    message = str(result.get("error") or reason or text or "Hermes gave no reason")
    clean = not reason or reason.startswith("text_response(")
    if result.get("interrupted"):
        error = ErrorDetail(code="interrupted", message=message)
        return job.recorder.finish("cancelled", report=text, error=error)
    if reason.startswith("max_iterations") or reason == "budget_exhausted":
        return failed(job, "max_steps", message, report=text)
    if not result.get("completed") or not clean or result.get("failed") or result.get("partial"):
        return failed(job, "hermes_failed", message, report=text)
    if "=length" in reason:
        return failed(job, "truncated", message, report=text)
    return job.recorder.finish("completed", report=text)


def _last_text(result: Mapping[str, Any]) -> str:
    """The last text of an interrupted child. The final response is Hermes's own message about the interrupt."""
    texts = [one.get("content") for one in result.get("messages") or () if one.get("role") == "assistant"]
    own = [text for text in texts if isinstance(text, str) and text.strip() and text != result.get("final_response")]
    return own[-1] if own else ""


# ------------------------------------------------------------------- tools for children in delegate's own loop


def child_tools(tools: Iterable[str]) -> list[Tool]:
    """Convert Hermes's tools of these names for `Delegator(tools=…)`. They use the parent's terminal and directory.

    Raises:
        ConfigError: Hermes has no tool of that name, or children can't have it.
    """
    return [_tool(name) for name in tools]


def _tool(name: str) -> Tool:
    registry = hermes_attribute("tools.registry", "registry")
    schema = registry.get_schema(name) if registry else None
    if schema is None:
        raise ConfigError(f"child_tools: Hermes has no tool {name!r}; run `hermes tools` for a list")
    if not may_have(name):
        raise ConfigError(f"child_tools: {name} is not for children; remove it from the list")

    def dispatch(arguments: Mapping[str, Any], session: Session) -> str:
        """Call it as Hermes's own loop does, with its hooks and approvals. What needs a person's approval is denied."""
        handle = hermes_attribute("model_tools", "handle_function_call")
        if handle is None:
            raise ToolError("this version of Hermes doesn't let plugins call its tools: continue without them")
        return str(handle(name, dict(arguments), task_id=session.task_id or None, session_id=session.id or None))

    async def call(arguments: Mapping[str, Any]) -> str:
        thread = WorkThread(partial(dispatch, arguments, calling_session.get() or Session()), "delegate-hermes-tool")
        try:
            return await thread.result
        except asyncio.CancelledError:
            thread.interrupt()  # as Hermes interrupts its tools, without waiting for it
            raise

    return Tool(name, schema.get("description", ""), schema.get("parameters", {}), call, parallel=False)
