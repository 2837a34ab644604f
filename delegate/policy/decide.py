"""Decides what follows for one call of a tool, by the call, the policy and what is left of the budget.

Nothing is changed or run. Rules on arguments also compare what these stand for in the file system (`paths`), and
what a command line runs (`commands`).
"""

import json
import re
import shlex
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from delegate.policy import commands, paths
from delegate.policy.commands import Line, Reading
from delegate.policy.rules import STRICTNESS, Permission, Policy, Rule
from delegate.types.money import usd
from delegate.types.ports import Effect

PolicyCode = Literal[
    "undeclared_effect",  # the tool doesn't say what a call may change
    "budget_would_break",  # the call may cost more, or take longer, than what is left
    "no_expected_outcome",  # neither the call nor the open step says what is to come of it
    "irreversible",  # it can't be undone
    "outside_scope",  # the open step doesn't name the tool
    "rule",  # a rule of the policy applies
    "no_sandbox",  # commands = "ask", and nothing would confine the command
    "expensive",  # a parent's call will likely cost more than `ask_above_usd`
]
Met = Literal["no", "may", "does"]
"""Whether a rule is about a call; `may` if that can't be read from the call, so that a person has to decide."""
PATTERN_SECONDS = 0.1
"""Time for one pattern. One that takes longer counts as a reason to be strict."""
_COMMAND_NAMES = ("command", "cmd")
"""Arguments that are command lines also where a tool doesn't declare the effect `commands`."""
_NAMES_AN_OPERATOR = re.compile(r"[;&\n]|\\[|n]|\[\|")
_NEGATED = re.compile(r"\[\^\]?[^]]*\]")


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
    workspace: str = ""
    """The folder that relative paths are in. Empty: paths are compared as they are written."""

    @property
    def changes_nothing(self) -> bool:
        return self.read_only or (self.effects is not None and not self.effects and not self.irreversible)

    def is_command(self, name: str) -> bool:
        """Whether the argument with this name is a command line."""
        return name in _COMMAND_NAMES or "commands" in (self.effects or ())


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
    decisions = [ALLOWED, *_situations(action, policy, left)]
    compared = _Compared(action)
    for rule in policy.rules:
        if (met := compared.meets(rule)) == "may":
            decisions.append(Decision("ask", "rule", f"{rule.reason} (what it does can't be read from the call)"))
        elif met == "does":
            decisions.append(Decision(rule.decision, "rule", rule.reason))
    return max(decisions, key=lambda decision: STRICTNESS.index(decision.permission))


def _situations(action: Action, policy: Policy, left: BudgetLeft) -> Iterator[Decision]:
    if not action.in_scope:
        yield Decision(policy.outside_scope, "outside_scope", f"{action.tool} is not in the scope of an open step")
    if action.irreversible:
        yield Decision(policy.irreversible, "irreversible", f"what {action.tool} does can't be undone")
    over = ""
    if left.cost_usd is not None and action.cost_usd > left.cost_usd:
        over = f"cost {usd(action.cost_usd, 'exact')}, and {usd(max(left.cost_usd, 0), 'exact')} are left"
    elif left.seconds is not None and action.seconds > left.seconds:
        over = f"take {action.seconds:.4g} s, and {max(left.seconds, 0):.4g} s are left"
    if over:
        yield Decision(policy.budget_would_break, "budget_would_break", f"the call may {over}")
    if action.effects is None:
        reason = f"{action.tool} doesn't declare what a call may change"
        yield Decision(policy.undeclared_effect, "undeclared_effect", reason)
    if not action.expected.strip():
        reason = "the call doesn't say what is to come of it: send `expected_outcome`"
        yield Decision(policy.no_expected_outcome, "no_expected_outcome", reason)


