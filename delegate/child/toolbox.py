"""Defines the built-in child's tools: files of its workspace, commands, web pages, and a tool for thinking."""

import asyncio
import io
import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from types import MethodType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from delegate._util import resources
from delegate._util.threads import run_in_thread, run_in_thread_if
from delegate.budget.nested import child_environment
from delegate.contract import think
from delegate.sandbox.commands.commands import Approve, Commands
from delegate.sandbox.filesystem import files, media, search
from delegate.sandbox.filesystem.files import Excerpt
from delegate.sandbox.tampering.git_files import shown_text
from delegate.sandbox.workspace.folder import Folder
from delegate.types import JsonObject
from delegate.types.errors import CallError, ToolError
from delegate.types.ports import Effect, Tool, ToolOutput, ToolSpec

MAX_READ_BYTES = 5_000_000
"""Size of one file; larger ones need `search_files` or `run_shell`."""
MAX_WRITE_BYTES = 5_000_000
LARGE_BYTES = 100_000
"""A longer file is written in a thread; for a shorter one, the thread would take longer than the disk."""
MAX_TEXT_CHARS = 30_000
"""Length of one output: about 7,500 tokens."""
MAX_STREAM_CHARS = 15_000
"""Length of a command's stdout and stderr, each."""
STREAM_START_CHARS = 3_000
"""How much of that is its beginning, where something is cut."""
_PIECE_CHARS = 65_536
MAX_LISTED = 1_000
MAX_MATCHES = 200


def toolbox(
    folder: Folder,
    commands: Commands,
    *,
    fetch_hosts: Sequence[str] = (),
    attachments: Set[str] = frozenset(),
    approve: Approve | None = None,
) -> tuple[Tool, ...]:
    """The built-in tools, working in `folder`. The definitions are built once per process and shared.

    `run_shell` is left out if the settings are known to refuse every command of a model: see `Commands.refusal`.
    `attachments` are the media types that the model reads, such as `image/png`: `read_file` returns such files as they
    are. `approve` asks a person about commands, where the settings say so.
    """
    definitions = toolbox_definitions(commands, can_ask=approve is not None)
    has_shell = _run_shell in definitions
    context = _Context(folder, commands, fetch_hosts, frozenset(attachments), has_shell, approve)
    tools: list[Tool] = []
    for definition in definitions:
        description, effects = definition.description, definition.effects
        if definition is _run_shell:
            description, effects = _shell_under(commands)
        # Smaller than a partial, and there are seven per child.
        call, parallel, read_only = MethodType(definition, context), definition.parallel, definition.read_only
        tools.append(Tool(definition.name, description, definition.parameters, call, parallel, read_only, effects))
    return (*tools, _think_tool())


def toolbox_specs() -> tuple[ToolSpec, ...]:
    return (
        *(ToolSpec(definition.name, definition.description, definition.parameters) for definition in _DEFINITIONS),
        _think_tool().spec,
    )


def toolbox_definitions(commands: Commands | None = None, *, can_ask: bool = False) -> "tuple[_Definition, ...]":
    """The built-in tools, without the tool for thinking. With `commands`, only those that a child will get.

    `can_ask`: whether a person can be asked about commands.
    """
    has_shell = commands is None or commands.refusal("model", can_ask=can_ask) is None
    return _DEFINITIONS if has_shell else tuple(each for each in _DEFINITIONS if each is not _run_shell)


@dataclass(frozen=True, slots=True)
class _Context:
    folder: Folder
    commands: Commands
    fetch_hosts: Sequence[str]
    attachments: frozenset[str]
    has_shell: bool
    approve: Approve | None = None


_FILES: frozenset[Effect] = frozenset({"files"})
_NETWORK: frozenset[Effect] = frozenset({"network"})
_COMMANDS: frozenset[Effect] = frozenset({"files", "commands"})


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


