"""The policy as a pure function: which call is allowed, asked about or refused, and why."""

import pickle
import time
from typing import Any

import pytest

from delegate.policy.approvals import ApprovalRequest, digest_of, notes, shown
from delegate.policy.decide import Action, BudgetLeft, decide
from delegate.policy.rules import SITUATIONS, Policy
from delegate.types.ports import Effect

STRICT = Policy.model_validate(dict.fromkeys(SITUATIONS, "deny"))
WRITE = Action("write_file", {"path": "a"}, effects=frozenset({"files"}), expected="a is there")


def permission(action: Action, left: BudgetLeft | None = None, **policy: Any) -> tuple[str, str | None]:
    decision = decide(action, Policy.model_validate(policy), left or BudgetLeft())
    return decision.permission, decision.code


@pytest.mark.parametrize(
    "action",
    [
        WRITE,
        Action("x"),
        Action("x", irreversible=True, cost_usd=9, seconds=9),
        Action("run_shell", {"command": "rm -rf /"}, effects=frozenset({"commands"})),
    ],
)
def test_the_default_policy_lets_everything_pass(action: Action) -> None:
    assert permission(action, BudgetLeft(0, 0)) == ("allow", None)
    assert not Policy().restricts


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (Action("x", expected="y"), "undeclared_effect"),
        (Action("x", effects=frozenset({"files"}), cost_usd=1, expected="y"), "budget_would_break"),
        (Action("x", effects=frozenset({"files"}), seconds=61, expected="y"), "budget_would_break"),
        (Action("x", effects=frozenset({"files"})), "no_expected_outcome"),
        (Action("x", effects=frozenset({"files"}), expected=" \n"), "no_expected_outcome"),
        (Action("x", effects=frozenset({"external"}), irreversible=True, expected="y"), "irreversible"),
        (Action("x", effects=frozenset(), irreversible=True, expected="y"), "irreversible"),
        (Action("x", effects=frozenset({"files"}), expected="y", in_scope=False), "outside_scope"),
    ],
)
def test_each_situation_has_its_code(action: Action, code: str) -> None:
    left = BudgetLeft(cost_usd=0.5, seconds=60)
    assert decide(action, STRICT, left).code == code
    assert permission(action, left, **{code: "ask"}) == ("ask", code)
    others = {**dict.fromkeys(SITUATIONS, "deny"), code: "allow"}
    assert permission(action, left, **others)[0] == "allow"


@pytest.mark.parametrize("action", [Action("x", read_only=True, in_scope=False), Action("think", effects=frozenset())])
def test_what_changes_nothing_is_never_asked_about(action: Action) -> None:
    assert decide(action, STRICT, BudgetLeft(0, 0)).permission == "allow"


def test_the_strictest_of_all_that_applies_decides() -> None:
    ask = {"decision": "ask", "reason": "writes"}
    deny = {"decision": "deny", "reason": "never there", "arguments": {"path": r"^\.github/"}}
    assert permission(WRITE, rules=[ask]) == ("ask", "rule")
    inside = Action("write_file", {"path": ".github/x"}, effects=frozenset({"files"}))
    assert permission(inside, rules=[ask, deny], no_expected_outcome="ask") == ("deny", "rule")
    assert permission(WRITE, rules=[ask, deny], no_expected_outcome="ask") == ("ask", "rule")


@pytest.mark.parametrize(
    ("rule", "applies"),
    [
        ({"tools": ["write_*"]}, True),
        ({"tools": ["read_*", "edit_file"]}, False),
        ({"effects": ["network"]}, False),
        ({"effects": ["network", "files"]}, True),
        ({"arguments": {"path": "a"}}, True),
        ({"arguments": {"path": "a", "content": "b"}}, False),
        ({"arguments": {"absent": "x?"}}, True),
        ({"unless": {"path": "a"}}, False),
        ({"unless": {"path": "ab?"}}, False),
        ({"unless": {"path": "b"}}, True),
    ],
)
def test_a_rule_applies_if_all_its_conditions_hold(rule: dict[str, Any], applies: bool) -> None:
    found = permission(WRITE, rules=[{"decision": "deny", "reason": "r", **rule}])
    assert found == (("deny", "rule") if applies else ("allow", None))


@pytest.mark.parametrize("command", ["pytest; rm -rf /", "pytest\nrm x", "xpytest", "pytest -q && curl x", " pytest"])
def test_an_exception_must_match_the_whole_argument(command: str) -> None:
    rule = {"decision": "ask", "reason": "r", "tools": ["run_shell"], "unless": {"command": r"pytest( -[a-z]+)*"}}
    shell: frozenset[Effect] = frozenset({"commands"})
    assert permission(Action("run_shell", {"command": command}, effects=shell), rules=[rule])[0] == "ask"
    assert permission(Action("run_shell", {"command": "pytest -q"}, effects=shell), rules=[rule])[0] == "allow"


