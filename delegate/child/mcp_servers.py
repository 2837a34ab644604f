"""The tools of MCP servers, for the children of a run. Loaded only where servers are declared.

A server is started or reached when a call of its run begins whose children may use it, shared by all children of the
run, and closed with the run. One that ends meanwhile is started again, once.
"""

import asyncio
import base64
import binascii
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from delegate._util.fencing import clean, one_line
from delegate._util.redaction import logger, redactor
from delegate._util.threads import run_in_thread
from delegate.budget.runs import Run
from delegate.contract.matchers import tools_in
from delegate.contract.problems import unknown_name
from delegate.policy.mcp_servers import McpServer
from delegate.sandbox.filesystem import media
from delegate.types import JsonObject, ProbeCriterion, Task
from delegate.types.errors import CallError, ConfigError, ToolError
from delegate.types.ports import SEARCH_WEB, Attachment, Tool, ToolOutput

if TYPE_CHECKING:
    from delegate.child.mcp_connection import McpConnection

LINGER_SECONDS = 30.0
"""How long servers wait for the next call of a run that may have several."""
MAX_DESCRIPTION_CHARS = 2_000
MAX_SCHEMA_CHARS = 20_000
MAX_TOOLS = 128
"""Per server. Each costs tokens in every request of a child."""
_CALLABLE, _ARGUMENT = re.compile(r"[A-Za-z0-9_-]{1,64}"), re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The names of tools, and of their arguments, that every provider accepts."""
_REFUSED_AT_TOP = frozenset({"oneOf", "anyOf", "allOf", "$schema"})
"""What some provider refuses at the top of a tool's schema. The server checks its arguments itself."""

_log = logger(__name__)