@dataclass(frozen=True, eq=False)
class _Definition:
    """A tool without a workspace. `run`, which it is written above, gets the context and the validated arguments."""

    name: str
    description: str
    arguments: type[_Arguments]
    run: Callable[[_Context, Any], Awaitable[str | ToolOutput]]
    parallel: bool = True
    read_only: bool = False
    effects: frozenset[Effect] = frozenset()
    acts: bool | None = None

    @cached_property
    def parameters(self) -> JsonObject:
        """The JSON Schema of the arguments, without titles, which only repeat the names."""
        schema = self.arguments.model_json_schema()
        properties = {name: {key: value for key, value in spec.items() if key != "title"}
                      for name, spec in schema["properties"].items()}  # fmt: skip
        required = schema.get("required", [])
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    async def __call__(self, context: _Context, values: Mapping[str, Any]) -> str | ToolOutput:
        # Models write null for arguments that they omit.
        present = {name: value for name, value in values.items() if value is not None}
        try:
            arguments = self.arguments.model_validate(present)
        except ValidationError as problem:
            from delegate.types.signatures import argument_error  # loaded only for mistakes

            raise ToolError(argument_error(self.name, self.arguments.model_fields, problem)) from problem
        return await self.run(context, arguments)


def _shell_under(commands: Commands) -> tuple[str, frozenset[Effect]]:
    """The description of `run_shell`, with what confines its commands, and what they may change."""
    is_open, where = commands.network == "open", ""
    if commands.confines():
        where = f" {_IN_SANDBOX if is_open else _WITHOUT_NETWORK}"
    elif commands.known_mechanism() == "process":
        is_open, where = True, f" {_WITHOUT_SANDBOX}"
    return f"{_run_shell.description}{where}", _COMMANDS | _NETWORK if is_open else _COMMANDS


class _ReadFile(_Arguments):
    path: str = Field(description="Path in the workspace.")
    offset: int = Field(default=1, ge=1, description="First line to read, counted from 1.")
    limit: int = Field(default=2000, ge=1, le=10_000, description="Number of lines to read.")


@partial(
    _Definition,
    "read_file",
    "Read a file in the workspace: text, or an image or PDF if you can read these.",
    _ReadFile,
    read_only=True,
)
async def _read_file(context: _Context, args: _ReadFile) -> str | ToolOutput:
    folder = context.folder

    def content() -> str | ToolOutput:
        real = folder.resolve(args.path)
        excerpt = files.read(folder.root, real, MAX_READ_BYTES)
        if kind := media.media_type(excerpt.data):
            advice = "; pdftotext in run_shell may extract its text" if "pdf" in kind and context.has_shell else ""
            whole = folder.read(args.path, media.max_bytes(kind))
            attachment, text = media.attachment(args.path, whole, kind, context.attachments, advice)
            return ToolOutput(text, attachments=(attachment,))
        return _excerpt(args, shown_text(folder.root, real, _text_of(excerpt, args.path)))

    return await run_in_thread_if(not folder.is_small, content)


def _excerpt(args: _ReadFile, content: str) -> str:
    count = content.count("\n") + (not content.endswith("\n") and content != "")
    if args.offset > max(count, 1):
        raise ToolError(f"{args.path} has {count} lines; offset {args.offset} is past its end")
    start = _start_of_line(content, args.offset)
    # One character more shows whether the first line is longer than what is shown of it.
    lines = io.StringIO(content[start : start + MAX_TEXT_CHARS + 1], newline="\n").readlines()[: args.limit]
    fitting = sum(size <= MAX_TEXT_CHARS for size in itertools.accumulate(map(len, lines)))
    lines = lines[: max(fitting, 1)]
    last = args.offset - 1 + len(lines)
    text = "".join(lines)
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + "\n[… the rest of this line is cut …]\n"
    if last < count:
        text += f"\n[lines {args.offset} to {last} of {count}; continue with offset={last + 1}]"
    return text


def _start_of_line(content: str, number: int) -> int:
    """Where the line begins. Counts in pieces: a list of all lines of a hostile file would hold the interpreter."""
    start, breaks = 0, number - 1
    while (count := content.count("\n", start, start + _PIECE_CHARS)) < breaks:
        start, breaks = start + _PIECE_CHARS, breaks - count
    for _ in range(breaks):
        start = content.index("\n", start) + 1
    return start


def whole_text(folder: Folder, path: str) -> str:
    """What a child may see of a text file, uncut. Raises ToolError. Blocks."""
    return shown_text(folder.root, folder.resolve(path), _text_of(folder.read(path, MAX_READ_BYTES), path))


