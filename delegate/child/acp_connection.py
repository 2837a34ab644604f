"""The client's side of the Agent Client Protocol, for one child. Loaded only where an agent runs.

The SDK has the protocol and its types. What it would log or keep without a limit is caught before: an agent may send
anything.
"""

import asyncio
import errno
import io
import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from typing import IO, Any, cast

import acp
from acp import RequestError, schema
from pydantic import ValidationError

from delegate._util.encoding import json_bytes
from delegate._util.fencing import one_line
from delegate._util.threads import run_in_thread
from delegate.child.cli_output import MAX_COUNT
from delegate.child.command import AgentEnded, AgentFault
from delegate.child.job import Job, call_tool, failed
from delegate.child.tool_calls import ToolCalls
from delegate.child.toolbox import whole_text
from delegate.records.recorder import MAX_REPORT_CHARS
from delegate.types import ChildRun, JsonObject, Usage
from delegate.types.codes import ChildCode
from delegate.types.errors import ToolError, WorkspaceTooLarge
from delegate.types.ports import Effect, Tool, ToolCall, ToolOutput

START_SECONDS = 120.0
"""How long an agent may take to begin: some are downloaded when they are started."""
CANCEL_SECONDS = 2.0
"""How long it may take to end its turn when it is asked to stop."""
AUTH_REQUIRED, FAILED, NOT_FOUND = -32000, -32001, -32002
"""Codes of errors: the protocol's, and the second one of what an agent may not do, or what failed."""
MAX_LINE_BYTES = 16_000_000
MAX_BYTES = 1_000_000_000
"""Of all messages together."""
MAX_NOISE = 1_000
"""Lines that are no messages, such as what a library logs."""
MAX_REQUESTS = 10_000
MAX_OPEN = 64
"""Requests that are answered at a time."""
MAX_TERMINALS = 16
"""Terminals that aren't released."""
MAX_REPORTED = 1_000
"""Calls of its own tools that are kept, without arguments that are longer than `_REPORTED_BYTES`."""
_REPORTED_BYTES = 20_000
_SHELL_SECONDS = 600
_NO_FILE = os.strerror(errno.ENOENT)
_EXIT_CODE = re.compile(r"exit code (\d+)\n")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FILES: frozenset[Effect] = frozenset({"files"})
_COMMANDS: frozenset[Effect] = frozenset({"files", "commands", "network"})
_KINDS: Mapping[str, tuple[str, frozenset[Effect] | None]] = {
    "edit": ("write_file", _FILES),
    "delete": ("delete_file", _FILES),
    "move": ("move_file", _FILES),
    "execute": ("run_shell", _COMMANDS),
    "fetch": ("fetch_url", frozenset({"network"})),
    "read": ("read_file", frozenset()),
    "search": ("search_files", frozenset()),
    "think": ("think", frozenset()),
}
"""What the policy is asked about, by what an agent says that it is going to do."""
_ENDS: Mapping[str, tuple[ChildCode, str]] = {
    "max_tokens": ("truncated", "the agent's model was cut off"),
    "max_turn_requests": ("max_steps", "the agent made as many model calls as it may"),
    "refusal": ("refused", "the agent refused to go on"),
    "cancelled": ("aborted", "the agent cancelled its own turn"),
}


@dataclass(slots=True)
class _Reported:
    kind: str = "other"
    title: str = ""
    paths: Sequence[str] = ()
    arguments: JsonObject = field(default_factory=dict[str, Any])


