"""Decides what follows for one call of a tool: a pure function of call, policy and what is left of the budget."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from delegate.policy.rules import STRICTNESS, Permission, Policy, Rule
from delegate.ports import Effect

PolicyCode = Literal[
    "undeclared_effect",  # the tool doesn't say what a call may change
    "budget_would_break",  # the call may cost more, or take longer, than what is left
    "no_expected_outcome",  # neither the call nor the open step says what is to come of it
    "irreversible",  # it can't be undone
    "outside_scope",  # the open step doesn't name the tool
    "rule",  # a rule of the policy applies
    "no_sandbox",  # commands = "ask", and nothing would confine the command
]
PATTERN_SECONDS = 0.1
"""Time for one pattern. One that takes longer counts as a reason to be strict."""


@dataclass(frozen=True, slots=True)
class Action:
    """A call that is about to be made."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    read_only: bool = False
    effects: frozenset[Effect] | None = None
    """What the tool declares that a call may change. None: it declares nothing."""
    irreversible: bool = False
    cost_usd: float = 0
    """What the tool declares that a call costs at most, besides model calls."""
    seconds: float = 0
    """How long the call may take, as far as it says so."""
    expected: str = ""
    """What is to come of it, in the words of the child."""
    in_scope: bool = True
    """Whether the open step names the tool, in tasks with steps."""

    @property
    def changes_nothing(self) -> bool:
        return self.read_only or (self.effects is not None and not self.effects and not self.irreversible)


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """What is left for a call. None: no limit."""

    cost_usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows for a call. Without a code, it is simply allowed."""

    permission: Permission
    code: PolicyCode | None = None
    reason: str = ""


ALLOWED = Decision("allow")
_NO_LIMITS = BudgetLeft()


def decide(action: Action, policy: Policy, left: BudgetLeft = _NO_LIMITS) -> Decision:
    """The strictest of all that applies to a call; of several, the first."""
    if action.changes_nothing:
        return ALLOWED
    found = [ALLOWED, *_situations(action, policy, left)]
    found += [Decision(rule.decision, "rule", rule.reason) for rule in policy.rules if _applies(rule, action)]
    return max(found, key=lambda one: STRICTNESS.index(one.permission))


def _situations(action: Action, policy: Policy, left: BudgetLeft) -> Iterator[Decision]:
    """What the situation of a call leads to."""
    if not action.in_scope:
        yield Decision(policy.outside_scope, "outside_scope", f"{action.tool} is not in the scope of an open step")
    if action.irreversible:
        yield Decision(policy.irreversible, "irreversible", f"what {action.tool} does can't be undone")
    if over := _over_budget(action, left):
        yield Decision(policy.budget_would_break, "budget_would_break", over)
    if action.effects is None:
        reason = f"{action.tool} doesn't declare what a call may change"
        yield Decision(policy.undeclared_effect, "undeclared_effect", reason)
    if not action.expected.strip():
        reason = "the call doesn't say what is to come of it: send `expected_outcome`"
        yield Decision(policy.no_expected_outcome, "no_expected_outcome", reason)


def _over_budget(action: Action, left: BudgetLeft) -> str:
    if left.cost_usd is not None and action.cost_usd > left.cost_usd:
        return f"the call may cost ${action.cost_usd:.4g}, and ${max(left.cost_usd, 0):.4g} are left"
    if left.seconds is not None and action.seconds > left.seconds:
        return f"the call may take {action.seconds:.4g} s, and {max(left.seconds, 0):.4g} s are left"
    return ""


def _applies(rule: Rule, action: Action) -> bool:
    if not any(fnmatchcase(action.tool, glob) for glob in rule.tools):
        return False
    if rule.effects and action.effects is not None and not action.effects.intersection(rule.effects):
        return False
    texts = {name: _text(action.arguments.get(name)) for name in (*rule.arguments, *rule.unless)}
    if not all(_found(pattern, texts[name]) for name, pattern in rule.arguments.items()):
        return False
    return not rule.unless or not all(_is_whole(pattern, texts[name]) for name, pattern in rule.unless.items())


def _text(value: Any) -> str:
    """An argument as the text that patterns are searched in."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _found(pattern: str, text: str) -> bool:
    import regex  # loaded only where a rule has patterns

    try:
        return regex.search(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        return True


def _is_whole(pattern: str, text: str) -> bool:
    import regex  # loaded only where a rule has patterns

    try:
        return regex.fullmatch(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        return False
