"""Steps with a scope, for children that are given them: what a step is to do and with which tools, and what came of it.

    declare_step(goal, tools, expected) ──▶ calls of these tools ──▶ verify_step(outcome, held)

A call that may change something and isn't in the scope of an open step is for the policy to decide. The declaration and
its end are ordinary tool calls with receipts, so that checks and judges see them; the end says what really was called.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from delegate._util.fencing import one_line
from delegate._util.similar import most_similar
from delegate.child.goal_tools import DECLARE, STEP_TOOLS, VERIFY, object_schema, text_schema
from delegate.types import Receipt
from delegate.types.errors import ToolError
from delegate.types.events import Notify, StepDeclared, StepVerified
from delegate.types.ports import Tool

MAX_STEPS = 200
_CHARS = 2_000


@dataclass(slots=True)
class Step:
    n: int
    tools: tuple[str, ...]
    expected: str
    first_receipt: int
    """The number of its declaration among the child's calls."""


@dataclass(slots=True)
class Steps:
    receipts: Callable[[], Sequence[Receipt]]
    notify: Notify
    open: Step | None = None
    declared: int = 0
    _tools: Sequence[Tool] = ()

    def offered(self, tools: Sequence[Tool]) -> tuple[Tool, Tool]:
        """The two tools that a child gets besides `tools`."""
        self._tools = tools
        return (
            Tool(
                DECLARE,
                "Declare your next step before you change anything: its goal, the tools that you will call for it, and "
                "what you expect to come of it. What you call outside of a step's tools has to be approved. Tools that "
                "only read need no step.",
                object_schema(
                    goal=text_schema("What this step is to achieve."),
                    tools={
                        "type": "array",
                        "items": {"enum": [tool.name for tool in tools]},
                        "minItems": 1,
                        "description": "The names of the tools that this step will call.",
                    },
                    expected=text_schema("What will be true when it is done, so that it can be checked."),
                ),
                self._declare,
                parallel=False,
                read_only=True,
            ),
            Tool(
                VERIFY,
                "End the open step: say what came of it, and whether what you expected holds. You get back what was "
                "called in it.",
                object_schema(
                    outcome=text_schema("What came of it, with the words and numbers that show it."),
                    held={"type": "boolean", "description": "Whether what you expected holds."},
                ),
                self._verify,
                parallel=False,
                read_only=True,
            ),
        )

    async def _declare(self, arguments: Mapping[str, Any]) -> str:
        goal, expected = _argument(arguments, "goal"), _argument(arguments, "expected")
        given: object = arguments.get("tools")
        names = cast("list[object]", given) if isinstance(given, list) else []
        tools = tuple(dict.fromkeys(name for name in names if isinstance(name, str)))
        if not names or not all(isinstance(name, str) for name in names):
            raise ToolError("`tools` has to be a list of the names of your tools")
        own = [tool.name for tool in self._tools]
        if unknown := [name for name in tools if name not in own]:
            similar = most_similar(unknown[0], own)
            guess = f"; did you mean {similar}?" if similar else f"; your tools are {', '.join(own)}"
            raise ToolError(f"there is no tool {one_line(unknown[0], 60)!r}{guess}")
        if self.open is not None:
            raise ToolError(f"step {self.open.n} is still open; call {VERIFY} first")
        if self.declared >= MAX_STEPS:
            raise ToolError(f"a task has at most {MAX_STEPS} steps")
        self.declared += 1
        first = max((receipt.n for receipt in self.receipts()), default=0)
        self.open = Step(self.declared, tools, expected, first)
        self.notify(StepDeclared, n=self.declared, goal=goal, tools=tools, expected=expected)
        return f"step {self.declared} is open; its tools: {', '.join(tools)}"

    async def _verify(self, arguments: Mapping[str, Any]) -> str:
        outcome, held = _argument(arguments, "outcome"), arguments.get("held")
        if not isinstance(held, bool):
            raise ToolError("`held` is missing; send true or false")
        step = self.open
        if step is None:
            raise ToolError(f"no step is open; call {DECLARE} first")
        calls = [
            receipt for receipt in self.receipts() if receipt.n > step.first_receipt and receipt.tool not in STEP_TOOLS
        ]
        inside = Counter(f"{call.tool} ({call.status})" for call in calls if call.tool in step.tools)
        acting = {tool.name for tool in self._tools if not tool.read_only}.difference(step.tools)
        outside = Counter(f"{call.tool} ({call.status})" for call in calls if call.tool in acting)
        unused = [name for name in step.tools if not any(call.tool == name for call in calls)]
        self.open = None
        self.notify(
            StepVerified,
            n=step.n,
            outcome=outcome,
            held=held,
            called=_counted(inside),
            outside=_counted(outside),
            unused=tuple(unused),
        )
        lines = [f"step {step.n} is closed; what it expected {'holds' if held else 'does not hold'}, by your own word"]
        lines.append(f"called in its scope: {', '.join(_counted(inside)) or 'nothing'}")
        lines += [f"called outside its scope: {', '.join(_counted(outside))}"] if outside else []
        lines += [f"declared and not called: {', '.join(unused)}"] if unused else []
        return "\n".join(lines)


def _argument(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolError(f"`{name}` is missing; send it as a text")
    if len(value) > _CHARS:
        raise ToolError(f"`{name}` has {len(value):,} characters; at most {_CHARS:,} are allowed")
    return value.strip()


def _counted(calls: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{name} ×{count}" if count > 1 else name for name, count in calls.items())