class AcpSession:
    """One agent's session: answers its requests, and keeps what it says. The SDK calls the methods with its names."""

    def __init__(self, job: Job) -> None:
        self._job = job
        offered = {tool.name: tool for tool in job.tools if tool.name in ("read_file", "write_file", "run_shell")}
        if "read_file" in offered:
            offered["read_file"] = Tool("read_file", "", {}, partial(_read, job), read_only=True)
        self._offered = frozenset(offered)
        self._tools = ToolCalls(replace(job, tools=tuple(offered.values())))
        self._writing = asyncio.Lock()
        self._terminals: dict[str, tuple[asyncio.Task[ToolOutput], int | None]] = {}
        self._numbers = count(1)
        self._id = ""
        self._message: list[str] = []
        self._message_chars = 0
        self._message_id: str | None = None
        self._is_over = False
        self._reported: dict[str, _Reported] = {}
        self._cost_usd: float | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has an exception if the agent must not go on."""

    async def run(self, from_agent: IO[bytes], to_agent: IO[bytes]) -> ChildRun:
        """Lead the agent through one turn. Raises AgentFault, AgentEnded and WorkspaceTooLarge."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MAX_LINE_BYTES)
        reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), from_agent)
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: flow, to_agent)
        writer = asyncio.StreamWriter(writing, flow, None, loop)
        agent = acp.connect_to_agent(cast("Any", self), _Lines(reader, writer, self))
        turn = asyncio.create_task(self._turn(agent))
        try:
            await asyncio.wait([turn, self.stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._close(agent, turn)
            reading.close()
            if not writing.is_closing():
                writing.abort()
        if self.stopped.done():
            self.stopped.result()
        return self._finish(turn.result())

    async def _turn(self, agent: Any) -> schema.PromptResponse:
        job = self._job
        files = schema.FileSystemCapabilities(
            read_text_file="read_file" in self._offered, write_text_file="write_file" in self._offered
        )
        able = schema.ClientCapabilities(fs=files, terminal="run_shell" in self._offered)
        me = schema.Implementation(name="delegate", version=version("delegate-task"))
        try:
            async with asyncio.timeout(START_SECONDS):
                hello = await agent.initialize(
                    protocol_version=acp.PROTOCOL_VERSION, client_capabilities=able, client_info=me
                )
                if hello.protocol_version != acp.PROTOCOL_VERSION:
                    message = f"speaks version {hello.protocol_version} of ACP, and not {acp.PROTOCOL_VERSION}"
                    raise AgentFault("not_started", message)
                self._id = (await agent.new_session(cwd=str(job.working_folder), mcp_servers=[])).session_id
            return await agent.prompt(prompt=[acp.text_block(job.prompt)], session_id=self._id)
        except TimeoutError:
            raise AgentFault("not_started", f"didn't begin a session within {START_SECONDS:g} s") from None
        except RequestError as error:
            said = one_line(f"{error} {json_bytes(error.data, fallback=str).decode() if error.data else ''}", 1_000)
            login = " (not logged in)" if error.code == AUTH_REQUIRED else ""
            raise AgentFault("reported_failure", f"reports: {said}{login}") from None
        except ValidationError as error:
            raise AgentFault("unreadable_output", f"broke the protocol: {one_line(str(error), 500)}") from None
        except OSError:
            raise AgentEnded from None

    def _finish(self, answer: schema.PromptResponse) -> ChildRun:
        usage, cost = answer.usage, self._cost_usd
        if usage is not None and usage.total_tokens < MAX_COUNT:
            given = max(usage.input_tokens, usage.total_tokens - usage.output_tokens - (usage.thought_tokens or 0))
            tokens = Usage(input_tokens=given, output_tokens=max(usage.output_tokens, usage.total_tokens - given))
        else:
            tokens = Usage()
        calls = [{"tool": call.title, "args": call.arguments} for call in self._reported.values()]
        if calls or cost is not None or tokens.total_tokens:
            self._job.record_usage(tokens, cost, provenance="estimated", text=self.report, calls=calls)
        if (problem := _ENDS.get(answer.stop_reason)) is None:
            return self._job.recorder.finish("completed", report=self.report)
        return failed(self._job, *problem, report=self.report)

    async def _close(self, agent: Any, turn: "asyncio.Task[Any]") -> None:
        try:
            if not turn.done() and not self.stopped.done() and self._id:
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CANCEL_SECONDS):
                        await agent.cancel(session_id=self._id)
                        await asyncio.wait([turn])
        finally:
            self._job.recorder.report = self.report or self._job.recorder.report
            running = [turn, *(task for task, _ in self._terminals.values())]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            if self.stopped.done():
                self.stopped.exception()
            await agent.close()

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None
    ) -> schema.ReadTextFileResponse:
        lines = {name: n for name, n in (("offset", line), ("limit", limit)) if n is not None}
        output = await self._call("read_file", {"path": self._inside(path), **lines})
        return schema.ReadTextFileResponse(content=output.text)

    async def write_text_file(self, session_id: str, path: str, content: str) -> schema.WriteTextFileResponse:
        async with self._writing:
            await self._call("write_file", {"path": self._inside(path), "content": content})
        return schema.WriteTextFileResponse()

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: Sequence[str] | None = None,
        env: Sequence[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> schema.CreateTerminalResponse:
        if len(self._terminals) >= MAX_TERMINALS:
            raise RequestError(FAILED, f"{MAX_TERMINALS} terminals are open; release one")
        line = shlex.join([command, *args]) if args else command
        try:
            folder = await run_in_thread(partial(self._job.folder.resolve, cwd or str(self._job.working_folder)))
        except ToolError as problem:
            raise RequestError(FAILED, str(problem)) from None
        for one in env or ():
            if not _NAME.fullmatch(one.name):
                raise RequestError.invalid_params({"env": one.name})
            line = f"export {one.name}={shlex.quote(one.value)}\n{line}"
        if folder != self._job.workspace:
            line = f"cd {shlex.quote(str(folder.relative_to(self._job.workspace)))} || exit\n{line}"
        call = self._call("run_shell", {"command": line, "timeout_seconds": _SHELL_SECONDS}, may_fail=True)
        id = f"terminal-{next(self._numbers)}"
        self._terminals[id] = asyncio.create_task(call), output_byte_limit
        return schema.CreateTerminalResponse(terminal_id=id)

    async def terminal_output(self, session_id: str, terminal_id: str) -> schema.TerminalOutputResponse:
        task, limit = self._terminal(terminal_id)
        if not task.done():
            return schema.TerminalOutputResponse(output="", truncated=False)
        text, status = _ended(task)
        data = text.encode("utf-8", "replace")
        kept = data if limit is None else data[max(0, len(data) - limit) :]
        return schema.TerminalOutputResponse(
            output=kept.decode(errors="ignore"), truncated=len(kept) < len(data), exit_status=status
        )

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> schema.WaitForTerminalExitResponse:
        task, _ = self._terminal(terminal_id)
        await asyncio.wait([task])
        _, status = _ended(task)
        return schema.WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(self, session_id: str, terminal_id: str) -> schema.KillTerminalResponse:
        task, _ = self._terminal(terminal_id)
        task.cancel()
        await asyncio.wait([task])
        return schema.KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str) -> schema.ReleaseTerminalResponse:
        await self.kill_terminal(session_id, terminal_id)
        self._terminals.pop(terminal_id, None)
        return schema.ReleaseTerminalResponse()

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: Sequence[schema.PermissionOption]
    ) -> schema.RequestPermissionResponse:
        once = next((one for one in options if one.kind == "allow_once"), None)  # the next call is asked about too
        no = next((one for one in options if one.kind.startswith("reject")), None)
        option = once if once is not None and await self._is_permitted(tool_call) else no
        if option is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        return schema.RequestPermissionResponse(outcome=chosen)

    async def _is_permitted(self, call: schema.ToolCallUpdate) -> bool:
        """Whether the policy allows a call of a tool of the agent's own. A refusal is the runtime's, so on record."""
        known = self._told_of(call)
        name, effects = _KINDS.get(known.kind, (known.kind, None))
        arguments: JsonObject = {**known.arguments, "title": known.title}
        if name == "run_shell":
            command: object = arguments.get("command", known.title)
            if isinstance(command, list):
                command = shlex.join(map(str, cast("list[object]", command)))
            arguments["command"] = str(command)

        async def permitted(given: Mapping[str, Any]) -> str:
            if known.paths:
                await run_in_thread(partial(self._job.folder.resolve, given["path"]))
            return ""

        tool = self._job.guarded(Tool(name, "", {}, permitted, effects=effects))
        for path in known.paths or [""]:  # a rule must apply to none of them
            asked = {**arguments, "path": self._inside(path)} if path else arguments
            output = await call_tool(tool, asked)
            if output.status != "ok":
                self._job.record_tool(name, asked, ToolOutput(output.text, "denied"))
                return False
        return True

    async def _call(self, tool: str, arguments: JsonObject, *, may_fail: bool = False) -> ToolOutput:
        """Call a tool of the job, which writes a receipt. Raises RequestError if it fails, unless it `may_fail`."""
        output = await self._tools.call(ToolCall(f"acp-{next(self._numbers)}", tool, arguments))
        try:
            if tool != "read_file":
                await self._job.folder.check_size(soon=False)
        except WorkspaceTooLarge as problem:
            self.stop(problem)
        if output.status != "ok" and not may_fail:
            raise RequestError(NOT_FOUND if output.text.endswith(_NO_FILE) else FAILED, output.text)
        return output

    def _terminal(self, id: str) -> "tuple[asyncio.Task[ToolOutput], int | None]":
        if id not in self._terminals:
            raise RequestError.resource_not_found(id)
        return self._terminals[id]

    def _inside(self, path: str) -> str:
        """The path as criteria and policies name it: relative to the workspace, if it is in it."""
        return path.removeprefix(f"{self._job.workspace}/")

    @property
    def report(self) -> str:
        return "".join(self._message).strip()

    def updated(self, params: object) -> None:
        try:
            update = schema.SessionNotification.model_validate(params).update
        except ValidationError:
            return  # of a later version
        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text), message_id=id) if text:
                if self._is_over or id != self._message_id:
                    self._message, self._message_chars, self._is_over, self._message_id = [], 0, False, id
                if self._message_chars <= MAX_REPORT_CHARS:
                    self._message.append(text)
                    self._message_chars += len(text)
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self._is_over = True
                self._told_of(update)
            case schema.UsageUpdate(cost=schema.Cost(amount=amount, currency="USD")) if math.isfinite(amount):
                self._cost_usd = min(max(0.0, amount), float(MAX_COUNT))
            case _:
                return

    def _told_of(self, call: "schema.ToolCall | schema.ToolCallUpdate") -> "_Reported":
        id = call.tool_call_id[:200]
        known = self._reported.get(id, _Reported())
        if len(self._reported) < MAX_REPORTED:
            self._reported[id] = known
        known.kind = call.kind or known.kind
        known.title = one_line(call.title or known.title, 200)
        if call.locations is not None:
            known.paths = [location.path for location in call.locations[:MAX_OPEN]]
        raw: Any = call.raw_input
        if isinstance(raw, dict) and len(json_bytes(raw, fallback=str)) <= _REPORTED_BYTES:
            known.arguments = cast("JsonObject", raw)
        return known

    def stop(self, problem: Exception) -> None:
        if not self.stopped.done():
            self.stopped.set_exception(problem)


