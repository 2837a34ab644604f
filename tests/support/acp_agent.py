"""An ACP agent that does what its argument says, with the SDK's agent side: `acp_agent.py '[["say", "done"]]'`
or `acp_agent.py @FILE`.

The last message is what it said, and what came of each of its requests, one JSON value per line.
"""

import asyncio
import json
import os
import select
import sys
from pathlib import Path
from typing import Any, cast

import acp
from acp import schema


class Agent:
    def __init__(self, script: list[list[Any]]) -> None:
        self.script = script
        self.cancelled = asyncio.Event()
        self.cwd = ""
        self.able: Any = None

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> Any:
        self.able = client_capabilities
        if self.script[0][0] == "version":
            protocol_version = self.script[0][1]
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> Any:
        if self.script[0][0] == "logged_out":
            raise acp.RequestError.auth_required()
        self.cwd = cwd
        return acp.NewSessionResponse(session_id="s1")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> Any:
        for name, *arguments in self.script:
            if name == "end":
                usage = schema.Usage(total_tokens=30, input_tokens=20, output_tokens=10)
                return acp.PromptResponse(stop_reason=arguments[0], usage=usage)
            try:
                result = await getattr(self, f"do_{name}")(*arguments)
            except acp.RequestError as error:
                result = f"{error}" + (" (not found)" if error.code == -32002 else "")
            if result is not None:
                await self.say(json.dumps(result) + "\n")
        return acp.PromptResponse(stop_reason="cancelled" if self.cancelled.is_set() else "end_turn")

    async def say(self, text: str) -> None:
        await self.client.session_update("s1", acp.update_agent_message_text(text))

    def path(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.cwd}/{path}"

    async def do_say(self, text: str) -> None:
        await self.say(f"{text}\n")

    async def do_say_much(self, count: int) -> None:
        await self.say("x" * count)

    async def do_version(self, *_: Any) -> None: ...

    async def do_able(self) -> Any:
        return [self.able.fs.read_text_file, self.able.fs.write_text_file, self.able.terminal]

    async def do_where(self) -> Any:
        return [self.cwd, sorted(name for name in os.environ if "KEY" in name or "TOKEN" in name)]

    async def do_read(self, path: str, line: int | None = None, limit: int | None = None) -> Any:
        return (await self.client.read_text_file("s1", self.path(path), line=line, limit=limit)).content

    async def do_write(self, path: str, content: str) -> Any:
        await self.client.write_text_file(session_id="s1", path=self.path(path), content=content)
        return "written"

    async def do_run(self, command: str, *args: str, **options: Any) -> Any:
        terminal = (await self.client.create_terminal("s1", command, args=list(args), **options)).terminal_id
        ended = await self.client.wait_for_terminal_exit("s1", terminal)
        output = await self.client.terminal_output("s1", terminal)
        await self.client.release_terminal("s1", terminal)
        return [ended.exit_code, output.output]

    async def do_run_in(self, command: str, options: dict[str, Any]) -> Any:
        env = [schema.EnvVariable(name=name, value=value) for name, value in options.pop("env", {}).items()]
        if "cwd" in options:
            options["cwd"] = self.path(options["cwd"])
        return await self.do_run(command, env=env, **options)

    async def do_kill(self, command: str) -> Any:
        terminal = (await self.client.create_terminal("s1", command)).terminal_id
        before = await self.client.terminal_output("s1", terminal)
        await self.client.kill_terminal("s1", terminal)
        ended = await self.client.wait_for_terminal_exit("s1", terminal)
        return [before.exit_status is None, ended.exit_code, ended.signal]

    async def do_leave(self, command: str) -> None:
        await self.client.create_terminal("s1", command)

    async def do_terminals(self, count: int) -> Any:
        for _ in range(count):
            await self.client.create_terminal("s1", "sleep 600")

    async def do_unknown_terminal(self) -> Any:
        return (await self.client.terminal_output("s1", "terminal-99")).output

    async def do_ask(self, kind: Any, title: str, raw: Any = None, path: str | None = None) -> Any:
        options = [
            schema.PermissionOption(option_id="always", name="Always", kind="allow_always"),
            schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        places = [schema.ToolCallLocation(path=self.path(one)) for one in path.split()] if path else None
        call = schema.ToolCallUpdate(tool_call_id=title, title=title, kind=kind, raw_input=raw, locations=places)
        outcome = (await self.client.request_permission(session_id="s1", tool_call=call, options=options)).outcome
        return getattr(outcome, "option_id", outcome.outcome)

    async def do_claim(self, title: str, kind: Any, raw: Any) -> None:
        """Say that a tool of its own was called."""
        start = acp.start_tool_call("c1", title, kind=kind, status="in_progress", raw_input=raw)
        await self.client.session_update("s1", start)
        await self.client.session_update("s1", acp.update_tool_call("c1", status="completed"))

    async def do_own_write(self, path: str, content: str) -> None:
        await asyncio.to_thread(Path(self.path(path)).write_text, content)

    async def do_wait(self) -> None:
        await self.cancelled.wait()
        await self.do_own_write("cancelled", "")

    async def do_hang(self) -> None:
        await asyncio.Event().wait()

    async def do_die(self, code: int) -> None:
        sys.stderr.write("x" * 100_000 + "no api key\n")
        sys.stderr.flush()
        os._exit(code)

    async def do_send(self, line: str, times: int = 1, padding: int = 0) -> None:
        """Send what need not be a message, `~` filled with as much."""
        line = line.replace("~", "x" * padding)
        await asyncio.to_thread(write_all, f"{line}\n".encode() * times)


def write_all(data: bytes) -> None:
    while data:
        select.select([], [1], [])
        data = data[os.write(1, data[:4_096]) :]


if __name__ == "__main__":
    given = sys.argv[1]
    asyncio.run(
        acp.run_agent(cast("Any", Agent(json.loads(Path(given[1:]).read_text() if given[0] == "@" else given))))
    )
