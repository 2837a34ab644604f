"""Sessions of coding agents, as the agents themselves wrote them, give what was asked for, done and said."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate.judging.transcripts.sessions import FORMATS, Session, read_session
from delegate.pages.atif import SCHEMA_VERSION
from delegate.types.errors import CallError

DATA = Path(__file__).parents[1] / "data" / "sessions"
BRIEF = "Write made.txt with the word done.\n\nAcceptance criteria:\n- file: made.txt\n"


def session(name: str) -> Session:
    return read_session((DATA / name).read_text(encoding="utf-8"), name)


@pytest.mark.parametrize(
    ("name", "format", "tool", "args", "model"),
    [
        ("claude-code.jsonl", "Claude Code", "Bash", "command", "claude-opus-4-8"),
        ("codex.jsonl", "Codex", "exec_command", "cmd", "gpt-5.5"),
        ("gemini.jsonl", "Gemini CLI", "run_shell_command", "command", "gemini-2.5-pro"),
    ],
)
def test_a_session_gives_the_brief_the_calls_the_report_and_the_model(
    name: str, format: str, tool: str, args: str, model: str
) -> None:
    read = session(name)
    assert (read.format, read.model) == (format, model)
    assert read.prompts[0] == BRIEF
    assert read.report == "I wrote made.txt, as I was asked."
    (receipt,) = read.receipts
    assert (receipt.tool, receipt.status, receipt.args[args]) == (tool, "ok", "echo done > made.txt")


def test_an_export_of_opencode_gives_the_result_of_a_call() -> None:
    read = session("opencode.json")
    assert (read.format, read.report) == ("opencode", "I have read the results.")
    (receipt,) = read.receipts
    assert (receipt.tool, receipt.status) == ("delegate_delegate_task", "ok")
    assert receipt.output.startswith("1 of 1 PASS")


def test_what_agents_tell_their_models_by_themselves_is_no_brief() -> None:
    assert len(session("codex.jsonl").prompts) == 1  # and not its environment, nor what a hook has said
    assert len(session("claude-code.jsonl").prompts) == 1


def test_a_failed_command_is_an_error() -> None:
    codex: list[dict[str, Any]] = [
        {"type": "session_meta", "payload": {}},
        *(
            {"type": "response_item", "payload": {"type": "function_call", "call_id": n, "name": "exec"}}
            for n in "abc"
        ),
        *(
            {"type": "response_item", "payload": {"type": "function_call_output", "call_id": n, "output": output}}
            for n, output in (
                ("a", "Exit code: 1\nWall time: 0 s\nOutput:\nno"),
                ("b", "Exit code: 0\nOutput:\nExit code: 1"),
                ("c", "Chunk ID: 1\nProcess exited with code 127\nOutput:"),
            )
        ),
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, codex))
    assert [receipt.status for receipt in read_session(text, "x").receipts] == ["error", "error", "error"]


def test_a_trajectory_gives_its_steps() -> None:
    call = {"tool_call_id": "1", "function_name": "read_file", "arguments": {"path": "a"}}
    step = {"source": "agent", "message": "", "tool_calls": [call],
            "observation": {"results": [{"source_call_id": "1", "content": "text of a"}]}}  # fmt: skip
    steps = [{"source": "user", "message": "Read a."}, step, {"source": "agent", "message": "It says a."}]
    trajectory = {"schema_version": SCHEMA_VERSION, "agent": {"name": "x", "model_name": "m"}, "steps": steps}
    read = read_session(json.dumps(trajectory), "x")
    assert (read.prompts, read.report, read.model) == (["Read a."], "It says a.", "m")
    assert [(one.tool, one.status, one.output) for one in read.receipts] == [("read_file", "ok", "text of a")]


def test_a_call_without_a_result_is_an_error_and_a_result_without_a_call_is_skipped() -> None:
    messages = [
        {"role": "user", "content": "Do it."},
        {"role": "tool", "tool_call_id": "gone", "content": "of a turn that was cut away"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    ]
    assert [one.status for one in read_session(json.dumps(messages), "x").receipts] == ["error"]


def test_a_last_line_that_is_being_written_is_skipped() -> None:
    text = (DATA / "claude-code.jsonl").read_text(encoding="utf-8")
    assert read_session(text + '{"type": "assist', "x").prompts == [BRIEF]
    with pytest.raises(CallError, match="line 1: not valid JSON"):
        read_session('{"type": "assist\n' + text, "x")


@pytest.mark.parametrize("text", ["", "[]", "{}", "7", "null", '{"message": 1}', "[" * 100_000, "\x00"])
def test_another_file_is_refused_with_the_formats_there_are(text: str) -> None:
    with pytest.raises(CallError) as refused:
        read_session(text, "x.jsonl")
    assert "x.jsonl" in refused.value.message
    assert refused.value.code == "invalid_json" or all(name in (refused.value.hint or "") for name in FORMATS)


@pytest.mark.parametrize("file", sorted(DATA.glob("*.json*")), ids=lambda file: file.name)
def test_values_of_any_form_in_a_session_end_in_no_other_error(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for old in ('"content":', '"payload":', '"args":', '"result":', '"input":', '"parts":', '"role":', '"toolCalls":'):
        for new in ("null", "7", '"text"', "[[]]", '{"a": []}'):
            changed = text.replace(old, f'{old} {new}, "x":')
            assert isinstance(read_session(changed, "x").receipts, list)