class _Lines:
    """The SDK's transport: one message per line, from an agent that may send anything.

    What the agent says is taken here, in the order in which it comes. The SDK gets requests and answers.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: AcpSession) -> None:
        self._reader, self._writer, self._session = reader, writer, session
        self._open = asyncio.Semaphore(MAX_OPEN)
        self._requests = self._noise = self._bytes = 0

    async def send(self, message: dict[str, Any]) -> None:
        is_answer = "method" not in message
        try:
            self._writer.write(json_bytes(message, fallback=str) + b"\n")
            await self._writer.drain()
        except OSError:
            if not is_answer:  # otherwise nobody waits for it any more
                raise
        finally:
            if is_answer:
                self._open.release()

    async def receive(self) -> dict[str, Any] | None:
        try:
            return await self._next()
        except (OSError, asyncio.IncompleteReadError):
            return None
        except asyncio.LimitOverrunError:
            self._session.stop(AgentFault("unreadable_output", f"sent a line of over {MAX_LINE_BYTES:,} bytes"))
        except AgentFault as fault:
            self._session.stop(fault)
        return None

    async def _next(self) -> dict[str, Any]:
        while True:
            line = await self._reader.readuntil(b"\n")
            await asyncio.sleep(0)  # what is there already is read without a pause
            self._bytes += len(line)
            message = _message(line)
            self._noise += message is None
            if self._bytes > MAX_BYTES or self._noise > MAX_NOISE:
                limits = f"{MAX_BYTES:,} bytes, or than {MAX_NOISE:,} lines that are no messages"
                raise AgentFault("unreadable_output", f"sent more than {limits}")
            if message is None:
                continue
            if "method" not in message:
                return message
            if "id" in message:
                self._requests += 1
                if self._requests > MAX_REQUESTS:
                    raise AgentFault("too_many_tool_calls", f"sent more than {MAX_REQUESTS:,} requests")
                await self._open.acquire()
                return message
            if message["method"] == "session/update":
                self._session.updated(message.get("params"))

    async def close(self) -> None:
        """The pipes are closed by who opened them."""


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    found = cast("dict[str, Any]", message)
    has_id = isinstance(found.get("id"), (int, str)) or "id" not in found
    is_call = isinstance(found.get("method"), str)
    is_answer = "method" not in found and "id" in found and isinstance(found.get("error", {}), dict)
    if not has_id or not (is_call or is_answer):
        return None
    if isinstance(params := found.get("params"), dict):
        cast("dict[str, Any]", params).pop("_meta", None)  # the SDK lets its fields take the place of others
    return found


async def _read(job: Job, arguments: Mapping[str, Any]) -> str:
    """The lines of a file that an agent asks for, as they are: it may write them back."""
    text = await run_in_thread(partial(whole_text, job.folder, arguments["path"]))
    offset, limit = arguments.get("offset"), arguments.get("limit")
    if offset is None and limit is None:
        return text
    lines, start = io.StringIO(text, newline="\n").readlines(), max(0, (offset or 1) - 1)
    return "".join(lines[start : None if limit is None else start + limit])


def _ended(task: "asyncio.Task[ToolOutput]") -> tuple[str, schema.TerminalExitStatus]:
    """What a terminal's command wrote, and its exit code, or the signal that ended it. 126: it didn't run."""
    if task.cancelled():
        return "killed", schema.TerminalExitStatus(signal="SIGKILL")
    text = task.result().text if (problem := task.exception()) is None else str(problem)
    if problem is None and task.result().status == "timeout":
        return text, schema.TerminalExitStatus(signal="SIGKILL")
    if (found := _EXIT_CODE.match(f"{text}\n")) is None:
        return text, schema.TerminalExitStatus(exit_code=126)
    return text[found.end() :], schema.TerminalExitStatus(exit_code=int(found[1]))
