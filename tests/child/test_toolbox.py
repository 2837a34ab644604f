import asyncio
import json
import os
import re
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from delegate.child.toolbox import toolbox
from delegate.sandbox.commands.commands import Commands
from delegate.sandbox.filesystem import search
from delegate.sandbox.workspace.folder import Folder
from delegate.sandbox.workspace.write_locks import WriteLocks
from delegate.types import Workspace
from delegate.types.errors import ToolDenied, ToolError
from delegate.types.ports import Tool, ToolOutput
from tests.support.deadlines import in_time
from tests.support.pace import best_of, pace

NAMES = [
    "read_file", "write_file", "edit_file", "list_files", "search_files", "run_shell", "fetch_url", "think",
]  # fmt: skip


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    made = await Folder.open(None, home=tmp_path)
    made.make()
    return made


@pytest.fixture
def tools(folder: Folder) -> Mapping[str, Tool]:
    return {tool.name: tool for tool in toolbox(folder, Commands(sandbox="off", commands="allow"))}


async def text(tool: Tool, **arguments: Any) -> str:
    answer = await tool.call(arguments)
    return answer if isinstance(answer, str) else answer.text


async def shell(tools: Mapping[str, Tool], command: str, **arguments: Any) -> ToolOutput:
    answer = await tools["run_shell"].call({"command": command, **arguments})
    assert isinstance(answer, ToolOutput)
    return answer


# -------------------------------------------------------------------------------------------------- definitions


def test_the_toolbox_holds_the_eight_tools(tools: Mapping[str, Tool]) -> None:
    assert list(tools) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_a_closed_json_schema_without_noise(tools: Mapping[str, Tool], name: str) -> None:
    parameters = tools[name].parameters
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert (parameters["type"], parameters["additionalProperties"]) == ("object", False)
    assert '"title"' not in json.dumps(parameters)
    assert '"anyOf"' not in json.dumps(parameters)


def test_think_is_the_shipped_definition(tools: Mapping[str, Tool]) -> None:
    path = Path(__file__).parents[2] / "schemas" / "think.json"
    if not path.exists():
        pytest.skip("no checkout around the tests")
    shipped = json.loads(path.read_text())
    think = tools["think"]
    assert {"name": think.name, "description": think.description, "parameters": think.parameters} == shipped


@pytest.mark.slow
def test_a_childs_toolbox_is_cheap(folder: Folder) -> None:
    commands, rounds = Commands(), 200
    best = best_of(5, lambda: [toolbox(folder, commands) for _ in range(rounds)])
    assert best / rounds < 100e-6 * pace()  # 11 µs on a quiet machine


# ---------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", {}, ["read_file", "needs", "`path`"]),
        ("read_file", {"path": "a", "lines": 3}, ["`lines`", "path, offset, limit"]),
        ("read_file", {"path": "a", "offset": 0}, ["`offset`", "greater than or equal to 1"]),
        ("write_file", {"path": "a", "content": {"x": 1}}, ["`content`", "string"]),
        ("run_shell", {"command": "true", "timeout_seconds": 10_000}, ["`timeout_seconds`", "600"]),
    ],
)
async def test_a_wrong_argument_is_named_in_one_line(
    tools: Mapping[str, Tool], name: str, arguments: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ToolError) as wrong:
        await tools[name].call(arguments)
    assert [word for word in words if word not in str(wrong.value)] == []
    assert "\n" not in str(wrong.value)


async def test_null_and_numbers_as_text_are_accepted_as_arguments(tools: Mapping[str, Tool], folder: Folder) -> None:
    (folder.root / "a").write_text("1\n2\n3\n")
    assert await text(tools["read_file"], path="a", offset="3", limit=None) == "3\n"