class _Compared:
    """One call, compared with rules. Each argument is read once."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self._lines: dict[str, Line] = {}
        self._flags: int | None = None

    def meets(self, rule: Rule) -> Met:
        """Whether all conditions of a rule hold."""
        action = self._action
        if not any(fnmatchcase(action.tool, glob) for glob in rule.tools):
            return "no"
        if rule.effects and action.effects is not None and not action.effects.intersection(rule.effects):
            return "no"
        least: Met = "does"
        for name, pattern in rule.arguments.items():
            if (answer := self._is_found(pattern, name)) == "no":
                return "no"
            least = "may" if answer == "may" else least
        is_excepted = rule.unless and all(self._is_excepted(pattern, name) for name, pattern in rule.unless.items())
        return "no" if is_excepted else least

    def _is_found(self, pattern: str, named: str) -> Met:
        """Whether a pattern matches somewhere in what one of the arguments says or stands for."""
        import regex  # loaded only where a rule has patterns

        ends, root = time.monotonic() + PATTERN_SECONDS, self._action.workspace
        if self._flags is None:
            self._flags = regex.IGNORECASE if root and paths.ignores_case(root) else 0
        compiled = regex.compile(pattern, self._flags)

        def found(text: str, *, partial: bool = False) -> bool:
            seconds = max(ends - time.monotonic(), 0.001)
            return compiled.search(text, timeout=seconds, partial=partial) is not None

        may = False
        try:
            is_inverse = found(paths.NOWHERE)  # what it matches says nothing about what a wrapper runs
            for name, value in _named(self._action.arguments, named):
                for reading in self._readings(name, value):
                    if reading.is_derived and is_inverse:
                        continue
                    is_met = found(reading.text) or (reading.is_open and found(reading.text, partial=True))
                    if is_met and not (reading.elsewhere and found(reading.elsewhere)):
                        if not reading.asks:
                            return "does"
                        may = True
        except TimeoutError:
            return "does"
        return "may" if may else "no"

    def _is_excepted(self, pattern: str, named: str) -> bool:
        """Whether a pattern matches the whole of the arguments, also of what they stand for."""
        import regex  # loaded only where a rule has patterns

        ends = time.monotonic() + PATTERN_SECONDS

        def is_whole(text: str) -> bool:
            return regex.fullmatch(pattern, text, timeout=max(ends - time.monotonic(), 0.001)) is not None

        try:
            return all(
                is_whole(_text(value)) and self._stays_excepted(pattern, is_whole, name, value)
                for name, value in _named(self._action.arguments, named)
            )
        except TimeoutError:
            return False

    def _stays_excepted(self, pattern: str, is_whole: Callable[[str], bool], name: str, value: Any) -> bool:
        """Whether an exception for what is written is one for what it stands for."""
        if not self._action.is_command(name) or not isinstance(value, str):
            root = self._action.workspace
            followed = {text for text in strings(value) if paths.is_followed(root, text)}
            forms = (
                {text: paths.below(start, paths.real_path(root, text)) for text in followed} for start in (root, "")
            )
            return not followed or any(is_whole(_text(_replaced(value, form))) for form in forms)
        line = self._line(value)
        if not line.is_known:
            return False
        is_each = len(line.commands) > 1 and not _NAMES_AN_OPERATOR.search(_NEGATED.sub("", pattern))
        return all(any(map(is_whole, texts)) for texts in line.spellings(only_followed=not is_each))

    def _readings(self, name: str, value: Any) -> Iterator[Reading]:
        yield Reading(_text(value))
        for text in strings(value):
            yield Reading(text)
            if not text.isascii():
                plain = unicodedata.normalize("NFKC", text)
                yield Reading("".join(char for char in plain if unicodedata.category(char) != "Cf"))
        if self._action.is_command(name):
            yield from self._line(line).readings() if (line := command_line(value)) else ()
            return
        for path in (reading for text in strings(value) for reading in paths.readings(self._action.workspace, text)):
            yield Reading(path)
            if not path.startswith("/"):
                yield Reading(f"{self._action.workspace}/{path}", elsewhere=f"{paths.NOWHERE}/{path}")
        for text in strings(value):
            yield from self._by_other_names(text)

    def _by_other_names(self, text: str) -> Iterator[Reading]:
        """The other names of a file with hard links. Those outside of the workspace aren't known."""
        root = self._action.workspace
        if not root or not paths.is_path(text):
            return
        names, are_all = paths.other_names(root, paths.real_path(root, text))
        yield from (Reading(paths.below(root, name)) for name in names)
        if not are_all:
            yield Reading("/", is_open=True, asks=True)

    def _line(self, text: str) -> Line:
        if text not in self._lines:
            self._lines[text] = commands.read(text, self._action.workspace)
        return self._lines[text]


def _named(arguments: Mapping[str, Any], named: str) -> list[tuple[str, Any]]:
    """The arguments with this name, or one that this glob fits, at any depth. None in place of one that is absent."""
    parts: list[tuple[str, Any]] = []
    waiting: list[Any] = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            fields = [(str(name), part) for name, part in cast("Mapping[Any, Any]", value).items()]
            parts += [(name, part) for name, part in fields if fnmatchcase(name, named)]
            waiting += [part for _, part in fields]
        elif isinstance(value, list | tuple):
            waiting += cast("list[Any]", value)
    return parts or [(named, None)]


def strings(value: Any) -> Iterator[str]:
    """All texts in an argument, at any depth."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += cast("Mapping[Any, Any]", item).values()
        elif isinstance(item, list | tuple):
            waiting += cast("list[Any]", item)


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Mapping):
        return {name: _replaced(part, texts) for name, part in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_replaced(part, texts) for part in cast("list[Any]", value)]
    return value


def command_line(value: Any) -> str:
    """An argument as a command line: a text, or a list of words."""
    if isinstance(value, list) and all(isinstance(word, str) for word in cast("list[Any]", value)):
        return shlex.join(cast("list[str]", value))
    return value if isinstance(value, str) else ""


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
