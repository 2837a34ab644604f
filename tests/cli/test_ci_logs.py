"""The log of a CI system: a child, a judge and file names that try to command the system by what is printed."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from delegate.cli.ci.logs import LogStream, inert, inert_json, inert_markup
from tests.cli.command import delegate, openai_at
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.samples import MORE_CASES

COMMANDS = (
    "add-mask", "add-path", "debug", "endgroup", "error", "group", "notice", "save-state", "set-env", "set-output",
    "stop-commands", "warning",
)  # fmt: skip
"""Those that GitHub's runner knows."""
ATTACKS = {
    "a command": "::error file=x,line=1::forged",
    "an indented command": " \t ::add-mask::secret",
    "no-break space before it": "\u00a0\u2003::error::forged",
    "after a carriage return": "fine\r::error::forged",
    "after CR LF": "fine\r\n::error::forged",
    "after a form feed": "fine\x0c::error::forged",
    "after a vertical tab": "fine\x0b::error::forged",
    "after a line separator": "fine\u2028::error::forged",
    "after a paragraph separator": "fine\u2029::error::forged",
    "after a next-line control": "fine\x85::error::forged",
    "after file separators": "fine\x1c::error::forged\x1d::error::forged\x1e::error::forged",
    "in color": "\x1b[31m::error::forged\x1b[0m",
    "after a link": "\x1b]8;;https://evil.test\x07::error::forged",
    "behind a byte-order mark": "\ufeff::error::forged",
    "with a zero-width space": ":\u200b:error::forged",
    "with a soft hyphen": "#\u00ad#[add-path]/tmp/evil",
    "in wide colons": "\uff1a\uff1aerror\uff1a\uff1aforged",
    "in wide brackets": "\uff03\uff03\uff3berror\uff3dforged",
    "colons only": ":::error::forged",
    "the older form": "fine ##[add-path]/tmp/evil",
    "three hashes": "###[error]forged",
    "a pause of the log": "::stop-commands::pause-logging",
    "a group": "##[group]hidden\n##[endgroup]",
    "Azure": "fine ##vso[task.setvariable variable=PATH]/tmp/evil",
    "Azure in capitals": "##VSO[task.complete result=Succeeded]done",
    "TeamCity": "fine ##teamcity[testFinished name='forged']",
    "GitLab": "section_start:1700000000:hidden[collapsed=true]\r\x1b[0Khidden\nsection_end:1700000000:hidden\r\x1b[0K",
}
ALL = "\n".join(ATTACKS.values())


def obeyed(text: str) -> list[str]:
    """The commands that GitHub's runner finds, between marks too, as its ActionCommand reads them."""
    found: list[str] = []
    for line in re.split(r"\r\n|\r|\n", text):
        if (start := line.lstrip()).startswith("::") and "::" in start[2:]:
            found.append(start[2:].partition("::")[0].partition(" ")[0])
        elif older := re.search(r"##\[([^\]]*)\]", line):
            found.append(older[1].partition(" ")[0])
    return [name for name in found if name in COMMANDS]


def unmarked(text: str) -> list[str]:
    """The lines that aren't between GitHub's marks."""
    found, token = list[str](), ""
    for line in text.splitlines():
        if token:
            token = "" if line == f"::{token}::" else token
        elif stopped := re.fullmatch(r"::stop-commands::([0-9a-f]{32})", line):
            token = stopped[1]
        else:
            found.append(line)
    assert not token, "the mark is closed"
    return found


def resembling(text: str) -> list[str]:
    """What is left of any system's commands, more strictly than the systems read them. GitHub's marks don't count."""
    text = re.sub(r"^::(stop-commands::)?[0-9a-f]{32}(::)?$", "", text, flags=re.MULTILINE)
    bare = re.sub(r"\x1b\[[0-9;]*m|[\u00ad\u200b\ufeff]", "", text)
    return [
        *re.findall(r"(?:^|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029])\s*[:\uff1a]{2}.*", bare),
        *re.findall(r"[#\uff03]{2}\w*[\[\uff3b].*", bare),
        *re.findall(r"section_(?:start|end):\d.*", bare),
    ]