@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file", "list_files", "search_files"])
async def test_every_file_tool_stays_inside_the_workspace(tools: Mapping[str, Tool], tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("canary")
    rest = {"write_file": {"content": "x"}, "edit_file": {"old_text": "canary", "new_text": "x"}}
    rest |= {"search_files": {"pattern": "canary"}}
    for path in ("../secret", str(tmp_path / "secret"), "../"):
        with pytest.raises(ToolDenied):
            await tools[name].call({"path": path, **rest.get(name, {})})
    assert (tmp_path / "secret").read_text() == "canary"


# -------------------------------------------------------------------------------------------------------- files


async def test_a_written_file_reads_back_as_it_was(tools: Mapping[str, Tool], folder: Folder) -> None:
    content = "one\r\ntwo\u2028still two\nüñ\n\nlast without newline"
    assert await text(tools["write_file"], path="deep/er/a.txt", content=content) == "wrote 47 bytes to deep/er/a.txt"
    assert (folder.root / "deep" / "er" / "a.txt").read_bytes() == content.encode()
    assert await text(tools["read_file"], path="deep/er/a.txt") == content


async def test_reading_a_part_says_where_to_go_on(tools: Mapping[str, Tool], folder: Folder) -> None:
    (folder.root / "a").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    part = await text(tools["read_file"], path="a", offset=4, limit=2)
    assert part == "line 4\nline 5\n\n[lines 4 to 5 of 10; continue with offset=6]"
    with pytest.raises(ToolError, match="has 10 lines"):
        await text(tools["read_file"], path="a", offset=11)


async def test_a_long_file_is_cut_at_a_line_and_can_be_read_to_its_end(
    tools: Mapping[str, Tool], folder: Folder
) -> None:
    whole = "".join(f"{n:099}\n" for n in range(1_000))
    (folder.root / "a").write_text(whole)
    read, offset = "", 1
    while len(read) < len(whole):
        part = await text(tools["read_file"], path="a", offset=offset)
        assert len(part) < 31_000
        read += part.partition("\n\n[lines")[0].rstrip("\n") + "\n"
        offset = 1 + read.count("\n")
    assert read == whole


async def test_one_endless_line_is_cut_and_says_so(tools: Mapping[str, Tool], folder: Folder) -> None:
    (folder.root / "a").write_text("x" * 100_000)
    answer = await text(tools["read_file"], path="a")
    assert len(answer) < 31_000
    assert "cut" in answer


@pytest.mark.parametrize(("data", "word"), [(b"a\0b", "not a text file"), (b"\xff\xfea", "not a text file")])
async def test_a_file_that_is_not_text_says_so(
    tools: Mapping[str, Tool], folder: Folder, data: bytes, word: str
) -> None:
    (folder.root / "a").write_bytes(data)
    with pytest.raises(ToolError, match=word):
        await text(tools["read_file"], path="a")


async def test_a_named_pipe_is_refused_without_blocking(tools: Mapping[str, Tool], folder: Folder) -> None:
    os.mkfifo(folder.root / "pipe")
    async with asyncio.timeout(20):
        for name, rest in (("read_file", {}), ("write_file", {"content": "x"})):
            with pytest.raises(ToolError):
                await text(tools[name], path="pipe", **rest)


async def test_a_file_that_is_not_there_is_named(tools: Mapping[str, Tool]) -> None:
    with pytest.raises(ToolError, match=r"gone\.txt"):
        await text(tools["read_file"], path="gone.txt")


async def test_a_folder_is_no_file(tools: Mapping[str, Tool], folder: Folder) -> None:
    (folder.root / "sub").mkdir()
    for name, rest in (("read_file", {}), ("write_file", {"content": "x"})):
        with pytest.raises(ToolError):
            await text(tools[name], path="sub", **rest)


async def test_an_edit_replaces_the_one_passage_and_nothing_else(tools: Mapping[str, Tool], folder: Folder) -> None:
    (folder.root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert await text(tools["edit_file"], path="a", old_text="two", new_text="2") == "edited a at line 2"
    assert (folder.root / "a").read_bytes() == b"one\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("old", "new", "word"), [("four", "4", "doesn't occur"), ("o", "0", "occurs 2 times"), ("one", "one", "the same")]
)
async def test_an_edit_that_is_not_clear_changes_nothing(
    tools: Mapping[str, Tool], folder: Folder, old: str, new: str, word: str
) -> None:
    (folder.root / "a").write_text("one two")
    with pytest.raises(ToolError, match=word):
        await text(tools["edit_file"], path="a", old_text=old, new_text=new)
    assert (folder.root / "a").read_text() == "one two"


async def test_a_file_that_a_sibling_writes_is_denied_with_the_siblings_name(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    locks, shared = WriteLocks(), Workspace(mode="shared", path=tmp_path / "project")
    one, two = [
        {tool.name: tool for tool in toolbox(folder, Commands(commands="deny"))}
        for n in range(2)
        for folder in [await Folder.open(shared, home=tmp_path, write_locks=locks, who=f"task {n} of this run")]
    ]
    await text(one["write_file"], path="report.md", content="mine")
    for name, rest in (("write_file", {"content": "x"}), ("edit_file", {"old_text": "mine", "new_text": "x"})):
        with pytest.raises(ToolDenied, match=r"report\.md is written by task 0 of this run"):
            await text(two[name], path="report.md", **rest)
    assert await text(two["read_file"], path="report.md") == "mine"


@pytest.mark.parametrize("name", ["write_file", "edit_file"])
async def test_what_git_runs_cannot_be_written_by_a_tool(tools: Mapping[str, Tool], folder: Folder, name: str) -> None:
    (folder.root / ".git").mkdir()
    (folder.root / ".git" / "config").write_text("[core]\n")
    rest = {"write_file": {"content": "x"}, "edit_file": {"old_text": "core", "new_text": "x"}}[name]
    with pytest.raises(ToolDenied, match="git"):
        await text(tools[name], path=".git/config", **rest)
    assert (folder.root / ".git" / "config").read_text() == "[core]\n"


async def test_a_search_stays_inside_although_a_link_leads_out(
    tools: Mapping[str, Tool], folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("canary")
    (folder.root / "link").symlink_to(tmp_path / "outside")
    assert "canary" not in await text(tools["search_files"], pattern="canary")
    assert "secret" not in await text(tools["list_files"])


# ---------------------------------------------------------------------------------------------- list and search


@pytest.fixture
def tree(folder: Folder) -> None:
    for path in ("a.py", "b.md", "src/c.py", "src/deep/test_d.py", ".git/config", "node_modules/m/index.py"):
        (folder.root / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / path).write_text(f"# {path}\nimport os\n")


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        (None, ["a.py", "b.md", "src/c.py", "src/deep/test_d.py"]),
        ("*.py", ["a.py", "src/c.py", "src/deep/test_d.py"]),
        ("./*.py", ["a.py"]),
        ("src/*.py", ["src/c.py"]),
        ("src/**/*.py", ["src/c.py", "src/deep/test_d.py"]),
        ("**/test_?.py", ["src/deep/test_d.py"]),
        ("[ab].py", []),
    ],
)
async def test_listing_understands_globs(
    tree: None, tools: Mapping[str, Tool], glob: str | None, found: list[str]
) -> None:
    lines = (await text(tools["list_files"], glob=glob)).splitlines()
    assert [line.partition(" (")[0] for line in lines] == (found or ["no files"])


async def test_a_long_listing_is_cut_and_says_so(tools: Mapping[str, Tool], folder: Folder) -> None:
    for n in range(1_100):
        (folder.root / f"{n:04}").touch()
    answer = await text(tools["list_files"])
    assert "more files than the" in answer
    assert len(answer) < 31_000


async def test_a_search_names_file_and_line(tree: None, tools: Mapping[str, Tool]) -> None:
    answer = await text(tools["search_files"], pattern=r"^import\s+\w+$", glob="*.py")
    assert answer.splitlines() == [f"{path}:2: import os" for path in ("a.py", "src/c.py", "src/deep/test_d.py")]
    assert await text(tools["search_files"], pattern="nowhere") == "no matches"


async def test_a_search_shows_a_bounded_part(tools: Mapping[str, Tool], folder: Folder) -> None:
    (folder.root / "a").write_text(("hit " + "x" * 1_000 + "\n") * 1_000)
    (folder.root / "b").write_bytes(b"hit\0")
    answer = await text(tools["search_files"], pattern="hit")
    assert len(answer) < 31_000
    assert "more matches than the" in answer
    assert "b:1" not in answer


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"pattern": "("}, "not a valid regular expression"),
        ({"pattern": "(" * 900 + ")" * 900}, "characters"),
        ({"pattern": "(?:(?:a{1000}){1000}){9}"}, "expand to more than"),
        ({"pattern": "(a|aa)+$"}, "over 0.3 s"),
        ({"pattern": "x", "glob": "*" + "a*" * 60 + "b"}, "over 0.3 s|no matches"),
    ],
    ids=["not one", "too long", "huge", "backtracking", "backtracking glob"],
)
async def test_a_hostile_pattern_ends_as_an_error(
    tools: Mapping[str, Tool], folder: Folder, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], word: str
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.3)
    (folder.root / ("a" * 200)).write_text("a" * 60 + "!")
    started = time.monotonic()
    with pytest.raises(ToolError, match=word):
        raise ToolError(await text(tools["search_files"], **arguments))
    assert time.monotonic() - started < 40