def _text_of(excerpt: Excerpt, path: str) -> str:
    if excerpt.cut:
        raise ToolError(f"{path} has {excerpt.size:,} bytes; at most {MAX_READ_BYTES:,} can be read. Use search_files.")
    if not excerpt.is_text:
        raise ToolError(f"{path} is not a text file (UTF-8); it has {excerpt.size:,} bytes")
    return excerpt.text


class _WriteFile(_Arguments):
    path: str = Field(description="Path in the workspace; missing folders are created.")
    content: str = Field(description="The whole new content of the file.")


@partial(
    _Definition,
    "write_file",
    "Create or overwrite a file in the workspace.",
    _WriteFile,
    parallel=False,
    effects=_FILES,
)
async def _write_file(context: _Context, args: _WriteFile) -> str:
    data = _encoded(args.content)
    await run_in_thread_if(len(data) > LARGE_BYTES, partial(context.folder.write, args.path, data))
    return f"wrote {len(data):,} bytes to {args.path}"


class _EditFile(_Arguments):
    path: str = Field(description="Path in the workspace.")
    old_text: str = Field(min_length=1, description="Text that occurs exactly once in the file, copied exactly.")
    new_text: str = Field(description="Text that replaces it.")


@partial(_Definition, "edit_file", "Replace one passage of a text file.", _EditFile, parallel=False, effects=_FILES)
async def _edit_file(context: _Context, args: _EditFile) -> str:
    def edit() -> str:
        text = _text_of(context.folder.read(args.path, MAX_READ_BYTES), args.path)
        count = text.count(args.old_text)
        if count == 0:
            raise ToolError(f"old_text doesn't occur in {args.path}; read the file and copy the text exactly")
        if count > 1:
            raise ToolError(f"old_text occurs {count} times in {args.path}; include more of the text around it")
        if args.old_text == args.new_text:
            raise ToolError("old_text and new_text are the same; change new_text")
        line = text.count("\n", 0, text.index(args.old_text)) + 1
        context.folder.write(args.path, _encoded(text.replace(args.old_text, args.new_text)))
        return f"edited {args.path} at line {line}"

    return await run_in_thread(edit)


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as problem:
        raise ToolError(f"the text can't be written as UTF-8: {problem.reason}") from problem
    if len(data) > MAX_WRITE_BYTES:
        raise ToolError(f"the file would have {len(data):,} bytes; at most {MAX_WRITE_BYTES:,} can be written")
    return data


class _ListFiles(_Arguments):
    path: str = Field(default=".", description="Folder in the workspace.")
    glob: str = Field(
        default="**", description="Files to list, for example *.py (at any depth), src/*.md or src/**/test_*."
    )


@partial(_Definition, "list_files", "List files in the workspace, with sizes.", _ListFiles, read_only=True)
async def _list_files(context: _Context, args: _ListFiles) -> str:
    root = _folder_path(context.folder, args.path)

    def listing() -> list[str]:
        entries = itertools.islice(search.find_files(root, args.glob), MAX_LISTED + 1)
        return sorted(f"{files.shown(path)} ({size:,} bytes)" for path, size in entries)

    lines = await asyncio.to_thread(listing)
    return _bounded(lines, MAX_LISTED, "files", "use a narrower glob") or "no files"


class _SearchFiles(_Arguments):
    pattern: str = Field(min_length=1, description="Regular expression in Python syntax, matched line by line.")
    path: str = Field(default=".", description="Folder in the workspace.")
    glob: str = Field(default="**", description="Files to search, for example *.py or src/**/*.md.")


@partial(_Definition, "search_files", "Find lines in the workspace's text files.", _SearchFiles, read_only=True)
async def _search_files(context: _Context, args: _SearchFiles) -> str:
    root = _folder_path(context.folder, args.path)

    def matches() -> list[str]:
        return list(itertools.islice(search.find_lines(root, args.pattern, args.glob), MAX_MATCHES + 1))

    lines = await asyncio.to_thread(matches)
    return _bounded(lines, MAX_MATCHES, "matches", "use a narrower pattern or glob") or "no matches"


