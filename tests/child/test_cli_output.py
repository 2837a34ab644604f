"""The JSON output of command line agents. The samples have the fields that the programs document."""

import json
from typing import Any

import pytest

from delegate.child.cli_output import MAX_INVALID_LINES, read_cli_output
from delegate.types import Usage


def claude(**changed: Any) -> str:
    return json.dumps({
        "type": "result", "subtype": "success", "is_error": False, "duration_ms": 4200, "num_turns": 3,
        "result": "Done.", "session_id": "s", "total_cost_usd": 0.0123,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000,
                  "output_tokens": 40, "server_tool_use": {"web_search_requests": 0}},
        "modelUsage": {"claude-x": {"inputTokens": 10, "costUSD": 0.0123}},
        **changed,
    })  # fmt: skip


def lines(*events: Any) -> str:
    return "\n".join(json.dumps(event) for event in events)


def message(text: str) -> Any:
    return {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": text}}


THREAD = {"type": "thread.started", "thread_id": "t"}
TURN = {"type": "turn.completed", "usage": {"input_tokens": 500, "cached_input_tokens": 100, "output_tokens": 20}}
COMMAND = {"type": "item.completed", "item": {"id": "item_0", "type": "command_execution", "command": "ls",
           "aggregated_output": "", "exit_code": 0, "status": "completed"}}  # fmt: skip
GEMINI = {
    "response": "Done.",
    "stats": {
        "models": {
            "gemini-x": {"api": {"totalRequests": 2},
                         "tokens": {"prompt": 900, "candidates": 30, "total": 950, "cached": 400, "thoughts": 20}},
            "gemini-y": {"api": {"totalRequests": 1}, "tokens": {"prompt": 100, "candidates": 5, "total": 105}},
        },
        "tools": {"totalCalls": 1}, "files": {"totalLinesAdded": 1},
    },
}  # fmt: skip


def test_claudes_result_has_report_usage_cost_and_model() -> None:
    printed = read_cli_output(claude())
    assert (printed.text, printed.cost_usd, printed.model, printed.problem) == ("Done.", 0.0123, "claude-x", None)
    assert printed.usage == Usage(
        model_calls=3, input_tokens=3210, cached_tokens=3000, cache_write_tokens=200, output_tokens=40
    )


def test_claudes_result_is_found_at_the_end_of_a_stream_and_in_a_list() -> None:
    stream: list[Any] = [{"type": "system", "subtype": "init"}, {"type": "assistant", "message": {"content": []}}]
    assert read_cli_output(lines(*stream) + "\n" + claude()).text == "Done."
    assert read_cli_output(f"[{json.dumps(stream[0])}, {claude()}]").text == "Done."


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"is_error": True, "result": "Invalid API key"}, "Invalid API key"),
        ({"is_error": True, "subtype": "error_max_turns", "result": None}, "error_max_turns"),
        ({"is_error": False, "subtype": "error_during_execution"}, "error_during_execution"),
    ],
)
def test_a_failure_that_claude_reports_is_a_problem(changed: Any, problem: str) -> None:
    assert read_cli_output(claude(**changed)).problem == problem


def test_codexs_last_message_is_the_report_and_its_turns_are_summed() -> None:
    printed = read_cli_output(lines(THREAD, message("I'll look."), COMMAND, TURN, message("Done."), TURN))
    assert (printed.text, printed.cost_usd, printed.problem) == ("Done.", None, None)
    assert printed.usage == Usage(input_tokens=1_000, cached_tokens=200, output_tokens=40)


def test_an_error_that_codex_recovered_from_is_no_failure() -> None:
    tried = {"type": "error", "message": "reconnecting 1/5"}
    assert read_cli_output(lines(THREAD, tried, message("Done."), TURN)).problem is None


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ([{"type": "turn.failed", "error": {"message": "out of credit"}}], "out of credit"),
        ([{"type": "error", "message": "stream lost"}], "stream lost"),
        ([], "it ended before its turn was complete"),
    ],
)
def test_codex_has_failed_unless_its_turn_was_completed(end: list[Any], problem: str) -> None:
    assert read_cli_output(lines(THREAD, message("Half of it."), *end)).problem == problem


def test_geminis_response_and_the_tokens_of_all_its_models() -> None:
    printed = read_cli_output("Loaded cached credentials.\n" + json.dumps(GEMINI, indent=2))
    assert (printed.text, printed.cost_usd, printed.model, printed.problem) == ("Done.", None, None, None)
    assert printed.usage == Usage(
        model_calls=3, input_tokens=1_000, cached_tokens=400, output_tokens=55, reasoning_tokens=20
    )


def test_an_error_that_gemini_reports_is_a_failure() -> None:
    error = {"error": {"type": "ApiError", "message": "quota is used up", "code": 429}}
    assert read_cli_output(json.dumps(error, indent=2)).problem == "quota is used up"


def test_for_other_programs_the_last_object_with_a_report_counts() -> None:
    printed = read_cli_output(
        'starting [1/2]\n{"text": "step one"}\n[INFO] more\n{"answer": "42", "text": "It is 42.", "cost_usd": 0.5, '
        '"usage": {"input_tokens": 7, "output_tokens": 2}}\n{"exit": 0}\nbye\n'
    )
    assert (printed.text, printed.cost_usd) == ("It is 42.", 0.5)
    assert printed.usage == Usage(input_tokens=7, output_tokens=2)


@pytest.mark.parametrize("odd", [-1, True, "many", 1.5, 10**400, None, [], {}])
def test_an_invalid_count_or_cost_is_ignored(odd: Any) -> None:
    told = {"result": "x", "usage": {"input_tokens": odd, "output_tokens": 1}}
    assert read_cli_output(json.dumps(told)).usage == Usage(output_tokens=1)
    if odd != 1.5:
        assert read_cli_output(json.dumps({"result": "x", "cost_usd": odd})).cost_usd is None


@pytest.mark.parametrize("text", ["", "done", "{", '{"result": 3}', "[1, 2]", '"result"', '{"a": {"result": "x"}}'])
def test_output_without_a_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        read_cli_output(text)


def test_deep_nesting_and_invalid_lines_are_skipped() -> None:
    noise = '{"a":\n' * 3_000 + "[INFO] x\n" * (MAX_INVALID_LINES - 4_000)
    assert read_cli_output(f'{noise}{{"result": "Done."}}').text == "Done."