async def test_a_file_name_that_is_not_utf8_does_not_break_an_answer(tools: Mapping[str, Tool], folder: Folder) -> None:
    with open(os.fsencode(folder.root) + b"/\xff.txt", "w") as file:
        file.write("hit")
    for answer in (await text(tools["list_files"]), await text(tools["search_files"], pattern="hit")):
        assert answer.startswith("\\xff.txt")
        assert answer.encode()


# ----------------------------------------------------------------------------------------------------- commands


async def test_ok_means_that_the_command_succeeded(tools: Mapping[str, Tool]) -> None:
    assert await shell(tools, "echo hello") == ToolOutput("exit code 0\n[stdout]\nhello\n", "ok", "process")
    assert await shell(tools, "true") == ToolOutput("exit code 0\n(no output)", "ok", "process")


async def test_a_failed_command_is_an_error_that_shows_everything(tools: Mapping[str, Tool]) -> None:
    failed = await shell(tools, "echo out; echo err >&2; exit 3")
    assert failed == ToolOutput("exit code 3\n[stdout]\nout\n\n[stderr]\nerr\n", "error", "process")


async def test_a_command_past_its_timeout_keeps_its_output_so_far(tools: Mapping[str, Tool]) -> None:
    late = await in_time(
        lambda seconds: shell(tools, "echo begun; sleep 60", timeout_seconds=seconds), lambda late: "begun" in late.text
    )
    assert late.status == "timeout"
    assert re.fullmatch(r"killed after \d\S* s\n\[stdout\]\nbegun\n", late.text)