def _folder_path(folder: Folder, path: str) -> Path:
    real = folder.resolve(path)
    if not os.path.isdir(real) and real != folder.root:  # a fresh workspace doesn't exist before the first write
        raise ToolError(f"{path} is not a folder; it {'is a file' if os.path.lexists(real) else 'does not exist'}")
    return real


def _bounded(lines: list[str], limit: int, what: str, hint: str) -> str:
    fitting: list[str] = []
    chars_left = MAX_TEXT_CHARS
    for line in lines[:limit]:
        chars_left -= len(line) + 1
        if chars_left < 0:
            break
        fitting.append(line)
    if len(fitting) < len(lines):
        fitting.append(f"[… more {what} than the {len(fitting)} shown; {hint} …]")
    return "\n".join(fitting)


class _RunShell(_Arguments):
    command: str = Field(min_length=1, description="Command line for bash, run in the workspace.")
    timeout_seconds: float = Field(default=120, gt=0, le=600, description="The command is killed after this time.")


@partial(
    _Definition,
    "run_shell",
    "Run a command in a new shell and wait until it ends: `cd` and variables don't last, what it started ends with it, "
    "and it has no stdin or terminal.",
    _RunShell,
    parallel=False,
    effects=_COMMANDS,
)
async def _run_shell(context: _Context, args: _RunShell) -> ToolOutput:
    try:
        cwd = context.folder.make()
    except OSError as problem:
        raise ToolError(f"the workspace can't be created: {problem.strerror}") from problem
    result = await context.commands.run(
        args.command,
        cwd=cwd,
        timeout_seconds=args.timeout_seconds,
        author="model",
        has_repository=context.folder.repository is not None,
        approve=context.approve,
        env=child_environment(),
    )
    status = "timeout" if result.timed_out else "ok" if result.exit_code == 0 else "error"
    end = f"killed after {args.timeout_seconds:g} s" if result.timed_out else f"exit code {result.exit_code}"
    streams = [("stdout", result.stdout), ("stderr", result.stderr)]
    parts = [f"[{name}]\n{_ends(text)}" for name, text in streams if text]
    return ToolOutput("\n".join([end, *(parts or ["(no output)"])]), status, result.sandbox)


def _ends(text: str) -> str:
    """The text without its middle if it is too long: a compiler's first error is at the start, a summary at the end."""
    if (surplus := len(text) - MAX_STREAM_CHARS) <= 0:
        return text
    return f"{text[:STREAM_START_CHARS]}\n[… {surplus:,} characters are cut …]\n{text[STREAM_START_CHARS + surplus :]}"


class _FetchUrl(_Arguments):
    url: str = Field(description="http or https URL of a text or HTML page. Private addresses may be refused.")


@partial(
    _Definition, "fetch_url", "Fetch a web page as text, with its links as [text](url).", _FetchUrl, effects=_NETWORK
)
async def _fetch_url(context: _Context, args: _FetchUrl) -> str:
    from delegate.child.fetch import fetch_url  # an HTTP client, which most children never need

    text = await fetch_url(args.url, context.fetch_hosts)
    surplus = len(text) - MAX_TEXT_CHARS
    return text if surplus <= 0 else f"{text[:MAX_TEXT_CHARS]}\n[… {surplus:,} more characters are cut …]"


async def _think(arguments: Mapping[str, Any]) -> str:
    try:
        return think.render_thought(think.parse_think(arguments))
    except CallError as problem:
        raise ToolError(f"{problem.message}: {problem.hint}" if problem.hint else problem.message) from problem


_IN_SANDBOX = (
    "It runs in a sandbox with network and can write only in the workspace and in $TMPDIR, which each "
    "call has for itself."
)
_WITHOUT_NETWORK = (
    "It runs in a sandbox without network, so nothing can be downloaded or installed, and can write only in the "
    "workspace and in $TMPDIR, which each call has for itself."
)
_WITHOUT_SANDBOX = "It runs without a sandbox on someone's machine: change nothing outside the workspace."

_DEFINITIONS = (_read_file, _write_file, _edit_file, _list_files, _search_files, _run_shell, _fetch_url)


@cache
def _think_tool() -> Tool:
    shipped = resources.schema("think")
    return Tool(shipped["name"], shipped["description"], shipped["parameters"], _think, effects=frozenset())