class McpServers:
    """The servers that the settings declare, for each run of its own."""

    def __init__(
        self, declared: Mapping[str, McpServer], other_tools: Iterable[str], *, web_search: str = "off"
    ) -> None:
        """Raises ConfigError if one of the `other_tools` could be taken for a tool of a server.

        The tool that `web_search` names, as the setting does, is called `search_web`.
        """
        for name in other_tools:
            if name == SEARCH_WEB and "." in web_search:
                raise ConfigError(f"web_search: a tool is called {name!r} already; give it another name")
            if (server := name.replace(".", "__").partition("__")[0]) != name and server in declared:
                message = f"mcp_servers.{server}: the tool {name!r} could be taken for one of this server's"
                raise ConfigError(f"{message}; give either another name")
        self._declared = declared
        self._web_search = web_search
        self._of_runs: dict[tuple[str, asyncio.AbstractEventLoop], _RunServers] = {}
        redactor.add_variables({name for server in declared.values() for name in server.variables})

    @asynccontextmanager
    async def of_run(
        self, run: Run, tasks: Sequence[Task], most: Collection[str] | None
    ) -> AsyncGenerator[tuple[Tool, ...]]:
        """The tools of the servers that the tasks may use, which run at least as long as the block.

        `most` are the names of the tools that the tasks may have at most, if there is such a limit.

        Raises:
            CallError: A server can't be started or reached, or a task names a tool that its server doesn't have.
        """
        # The servers with a tool that one of the tasks may have, or that a criterion calls.
        named = [None if task.tools is None else [name for _, name in _named(task)] for task in tasks]
        limits = [[names for names in (own, most) if names is not None] for own in named]
        names = [
            server
            for server in self._declared
            if any(all(any(self._is_of(server, name) for name in names) for names in each) for each in limits)
        ]
        if not names:
            yield ()
            return
        key = (run.id, asyncio.get_running_loop())
        if (servers := self._of_runs.get(key)) is None:
            close = partial(self._of_runs.pop, key, None)
            linger = 0 if run.is_one_call else LINGER_SECONDS
            each = {name: _Server(name, server, self._web_search) for name, server in self._declared.items()}
            servers = self._of_runs[key] = _RunServers(each, linger, close)
        servers.enter()
        try:
            tools = await servers.tools(names)
            _refuse_unknown(tasks, tools, names)
            yield tools
        finally:
            await servers.leave()

    def names(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Those of the names that can be a tool of a server, which isn't known before the server runs."""
        return tuple(name for name in wanted if any(self._is_of(server, name) for server in self._declared))

    def probe_tools(self, task: Task) -> dict[str, bool]:
        """Whether the tools that the task names or the settings list are read-only, by the settings."""
        only = {name: server.read_only for name, server in self._declared.items()}
        listed = {f"{name}.{tool}": True for name, tools in only.items() if tools != "all" for tool in tools}
        names = self.names([name for _, name in _named(task)])
        return {name: only.get(name.partition(".")[0]) == "all" for name in names} | listed

    async def aclose(self) -> None:
        """Close the servers of all runs. Those on other event loops end with these."""
        here = asyncio.get_running_loop()
        await asyncio.gather(*(servers.aclose() for (_, loop), servers in tuple(self._of_runs.items()) if loop is here))
        self._of_runs.clear()

    def _is_of(self, server: str, name: str) -> bool:
        name = self._web_search if name == SEARCH_WEB else name
        return name.startswith(f"{server}.")


def for_model(tools: Sequence[Tool], readable: Collection[str]) -> tuple[Tool, ...]:
    """The tools for a model that reads images and PDFs of the types `readable`; of others it gets a line of text."""

    async def call(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutput:
        output = cast("ToolOutput", await tool.call(arguments))
        shown = tuple(file for file in output.attachments if file.media_type in readable)
        kinds = [file.media_type for file in output.attachments if file not in shown]
        lines = [output.text, *(f"[{kind}, which this model can't read]" for kind in kinds)]
        return replace(output, text="\n".join(lines), attachments=shown)

    return tuple(replace(tool, call=partial(call, tool)) for tool in tools)


def _named(task: Task) -> list[tuple[str, str]]:
    """The tools that the task gives to its child, and those that its criteria name, by field."""
    named = [(f"tools[{n}]", name) for n, name in enumerate(task.tools or ())]
    for n, criterion in enumerate(task.acceptance_criteria):
        called = (criterion.tool,) if isinstance(criterion, ProbeCriterion) else tools_in(criterion)
        named += [(f"acceptance_criteria[{n}]", name) for name in called]
    return named


def _refuse_unknown(tasks: Sequence[Task], tools: Sequence[Tool], servers: Collection[str]) -> None:
    known = [tool.name for tool in tools]
    for position, task in enumerate(tasks):
        for field, name in _named(task):
            if name.partition(".")[0] in servers and name not in known:
                field = f"tasks[{position}].{field}" if len(tasks) > 1 else field
                raise unknown_name("unknown_tool", name, known, field)


class _RunServers:
    def __init__(self, servers: Mapping[str, "_Server"], linger: float, on_closed: Callable[[], object]) -> None:
        self._servers, self._linger, self._on_closed = servers, linger, on_closed
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self._users += 1
        if self._timer is not None:
            self._timer.cancel()

    async def leave(self) -> None:
        """Close the servers once nobody uses them: at once, or if no other call comes soon."""
        self._users -= 1
        if self._users == 0 and self._linger:
            self._timer = asyncio.get_running_loop().call_later(self._linger, self._close_soon)
        elif self._users == 0:
            await self.aclose()

    async def tools(self, names: Sequence[str]) -> tuple[Tool, ...]:
        listed = await asyncio.gather(*(self._servers[name].tools() for name in names), return_exceptions=True)
        for result in listed:
            if isinstance(result, BaseException):
                raise result
        return tuple(tool for tools in cast("list[list[Tool]]", listed) for tool in tools)

    async def aclose(self) -> None:
        self._on_closed()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    def _close_soon(self) -> None:
        self._closing = asyncio.get_running_loop().create_task(self.aclose())


class _Server:
    """One server of a run, which is started again once if it ends."""

    def __init__(self, name: str, declared: McpServer, web_search: str) -> None:
        self.name = name
        self._declared = declared
        self._search = web_search.removeprefix(f"{name}.") if web_search.startswith(f"{name}.") else ""
        """The tool that is called `search_web`."""
        self._connection: McpConnection | None = None
        self._was_restarted = False
        self._tools: list[Tool] | None = None
        self._starting = asyncio.Lock()

    async def tools(self) -> list[Tool]:
        if self._tools is None:
            try:
                connection = await self._connected()
                async with asyncio.timeout(self._declared.timeout_seconds):
                    definitions = [definition async for definition in connection.tools()]
            except Exception as error:
                raise self._unusable(error) from error
            self._tools = self._allowed(definitions)
        return self._tools

    def _allowed(self, definitions: Sequence[Mapping[str, Any]]) -> list[Tool]:
        wanted, tools = self._declared.tools, dict[str, Tool]()
        names = [str(definition.get("name", "")) for definition in definitions]
        if missing := [name for name in wanted or () if name not in names]:
            raise self._unusable(f"it has no tool {missing[0]!r}, which `tools` names")
        for name, definition in zip(names, definitions, strict=True):
            if wanted is None or name in wanted:
                tool = self._tool(name, definition)
                if tool is not None and tool.spec.name not in tools and len(tools) < MAX_TOOLS:
                    tools[tool.spec.name] = tool
                elif wanted is not None:
                    raise self._unusable(f"a model couldn't call its tool {name[:80]!r}")
                else:
                    _log.warning("MCP server %s: its tool %.80r can't be offered to a model", self.name, name)
        if self._search and SEARCH_WEB not in tools:
            raise self._unusable(f"it offers no tool {self._search!r}, which `web_search` names")
        return list(tools.values())

    def _tool(self, name: str, definition: Mapping[str, Any]) -> Tool | None:
        """A tool of the server for a child; None if a model couldn't call it."""
        read_only = self._declared.read_only == "all" or name in self._declared.read_only
        description = str(definition.get("description") or definition.get("title") or name)
        if (parameters := _parameters(definition.get("inputSchema"))) is None:
            return None
        tool = Tool(
            SEARCH_WEB if name == self._search else f"{self.name}.{name}",
            _cleaned(description[: 2 * MAX_DESCRIPTION_CHARS])[:MAX_DESCRIPTION_CHARS],
            parameters,
            partial(self._call, name),
            parallel=read_only,
            read_only=read_only,
            # What isn't confirmed may change anything. What is confirmed is also there for a judge's look.
            effects=frozenset(("network",)) if read_only else None,
        )
        return tool if name and _CALLABLE.fullmatch(tool.spec.name) else None

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        try:
            result = await (await self._connected()).call(tool, arguments)
        except TimeoutError:
            seconds = self._declared.timeout_seconds
            return ToolOutput(f"no answer and no progress for {seconds:g} s; it may still have been done", "timeout")
        output = await run_in_thread(partial(_output_of, result))
        searched = f"searched by {self.name}.{tool}\n\n" if tool == self._search else ""
        return replace(output, text=f"{searched}{output.text}")

    async def _connected(self) -> "McpConnection":
        from delegate.child.mcp_connection import McpConnection

        async with self._starting:
            if self._connection is not None and self._connection.ended:
                if self._was_restarted:
                    raise ToolError(f"the server {self.name} ended twice and isn't started again in this run")
                self._was_restarted = True
                _log.warning("MCP server %s ended, and is started again", self.name)
                await self._connection.aclose()
            if self._connection is None or self._connection.ended:
                connection = McpConnection(self.name, self._declared, os.environ)
                await connection.opened()
                self._connection = connection
            return self._connection

    def _unusable(self, why: object) -> CallError:
        if isinstance(why, TimeoutError):
            why = f"it took longer than {self._declared.timeout_seconds:g} s to start"
        elif isinstance(why, KeyError):
            why = f"the variable {why} isn't set"
        elif isinstance(why, ImportError):
            why = f"{why}; run `pip install 'delegate-task[mcp]'`"
        hint = f"correct or remove [mcp_servers.{self.name}] in the settings, or name `tools` without it in each task"
        if self._declared.command is not None:
            hint = f"{hint}; run its command yourself to see what it prints"
        message = f"the MCP server {self.name} can't be used: {one_line(str(why), 300)}"
        return CallError("mcp_server", message, hint=hint)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()


def _parameters(schema: object) -> JsonObject | None:
    """The schema of a tool's arguments; None if a provider would refuse it, and with it every request of a child."""
    try:
        if not isinstance(schema, dict) or len(json.dumps(schema)) > MAX_SCHEMA_CHARS:
            return None
        cleaned: JsonObject = _cleaned(cast("JsonObject", schema))
        Draft202012Validator.check_schema(cleaned)
    except (SchemaError, RecursionError):
        return None
    names = cleaned.get("properties", {})
    if cleaned.get("type", "object") != "object" or not all(map(_ARGUMENT.fullmatch, names)):
        return None
    kept = {key: value for key, value in cleaned.items() if key not in _REFUSED_AT_TOP}
    return {**kept, "type": "object", "properties": names}


def _cleaned(value: Any) -> Any:
    """The value without characters that a person wouldn't see, in all of its texts."""
    if isinstance(value, str):
        return clean(value).text
    if isinstance(value, list):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in cast("JsonObject", value).items()}
    return value


def _output_of(result: Mapping[str, Any]) -> ToolOutput:
    texts: list[str] = []
    attachments: list[Attachment] = []
    room = media.MAX_REQUEST_BYTES
    for part in result.get("content", ()):
        try:
            file = _attachment(part)
            if file is None:
                texts.append(_text_of(part))
            elif (room := room - len(file.data)) < 0:
                raise ToolError(f"{file.name}: more images and PDFs than fit into a request")
            else:
                attachments.append(file)
        except ToolError as error:
            texts.append(f"[{error}]")
    structured = result.get("structuredContent")
    if structured is not None and not _repeats(texts, structured):
        texts.append(json.dumps(structured, ensure_ascii=False))
    return ToolOutput("\n".join(texts), "error" if result.get("isError") else "ok", attachments=tuple(attachments))


def _repeats(texts: list[str], structured: JsonObject | list[Any] | str | float) -> bool:
    """Whether the texts say the same, as servers repeat it for clients that read no structured content.

    SDKs make a result that isn't an object one with a single field.
    """
    if isinstance(structured, dict) and list(structured.values()) in (["\n".join(texts)], [texts]):
        return True
    for text in texts:
        with suppress(ValueError):
            if json.loads(text) == structured:
                return True
    return False


def _attachment(part: Mapping[str, Any]) -> Attachment | None:
    """An image or a PDF; None for everything else. Raises ToolError if providers would refuse it."""
    source = part.get("resource", part) if part.get("type") == "resource" else part
    encoded = source.get("data") or source.get("blob")
    if not isinstance(encoded, str):
        return None
    try:
        kind = media.media_type(base64.b64decode(encoded[:64], validate=True))
        if kind is None:
            return None
        name = f"the result ({kind})"
        if len(encoded) * 3 // 4 > media.max_bytes(kind):
            raise ToolError(f"{name} has more than {media.max_bytes(kind):,} bytes, so it isn't shown")
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
    media.describe(kind, data, name)
    return Attachment(kind, data)


def _text_of(part: Mapping[str, Any]) -> str:
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "resource":
            resource = part.get("resource", {})
            return str(resource.get("text") or f"[{resource.get('mimeType') or 'resource'}: {resource.get('uri')}]")
        case "resource_link":
            return f"[{part.get('name') or 'resource'}]({part.get('uri')})"
        case kind:
            return f"[{kind}: {part.get('mimeType') or 'of a kind that can not be shown'}]"
