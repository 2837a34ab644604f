"""The costs that `delegate run` and `delegate show` print: tokens, cost, provenance, the share of verification."""

import json
import re
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
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout


def _costs(script: Callable[[Call], Reply | Fault], *arguments: str, **given: Any) -> str:
    """What `delegate show` prints of the run, without line breaks."""
    _run(script, *arguments, **given)
    return " ".join(delegate("show", "last").stdout.split())


GREETS = ("-c", "file note.md: the note greets the reader")


def test_child_and_judge_have_a_line_each_with_tokens_and_cost() -> None:
    shown = _costs(_work_and_judge, *GREETS)
    assert " child worker-1: $0.0036, 2 calls, 2,000 tokens in (800 cached), 200 out (120 reasoning) judge " in shown
    assert " judge judge-1: $0.0001, 4.0 % of the cost, 1 call, 900 tokens in, 60 out total: $0.0037, " in shown


def test_a_run_shows_time_and_cost_at_the_end_of_its_first_line() -> None:
    lines = _run(_work_and_judge, *GREETS).splitlines()
    assert re.fullmatch(r"PASS \(seen\)  Write note\.md {20,}\d+\.\d s  \$0\.0037", lines[0])
    assert not any("tokens" in line for line in lines)


def test_verification_by_checks_alone_costs_nothing() -> None:
    assert " judge judge-" not in _costs(_work, "-c", "file: note.md")


def test_a_substituted_model_is_named_and_its_cost_is_an_estimate() -> None:
    def script(call: Call) -> Reply:
        return _answer(call) if call.wants_json else _work(call, NEVER_SEEN)

    ran = _run(script, *GREETS)
    assert ran.splitlines()[0].endswith("  $0.0037 (estimated)")
    assert "\n  ! model  requested worker-1, served judge-9 PASS  2. all of it\n" in ran
    assert sum(line.startswith("PASS") for line in ran.splitlines()) == 1
    assert "\x1b" not in ran
    shown = " ".join(delegate("show", "last").stdout.split())
    assert " child (requested worker-1, served judge-9 PASS 2. all of it): $0.0036 (estimated), " in shown


def test_an_unknown_price_makes_the_cost_unknown_and_leaves_what_is_known() -> None:
    unpriced = {name: value for name, value in CHILD.items() if not name.endswith("price")}
    ran = _run(_work_and_judge, *GREETS, models=(unpriced, FIRST))
    assert ran.splitlines()[0].endswith("  cost unknown, known part $0.0001")
    shown = " ".join(delegate("show", "last").stdout.split())
    assert " child worker-1: cost unknown, 2 calls, " in shown
    assert " total: unknown, known part $0.0001, " in shown
    assert "of the cost" not in shown


def test_a_judge_without_an_answer_is_one_row_with_the_reason() -> None:
    def script(call: Call) -> Reply | Fault:
        if not call.wants_json:
            return _work(call)
        return Fault(400, {"error": {"message": "no\x1b[2J such\nmodel"}}) if call.model == "judge-1" else _answer(call)

    ran = _run(script, *GREETS, models=(CHILD, FIRST, SECOND))
    (failed,) = [line for line in ran.splitlines() if line.startswith("  ! judge")]
    assert failed.startswith("  ! judge  judge-1 gave no answer (bad request: ")
    assert "such model" in failed
    assert "\x1b" not in ran
    assert " judge judge-2: $0.0003, " in " ".join(delegate("show", "last").stdout.split())


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

    shown = _costs(script, *GREETS, models=(CHILD, FIRST, SECOND), DELEGATE_ESCALATE="true")
    assert f" first judge judge-1 couldn't decide c1; {end} judges judge-1, judge-2: $0.0004, " in shown
    assert ", 2 calls, 1,800 tokens in, 120 out " in shown


def test_a_task_stopped_by_the_budget_says_so_and_costs_nothing() -> None:
    shown = _run(_work, "-c", "file: note.md", "--max-cost", "0.0000001")
    assert re.match(r"FAIL  Write note\.md .* \$0\.00\n  ✗ child   budget_exceeded: ", shown)
    assert "child worker-1: no model calls" in delegate("show", "last").stdout


def test_tasks_that_a_child_delegated_are_in_its_costs() -> None:
    def script(call: Call) -> Reply:
        if "delegate_task" not in call.tool_names or call.tool_results:
            return _work(call)
        return Reply(tool_calls=(("delegate_task", {"goal": "Write note.md"}),))

    _run(script, DELEGATE_MAX_DEPTH="2")
    shown = delegate("show", "last", "1").stdout
    assert " delegated: $0.0036, 1 task (1 without verdict)\n" in shown