async def test_a_long_output_keeps_its_beginning_and_its_end(tools: Mapping[str, Tool]) -> None:
    answer = await shell(tools, "seq 1 9000; seq 1 9000 >&2")
    assert answer.text.count("characters are cut") == 2
    assert answer.text.startswith("exit code 0\n[stdout]\n1\n2\n")
    assert answer.text.endswith("9000\n")
    assert len(answer.text) < 31_000


@pytest.mark.parametrize("policy", [{"commands": "deny"}, {"sandbox": "off", "commands": "sandboxed"}])
def test_a_shell_that_would_refuse_every_command_is_not_offered(folder: Folder, policy: Any) -> None:
    assert [tool.name for tool in toolbox(folder, Commands(**policy))] == [
        name for name in NAMES if name != "run_shell"
    ]


async def test_a_sandbox_that_fails_its_probe_takes_the_shell_away(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/editor/editor")  # which can't start Landlock
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    commands = Commands()
    unknown = {tool.name: tool for tool in toolbox(folder, commands)}
    with pytest.raises(ToolDenied, match="commands"):
        await shell(unknown, "touch ran")
    assert list(folder.root.iterdir()) == []
    assert "run_shell" not in {tool.name for tool in toolbox(folder, commands)}


async def test_the_shells_description_says_that_nothing_confines_it(tools: Mapping[str, Tool]) -> None:
    assert "without a sandbox" in tools["run_shell"].description


@pytest.mark.parametrize(("network", "said"), [("off", "without network, so nothing"), ("open", "with network and")])
async def test_the_shells_description_says_whether_there_is_a_network(folder: Folder, network: Any, said: str) -> None:
    commands = Commands(sandbox="require", network=network)
    await commands.probe()  # as for the first child of a process, before a command was run
    if not commands.confines():
        pytest.skip("no sandbox works here")
    described = {tool.name: tool.description for tool in toolbox(folder, commands)}["run_shell"]
    assert f"It runs in a sandbox {said}" in described


# ------------------------------------------------------------------------------------------------ images and PDFs

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\0\0\0"
JPEG = b"\xff\xd8\xff\xe0\0\x04JF\xff\xff\xc0\0\x11\x08" + struct.pack(">HH", 480, 640) + b"\x03"
GIF = b"GIF89a" + struct.pack("<HH", 640, 480)
WEBP = {
    "VP8 ": b"\0" * 10 + struct.pack("<HH", 640, 480),
    "VP8L": b"\0" * 4 + b"\x2f" + struct.pack("<I", 639 | 479 << 14),
    "VP8X": b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
}
PICTURES = {
    "image/png": [PNG],
    "image/jpeg": [JPEG],
    "image/gif": [GIF],
    "image/webp": [b"RIFF\0\0\0\0WEBP" + kind.encode() + rest for kind, rest in WEBP.items()],
}
ALL_MEDIA = frozenset({*PICTURES, "application/pdf"})
PDF = b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n"


def reader(folder: Folder, attachments: frozenset[str] = ALL_MEDIA) -> Tool:
    return toolbox(folder, Commands(sandbox="off", commands="allow"), attachments=attachments)[0]


@pytest.mark.parametrize(("kind", "data"), [(kind, data) for kind, files in PICTURES.items() for data in files])
async def test_a_picture_is_recognized_by_its_content(folder: Folder, kind: str, data: bytes) -> None:
    (folder.root / "notes.txt").write_bytes(data)
    answer = await reader(folder).call({"path": "notes.txt"})
    assert isinstance(answer, ToolOutput)
    assert answer.text == f"image notes.txt, 640x480 pixels, {len(data):,} bytes"
    assert [(one.media_type, one.data, one.name) for one in answer.attachments] == [(kind, data, "notes.txt")]


async def test_a_pdf_larger_than_a_text_may_be_is_attached_whole(folder: Folder) -> None:
    data = PDF + b"x" * 6_000_000
    (folder.root / "a.pdf").write_bytes(data)
    answer = await reader(folder).call({"path": "a.pdf"})
    assert isinstance(answer, ToolOutput)
    assert answer.text == f"PDF a.pdf, {len(data):,} bytes"
    assert [(one.media_type, one.data) for one in answer.attachments] == [("application/pdf", data)]


async def test_a_text_named_like_a_picture_is_read_as_text(folder: Folder) -> None:
    (folder.root / "a.png").write_text("no picture")
    assert await reader(folder).call({"path": "a.png"}) == "no picture"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (PNG, ["a PNG image", "this model can't read"]),
        (PDF, ["a PDF", "this model can't read", "pdftotext in run_shell"]),
    ],
)
async def test_a_model_without_eyes_is_told_what_the_file_is(folder: Folder, data: bytes, words: list[str]) -> None:
    (folder.root / "a").write_bytes(data)
    with pytest.raises(ToolError) as refused:
        await reader(folder, frozenset()).call({"path": "a"})
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (PNG[:20], "damaged"),
        (b"\xff\xd8\xff\xe0\0\x00" + b"\0" * 30, "damaged"),
        (b"\xff\xd8" + b"\xff" * 1_000_000, "damaged"),
        (b"GIF89a\0\0\0\0", "damaged"),
        (b"RIFF\0\0\0\0WEBPVP8X", "damaged"),
        (PNG[:16] + struct.pack(">II", 9_000, 10), "9,000x10 pixels; at most 8,000"),
        (PNG + b"\0" * 4_000_000, "at most 3,750,000 can be read"),
        (PDF + b"trailer\n<< /Encrypt 12 0 R >>", "encrypted"),
        (PDF + b"\0" * 10_000_000, "at most 10,000,000 can be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_file_that_a_provider_would_refuse_is_not_attached(folder: Folder, data: bytes, word: str) -> None:
    (folder.root / "a").write_bytes(data)
    with pytest.raises(ToolError, match=word):
        await reader(folder).call({"path": "a"})
