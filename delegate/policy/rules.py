"""The setting `policy`: what a child may do alone, what needs an approval, and what is refused. It is data only."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from delegate._util.patterns import pattern_fault
from delegate.types.base import Input, Text, Value
from delegate.types.ports import Effect

Permission = Literal["allow", "ask", "deny"]
STRICTNESS: tuple[Permission, ...] = ("allow", "ask", "deny")
"""From the widest to the narrowest."""
SITUATIONS = ("undeclared_effect", "budget_would_break", "no_expected_outcome", "irreversible", "outside_scope")
"""The fields of a policy that say what follows in a situation. Their names are also the reason codes."""


def _is_pattern(pattern: str) -> str:
    if fault := pattern_fault(pattern):
        raise PydanticCustomError("pattern", "not a regular expression: {fault}", {"fault": fault})
    return pattern


Pattern = Annotated[str, StringConstraints(min_length=1), AfterValidator(_is_pattern)]


class Rule(Value):
    """What follows for some calls. A rule can only narrow: the strictest of all that apply decides.

    All its conditions must hold. A condition that can't be evaluated in time counts as one that makes the rule apply.
    """

    decision: Literal["ask", "deny"]
    reason: Text
    """Why, for the person who is asked and for the child."""
    tools: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """Names of tools, or globs such as `db_*`."""
    effects: tuple[Effect, ...] = ()
    """The rule applies to tools with one of these effects, and to those that declare none. Empty: to all."""
    arguments: dict[str, Pattern] = Field(default_factory=dict)
    """Regular expressions by the argument's name. Each must match somewhere in its argument."""
    unless: dict[str, Pattern] = Field(default_factory=dict)
    """Regular expressions by the argument's name. If each matches the whole of its argument, the rule doesn't apply."""


class Policy(Input):
    """What follows for calls of a child that may change something. The default changes nothing."""

    undeclared_effect: Permission = "allow"
    """For a tool that doesn't declare its effects."""
    budget_would_break: Permission = "allow"
    """For a call that may cost more, or take longer, than what is left."""
    no_expected_outcome: Permission = "allow"
    """For a call without an expected outcome. Unless it is `allow`, tools have the argument `expected_outcome`."""
    irreversible: Permission = "allow"
    """For a tool that is declared to do what can't be undone."""
    outside_scope: Permission = "ask"
    """For a tool that the open step doesn't name, in tasks with `steps`."""
    rules: tuple[Rule, ...] = ()
    max_requests: int = Field(default=20, ge=0, le=1_000)
    """How often one task may ask for an approval. What would ask after that is refused."""
    answer_seconds: float = Field(default=600, gt=0, le=86_400)
    """How long a person may take to answer. After that, the answer is no."""

    @property
    def restricts(self) -> bool:
        """Whether it can ask or refuse anything in a task without steps."""
        return bool(self.rules) or any(getattr(self, name) != "allow" for name in SITUATIONS if name != "outside_scope")

    def widens(self, allowed: "Policy") -> bool:
        """Whether it lets anything pass that `allowed` doesn't, or asks more often."""
        wider = any(_rank(getattr(self, name)) < _rank(getattr(allowed, name)) for name in SITUATIONS)
        more = self.max_requests > allowed.max_requests or self.answer_seconds > allowed.answer_seconds
        return wider or more or any(rule not in self.rules for rule in allowed.rules)

    def narrowed(self, other: "Policy | None") -> "Policy":
        """Itself and the other policy, where that one is stricter."""
        if other is None:
            return self
        changes: dict[str, Any] = {
            name: max(getattr(self, name), getattr(other, name), key=_rank) for name in SITUATIONS
        }
        changes |= {name: min(getattr(self, name), getattr(other, name)) for name in ("max_requests", "answer_seconds")}
        return self.model_copy(update={**changes, "rules": (*self.rules, *other.rules)})

    @model_validator(mode="before")
    @classmethod
    def _from_table(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise PydanticCustomError("table", "a policy is a table: write [policy] and its fields below it")
        return value

    @model_validator(mode="after")
    def _rules_are_few(self) -> Self:
        if len(self.rules) > 200:
            raise PydanticCustomError("rules", "a policy has at most 200 rules")
        return self


def _rank(permission: Permission) -> int:
    return STRICTNESS.index(permission)
