"""The costs that `delegate run` prints: tokens, cost, its provenance and the share of verification."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cli.command import delegate
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.operator import own_settings

CHILD = {"id": "worker-1", "tier": "standard", "family": "w", "input_price": 1, "output_price": 10,
         "cached_input_price": 0.5}  # fmt: skip
FIRST = {"id": "judge-1", "tier": "fast", "family": "one", "input_price": 0.1, "output_price": 1}
SECOND = {"id": "judge-2", "tier": "fast", "family": "two", "input_price": 0.2, "output_price": 2}
NEVER_SEEN = "judge-9\x1b[2J\nPASS  2. all of it"


def _answer(call: Call, verdict: str = "met", evidence: str = "hello reader") -> Reply:
    ids = call.last_text.rpartition("exactly once: ")[2].split(", ")
    answers = [{"id": id, "evidence": evidence, "reason": "It is there.", "verdict": verdict} for id in ids]
    return Reply(json.dumps({"answers": answers}), input_tokens=900, output_tokens=60)


def _work(call: Call, model: str | None = None) -> Reply:
    """Two calls of 1,000 tokens in (400 cached) and 100 out (60 reasoning), which cost $0.0036."""
    reply = Reply(
        "I wrote `note.md`.", model=model, input_tokens=1000, cached_tokens=400, output_tokens=100, reasoning_tokens=60
    )
    if call.tool_results:
        return reply
    return replace(reply, text="", tool_calls=(("write_file", {"path": "note.md", "content": "hello reader\n"}),))


def _work_and_judge(call: Call) -> Reply:
    return _answer(call) if call.wants_json else _work(call)


def _declare(server: ModelServer, *models: dict[str, Any]) -> None:
    """Declare a server without a key that serves only these models."""
    tables = ", ".join(
        "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in model.items()) + "}" for model in models
    )
    own_settings(f'[[endpoints]]\nname = "mine"\nbase_url = "{server.openai_url}"\nmodels = [{tables}]\n')


def _run(
    script: Callable[[Call], Reply | Fault],
    *arguments: str,
    models: tuple[dict[str, Any], ...] = (CHILD, FIRST),
    **settings: str,
) -> str:
    with ModelServer(script) as server:
        _declare(server, *models)
        done = delegate("run", "Write note.md", *arguments, **{"DELEGATE_MODEL": "worker-1", **settings})
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


GREETS = ("-c", "the note greets the reader")


def test_child_and_judge_have_a_line_each_with_tokens_and_cost() -> None:
    lines = _run(_work_and_judge, *GREETS).splitlines()
    assert "  child worker-1: $0.0036, 2 calls, 2,000 tokens in (800 cached), 200 out (120 reasoning)" in lines
    assert "  judge judge-1: $0.0001, 4.0 % of the cost, 1 call, 900 tokens in, 60 out" in lines
    cost = next(line for line in lines if line.startswith("  cost "))
    assert cost.startswith("  cost $0.0037 · ")
    assert "handle " in cost
    assert lines[-1].startswith("1 PASS, 0 FAIL · cost $0.0037 · verification 4.0 % of the cost · ")


def test_a_result_that_is_shown_later_has_the_same_costs() -> None:
    ran = _run(_work_and_judge, *GREETS)
    shown = delegate("show", ran.rpartition("handle ")[2].split()[0]).stdout.splitlines()
    costs = [line for line in ran.splitlines() if line.startswith(("  child ", "  judge ", "  cost "))]
    assert len(costs) == 3
    assert set(costs) <= set(shown)


def test_verification_by_checks_alone_costs_nothing() -> None:
    shown = _run(_work, "-c", "file: note.md")
    assert "\n  judge " not in shown
    assert shown.splitlines()[-1].startswith("1 PASS, 0 FAIL · cost $0.0036 · verification 0.0 % of the cost · ")


def test_without_criteria_there_is_no_verification_share() -> None:
    assert "verification" not in _run(_work)


def test_a_substituted_model_is_named_and_its_cost_is_an_estimate() -> None:
    def script(call: Call) -> Reply:
        return _answer(call) if call.wants_json else _work(call, NEVER_SEEN)

    shown = _run(script, *GREETS)
    lines = shown.splitlines()
    assert any(line.startswith("  child (requested worker-1, served judge-9 PASS 2. all of it): $0.0036 (estimated), ")
               for line in lines)  # fmt: skip
    assert sum(line.startswith("PASS") for line in lines) == 1
    assert "\x1b" not in shown
    assert lines[-1].startswith("1 PASS, 0 FAIL · cost $0.0037 (estimated) · ")


def test_an_unknown_price_makes_the_cost_unknown_and_leaves_what_is_known() -> None:
    unpriced = {name: value for name, value in CHILD.items() if not name.endswith("price")}
    lines = _run(_work_and_judge, *GREETS, models=(unpriced, FIRST)).splitlines()
    assert any(line.startswith("  child worker-1: cost unknown, 2 calls, ") for line in lines)
    assert any(line.startswith("  cost unknown, known part $0.0001 · ") for line in lines)
    assert lines[-1].startswith("1 PASS, 0 FAIL · cost unknown, known part $0.0001 · ")
    assert not any("verification" in line for line in lines)


def test_a_judge_without_an_answer_is_one_line_with_the_reason() -> None:
    def script(call: Call) -> Reply | Fault:
        if not call.wants_json:
            return _work(call)
        return Fault(400, {"error": {"message": "no\x1b[2J such\nmodel"}}) if call.model == "judge-1" else _answer(call)

    shown = _run(script, *GREETS, models=(CHILD, FIRST, SECOND))
    (failed,) = [line for line in shown.splitlines() if line.startswith("  judge judge-1")]
    assert failed.startswith("  judge judge-1 gave no answer (bad request: ")
    assert "such model" in failed
    assert "\x1b" not in shown
    assert "\n  judge judge-2: $0.0003, " in shown


@pytest.mark.parametrize(
    ("second", "end"),
    [
        (("met", "hello reader"), "judge-2 decided"),
        (("cannot_tell", ""), "judge-2 couldn't either"),
        (("met", "a quote that does not exist"), "judge-2 couldn't either"),
    ],
)
def test_a_second_judge_is_named_with_its_outcome_and_the_cost_of_both(second: tuple[str, str], end: str) -> None:
    def script(call: Call) -> Reply:
        if not call.wants_json:
            return _work(call)
        return _answer(call, "cannot_tell", "") if call.model == "judge-1" else _answer(call, *second)

    shown = _run(script, *GREETS, models=(CHILD, FIRST, SECOND), DELEGATE_ESCALATE="true")
    assert f"\n  first judge judge-1 couldn't decide c1; {end}\n" in shown
    assert "\n  judges judge-1, judge-2: $0.0004, " in shown
    assert ", 2 calls, 1,800 tokens in, 120 out\n" in shown


def test_a_task_stopped_by_the_budget_says_so_and_costs_nothing() -> None:
    shown = _run(_work, "-c", "file: note.md", "--max-cost", "0.0000001")
    assert shown.startswith("FAIL  1. Write note.md  [budget_exceeded]\n")
    assert "\n  budget_exceeded: " in shown
    assert "\n  child worker-1: no model calls\n" in shown
    assert shown.splitlines()[-1].startswith("0 PASS, 1 FAIL · 1 stopped by the budget · cost $0.00 · ")


def test_tasks_that_a_child_delegated_are_in_its_costs() -> None:
    def script(call: Call) -> Reply:
        if "delegate_task" not in call.tool_names or call.tool_results:
            return _work(call)
        return Reply(tool_calls=(("delegate_task", {"goal": "Write note.md"}),))

    shown = _run(script, DELEGATE_MAX_DEPTH="2")
    assert "\n  delegated: $0.0036, 1 task (1 without verdict)\n" in shown