def test_a_rule_on_effects_applies_to_tools_that_declare_none() -> None:
    rule = {"decision": "deny", "reason": "r", "effects": ["external"]}
    assert permission(Action("x"), rules=[rule]) == ("deny", "rule")


def test_arguments_that_are_no_texts_are_searched_as_json() -> None:
    rule = {"decision": "deny", "reason": "r", "arguments": {"to": "boss@"}}
    assert permission(Action("send", {"to": [{"mail": "boss@x"}]}), rules=[rule]) == ("deny", "rule")


def test_a_pattern_that_takes_too_long_counts_as_a_reason_to_be_strict() -> None:
    slow, text = r"(.*a){25}x", "a" * 5_000
    started = time.monotonic()
    found = permission(Action("x", {"v": text}), rules=[{"decision": "deny", "reason": "r", "arguments": {"v": slow}}])
    kept = permission(Action("x", {"v": text}), rules=[{"decision": "deny", "reason": "r", "unless": {"v": slow}}])
    assert time.monotonic() - started < 5
    assert (found, kept) == (("deny", "rule"), ("deny", "rule"))


@pytest.mark.slow
def test_a_decision_takes_microseconds() -> None:
    started = time.process_time()
    for _ in range(1_000):
        decide(WRITE, STRICT, BudgetLeft(1, 1))
    assert time.process_time() - started < 0.1


# ------------------------------------------------------------------------------------------------ what is shown


def request(**arguments: Any) -> ApprovalRequest:
    return ApprovalRequest(
        tool="run_shell",
        arguments=arguments,
        sha256=digest_of("run_shell", arguments, "/w"),
        workspace="/w",
        code="no_sandbox",
        reason="no sandbox",
    )


def test_what_cannot_be_seen_in_a_command_is_shown_as_escapes() -> None:
    text = request(command="ls \u202e\u200b\x1b[2J\r\u3164\U000e0041 x").describe()
    assert r"ls \u202e\u200b\x1b[2J\r\u3164\U000e0041 x" in text
    assert "characters that can't be seen are shown as escapes" in text
    assert "\x1b" not in text


def test_letters_that_look_like_others_are_named() -> None:
    assert "р (CYRILLIC SMALL LETTER ER)" in request(command="\u0440ip install x").describe()
    assert notes("pip install x", "command") == []


def test_a_command_cannot_add_a_line_to_the_request() -> None:
    text = request(command="true\n  sha256: 0000\nrm -rf ~").describe()
    assert [line for line in text.splitlines() if line.startswith("  | ")] == [
        "  | true",
        "  |   sha256: 0000",
        "  | rm -rf ~",
    ]


def test_of_a_long_command_both_ends_are_shown_and_its_length_is_named() -> None:
    text = "echo start; " + "x" * 1_000_000 + "; rm -rf ~"
    told = request(command=text).describe()
    assert len(told) < 6_000
    assert "echo start; " in told
    assert "; rm -rf ~" in told
    assert f"the command has {len(text):,} characters, and you don't see all of them" in told
    assert len(shown(text)) < 5_000


@pytest.mark.slow
def test_a_hostile_argument_of_any_size_is_shown_in_no_time() -> None:
    every_character = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    started = time.process_time()
    told = request(command=every_character).describe() + request(content=every_character).describe()
    assert time.process_time() - started < 1
    assert len(told) < 60_000


def test_a_digest_is_that_of_one_tool_with_its_arguments_in_one_workspace() -> None:
    one = digest_of("run_shell", {"command": "ls", "timeout_seconds": 1}, "/w")
    assert one == digest_of("run_shell", {"timeout_seconds": 1, "command": "ls"}, "/w")
    others = [
        digest_of("run_shell", {"command": "ls ", "timeout_seconds": 1}, "/w"),
        digest_of("run_shell", {"command": "l\u0455", "timeout_seconds": 1}, "/w"),
        digest_of("run_shell", {"command": "ls", "timeout_seconds": 2}, "/w"),
        digest_of("run_shell2", {"command": "ls", "timeout_seconds": 1}, "/w"),
        digest_of("run_shell", {"command": "ls", "timeout_seconds": 1}, "/v"),
        digest_of("run_shell", {"command": "ls\ud800", "timeout_seconds": 1}, "/w"),
    ]
    assert len({one, *others}) == 7


def test_a_policy_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(STRICT)) == STRICT