# ---------------------------------------------------------------------------------------------------------- one text


def test_the_reader_of_these_tests_finds_the_attacks() -> None:
    assert all(resembling(text) for text in ATTACKS.values() if "\x1b]8" not in text)
    assert {"error", "add-mask", "add-path", "stop-commands", "group"} <= set(obeyed(ALL))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_text_commands_nothing(name: str) -> None:
    text = inert(ATTACKS[name])
    assert (resembling(text), obeyed(text)) == ([], [])
    assert inert(text) == text
    assert text.replace(" ", "") == ATTACKS[name].replace(" ", ""), "all of it can still be read"


@pytest.mark.parametrize(
    "text", ["a::b", "std::vector", "# heading", "## heading [link](x)", "--- a/x\n+++ b/x", "9:30: ok"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert inert(text) == text


def test_a_line_is_no_header_of_buildkite(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "--- hidden\n+++ shown\n~~~ dim\n\x1b[1m^^^ +++\na --- b"
    assert inert(text) == text
    monkeypatch.setenv("BUILDKITE", "true")
    shown = inert(text)
    assert not re.search(r"^(\x1b\[[0-9;]*m)*(---|\+\+\+|~~~|\^\^\^)", shown, flags=re.MULTILINE)
    assert shown.endswith("a --- b")


def test_documents_keep_their_values() -> None:
    value = {"text": ALL, ALL: ["##[x]", "::x"]}
    document = inert_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(document) == value
    assert (resembling(document), obeyed(document)) == ([], [])
    root = ElementTree.Element("a", {"name": "##[error]x"})
    root.text = "fine\n::error::x\n##[error]x"
    xml = inert_markup(ElementTree.tostring(root, encoding="unicode"))
    assert (ElementTree.fromstring(xml).text, ElementTree.fromstring(xml).attrib) == (root.text, root.attrib)
    assert (resembling(xml), obeyed(xml)) == ([], [])


# -------------------------------------------------------------------------------------------------------- one stream


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def _stream(*, marked: bool = False, brief: bool = False, terminal: bool = False) -> tuple[LogStream, io.BytesIO]:
    raw = _Terminal() if terminal else io.BytesIO()
    return LogStream(io.TextIOWrapper(raw, encoding="utf-8"), marked=marked, brief=brief), raw


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("marked", [False, True])
def test_a_text_that_is_printed_in_pieces_commands_nothing(name: str, *, marked: bool) -> None:
    attack = ATTACKS[name]
    for pieces in (*([attack[:cut], attack[cut:]] for cut in range(len(attack))), list(attack)):
        stream, raw = _stream(marked=marked)
        for piece in (*pieces, "\n"):
            stream.write(piece)
            stream.flush()
        stream.finish()
        text = raw.getvalue().decode()
        assert resembling(text) == [], pieces
        assert not marked or unmarked(text) == []


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "GitLab"])
def test_a_text_that_a_terminal_shows_in_pieces_commands_nothing(name: str) -> None:
    """GitLab's commands contain a carriage return and an escape, which no text of a child keeps."""
    attack = ATTACKS[name]
    for cut in range(len(attack)):
        stream, raw = _stream(terminal=True)
        for piece in (attack[:cut], attack[cut:], "\n"):
            stream.write(piece)
            stream.flush()
        stream.finish()
        assert resembling(raw.getvalue().decode()) == [], cut


def test_an_unfinished_line_is_shown_on_a_terminal() -> None:
    stream, raw = _stream(terminal=True)
    stream.write("question? ")
    stream.flush()
    assert raw.getvalue() == b"question? "


def test_commands_of_our_own_are_outside_of_the_marks() -> None:
    stream, raw = _stream(marked=True)
    stream.write("said ")
    stream.write_as_is("::error::ours\n")
    stream.write("::error::forged\n")
    stream.finish()
    text = raw.getvalue().decode()
    assert unmarked(text) == ["::error::ours"]
    tokens = re.findall("::stop-commands::(.+)", text)
    assert len(set(tokens)) == 2, "each mark has a token of its own"


def test_stderr_leaves_no_mark_open_behind_a_line() -> None:
    stream, raw = _stream(marked=True, brief=True)
    stream.write("said\n")
    stream.flush()
    assert unmarked(raw.getvalue().decode()) == []


# ------------------------------------------------------------------------------------------------------ the commands


@pytest.fixture
def work(home: Path) -> None:
    Path("work").mkdir()
    Path("work/note.md").write_text(ALL)
    Path("work/attack.txt").write_text(ALL)
    if sys.platform != "win32":
        Path("work/a\n::error::forged\n##[add-path]x").write_text(ALL)
    Path("report.md").write_text(f"I wrote everything.\n{ALL}")
    criteria: list[Any] = [
        {"kind": "file", "path": "a\n::error::forged\n##[add-path]x", "contains": "never"},
        {"kind": "shell", "command": "cat attack.txt; cat attack.txt >&2; exit 1"},
        {"kind": "regex", "pattern": "never|::error::forged"},
        f"file note.md: the note is kind\n{ALL}",
    ]
    Path("criteria.json").write_text(json.dumps(criteria))


def _judge(**answer: str) -> ModelServer:
    def script(call: Call) -> Reply:
        given = {"id": "c1", "evidence": ALL[:200], "reason": ALL, "verdict": "not_met", **answer}
        return Reply(json.dumps({"answers": [given]}), input_tokens=1, output_tokens=1)

    return ModelServer(script)


def _assert_commands_nothing(done: "subprocess.CompletedProcess[str]", *, ours: frozenset[str] = frozenset()) -> None:
    for text in (done.stdout, done.stderr):
        lines = unmarked(text)
        if ours:
            assert all(line.startswith(tuple(f"::{name} " for name in ours)) for line in lines if line), lines
            text = "\n".join(line for line in text.splitlines() if line not in lines)
        assert resembling(text) == []
    assert set(obeyed("\n".join(unmarked(done.stdout + done.stderr)))) <= ours


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("format", ["pretty", "json", "jsonl", "junit", "sarif", "github"])
def test_a_verdict_in_any_format_commands_nothing(format: str) -> None:
    arguments = ("judge", f"--goal=Be kind. {ALL}", "--report", "report.md", "--workspace", "work")
    done = delegate(*arguments, "--criteria", "criteria.json", f"--format={format}", GITHUB_ACTIONS="true")
    assert done.returncode == 1, done.stderr
    ours = frozenset({"error", "warning", "notice"}) if format == "github" else frozenset[str]()
    _assert_commands_nothing(done, ours=ours)
    assert (unmarked(done.stdout) == []) is (format == "pretty"), "documents have no marks in them"
    with _judge() as server:
        done = delegate(*arguments, "-c", "the note is kind", f"--format={format}", GITHUB_ACTIONS="true",
                        **openai_at(server))  # fmt: skip
    assert done.returncode == 1, done.stderr
    _assert_commands_nothing(done, ours=ours)


def test_an_annotation_is_not_between_the_marks_of_a_message() -> None:
    """Stderr says that the report is waited for, and the verdict is printed after that."""
    command = [*warm.delegate(), "judge", "--goal", "x", "-c", "regex: done", "--format", "github"]
    environment = {**os.environ, "GITHUB_ACTIONS": "true"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(2)]
        process.stdin.write("done")
        process.stdin.close()
        output = process.stdout.read()
    assert "reading the report from stdin" in lines[1]
    assert [line.partition(" ")[0] for line in unmarked("".join([*lines, output]))] == ["::notice"]


@pytest.mark.parametrize("environment", [{"GITHUB_ACTIONS": "true"}, {"TF_BUILD": "True"}, {}])
def test_an_error_commands_nothing(environment: dict[str, str]) -> None:
    for arguments in (
        ("judge", "--goal=x", "-c", f"regex: (\n{ALL}"),
        ("judge", "--goal=x", "--report", "no\n::error::forged", "-c", "regex: x"),
        ("show", "::error::forged"),
        ("run", "--tier", "\n::error::forged", "x"),
        ("\n::error::forged",),
    ):
        done = delegate(*arguments, **environment)
        assert done.returncode == 2
        assert done.stderr
        _assert_commands_nothing(done)
        assert not environment.get("GITHUB_ACTIONS") or unmarked(done.stderr) == []


def _hostile(call: Call) -> Reply:
    """A child whose file, tool calls and report attack, and a judge that does."""
    if call.wants_json:
        answer = {"id": "c1", "evidence": "hello reader", "reason": ALL, "verdict": "not_met"}
        return Reply(json.dumps({"answers": [answer]}), input_tokens=1, output_tokens=1)
    if not call.tool_results:
        return Reply(f"I begin.\n{ALL}", tool_calls=(
            ("write_file", {"path": "note.md", "content": f"hello reader\n{ALL}"}),
            ("write_file", {"path": "##[add-path]x", "content": ALL}),
            ("read_file", {"path": "note.md"}),
            ("read_file", {"path": "::error::forged"}),
        ))  # fmt: skip
    return Reply(f"I wrote `note.md`.\n{ALL}", input_tokens=1, output_tokens=1)


@pytest.mark.parametrize(
    "log",
    [
        {"GITHUB_ACTIONS": "true"},
        pytest.param({}, marks=MORE_CASES),
        pytest.param({"GITHUB_ACTIONS": "true", "FORCE_COLOR": "1"}, marks=MORE_CASES),
        pytest.param({"BUILDKITE": "true", "COLUMNS": "40"}, marks=MORE_CASES),
    ],
)
def test_a_run_and_its_record_command_nothing(log: dict[str, str]) -> None:
    Path("tasks.jsonl").write_text(json.dumps({"goal": f"Write. {ALL}", "acceptance_criteria": ["it is kind"]}) + "\n")
    with ModelServer(_hostile) as server:
        environment = openai_at(server)
        commands = (
            ("run", f"Write.\n{ALL}", "-c", f"file note.md: it is kind\n{ALL}"),
            ("run", f"Write.\n{ALL}", "-c", "it is kind", "--format", "json"),
            ("run", f"Write.\n{ALL}"),
            ("show", "last", "--transcript"),
            ("show", "last", "--failed"),
            ("show", "last", "--json"),
            ("runs",),
            ("page", "-o", "-"),
            ("export", "last", "--format", "atif"),
            ("export", "last", "--format", "preference", "--labels", "judge"),
            ("rule", "last", "--list"),
        )
        for arguments in commands:
            done = delegate(*arguments, **environment, **log)
            assert done.stdout or done.stderr
            _assert_commands_nothing(done)
        batch = delegate("batch", "tasks.jsonl", "-o", "results.jsonl", **environment, **log)
        _assert_commands_nothing(batch)


def test_the_version_has_no_marks() -> None:
    assert re.fullmatch(r"[\w.]+\n", delegate("--version", GITHUB_ACTIONS="true").stdout)


def test_a_file_gets_no_marks_and_no_command(tmp_path: Path) -> None:
    Path("work").mkdir()
    Path("work/attack.txt").write_text(ALL)
    with Path("verdict.txt").open("w") as file:
        command = [
            *warm.delegate(),
            "judge",
            "--goal",
            "x",
            "--workspace",
            "work",
            "-c",
            "shell: cat attack.txt; exit 1",
        ]
        environment = {**os.environ, "GITHUB_ACTIONS": "true"}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment
        ) as process:
            assert process.wait(60) == 1
    text = Path("verdict.txt").read_text()
    assert "stop-commands::" not in re.sub(r"stop-commands::pause", "", text)
    assert resembling(text) == []
