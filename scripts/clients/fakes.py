"""The scripted models: the parent's, which calls the tool, and the children's and judge's."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.clients.wire import Answered, How, Listed, answered, calling, listed, searching, waiting
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import verdicts

Json = dict[str, Any]
HANDLE = re.compile(r"(?:\b|(?<=\\n))[0-9a-f]{12,32}-\d+\b")
VERDICTS = (re.compile(r"task \d+: (?:PASS|FAIL)"), re.compile(r"\bverdict\W{1,8}(?:PASS|FAIL)"))
"""A verdict in the result's text, and in its JSON."""
QUESTION: Json = {"question": "Which color?", "options": ["red", "blue"]}
ANSWER, CHOSEN = "2", "Option 2: blue"
"""What the parent's model or its user answers, and how the child reads it."""
RUNNING = re.compile(r"running in the background|status\W{1,6}running", re.IGNORECASE)
TOOL, READ, MESSAGE = "delegate_task", "read_delegation", "message_delegation"
CHILD, JUDGE = "gpt-6.1-terra", "gpt-6-luna"
_SEARCHES = ("tool_search", "ToolSearch")
_MOST_SEARCHES = 3
"""One for each of the tools."""


@dataclass(frozen=True)
class Turn:
    """What the parent's model calls next: one tool, once or several times at once."""

    tool: str
    calls: Sequence[Json]


Plan = Callable[[Sequence[str], Listed | None], Turn | None]
"""The parent's next turn, from the results that it has read so far, and its tool for reading reports; None: it ends."""


@dataclass
class Parent:
    """The parent's model. It finds the tools in each request, and follows the plan."""

    plan: Plan
    how: How
    requests: list[Call] = field(default_factory=list[Call])
    """The requests of the client's main conversation, and not those for a title or the like."""

    def __call__(self, call: Call) -> Reply | Fault:
        tools = {tool.name: tool for tool in listed(call)}
        done = results(call)
        mine, search = _named(tools.values(), TOOL), next((tools[name] for name in _SEARCHES if name in tools), None)
        if self.how == "code" and mine is None and "exec" in tools:
            mine = Listed(TOOL, "", {}, "mcp__delegate")
        if not tools or call.wants_json:
            return Reply(_SIDE_ANSWER if call.wants_json else "Delegation")
        self.requests.append(call)
        if cell := _running_cell(call):
            return waiting(call, cell)
        if mine is None:
            searched = any(one.tool in _SEARCHES for one in answered(call)) or "tool_search_output" in str(call.raw)
            return searching(call, search) if search and not searched else Reply("I have no such tool.")
        reading = _named(tools.values(), READ)
        if self.how == "code":
            reading = Listed(READ, "", {}, mine.namespace)
        turn = self.plan([one.text for one in done], reading)
        if turn is None:
            return Reply("I have read the results.")
        searches = sum(search is not None and one.tool == search.name for one in answered(call))
        used = mine if turn.tool == TOOL else _named(tools.values(), turn.tool)
        if used is None and self.how != "code" and search and searches < _MOST_SEARCHES:
            return searching(call, search, turn.tool)
        used = used or Listed(turn.tool, "", {}, mine.namespace)
        # Gemini CLI offers this parameter beside those of each tool, so its models use it.
        more: Json = {"wait_for_previous": False} if "wait_for_previous" in used.schema.get("properties", {}) else {}
        return calling(call, used, [{**arguments, **more} for arguments in turn.calls], self.how)


_SIDE_ANSWER = '{"reasoning": "-", "next_speaker": "user", "title": "Delegation", "complexity_score": 1}'


def results(call: Call) -> list[Answered]:
    """The results of the server's tools in a request."""
    names = (TOOL, READ, MESSAGE)
    ours = [one for one in answered(call) if one.tool in {"exec", "wait"} or any(name in one.tool for name in names)]
    return [one for one in ours if not _CELL.search(one.text)]


_CELL = re.compile(r"\AScript running with cell ID (\S+)")


def _running_cell(call: Call) -> str:
    """The script that Codex leaves running after some time, if the last call was one."""
    last = answered(call)[-1:]
    found = _CELL.search(last[0].text) if last else None
    return found[1] if found else ""


def verdicts_in(text: str) -> int:
    """How many verdicts a text has, each counted once if it is there as text and as JSON."""
    return max(
        len(set(pattern.findall(text)) if n == 0 else pattern.findall(text)) for n, pattern in enumerate(VERDICTS)
    )


def _named(tools: Any, name: str) -> Listed | None:
    return next((tool for tool in tools if tool.name.endswith(name)), None)


@dataclass
class Children:
    """The model of children and judges. A child's report is always the same; `seconds` is how long it takes."""

    seconds: float = 0
    command: str = ""
    """A command that each child runs in its shell first."""
    question: Json | None = None
    """What each child asks its parent first."""
    started: int = 0
    keys: set[str] = field(default_factory=set[str])
    """The keys that the requests had."""

    def __call__(self, call: Call) -> Reply:
        self.keys.add(call.headers.get("authorization", ""))
        if call.wants_json:
            found = "not_met" if "the answer is 43" in call.last_text else "met"
            return Reply(verdicts(c1=(found, "The answer is 42.")))
        done = len(call.tool_results)
        self.started += not done
        if self.command and not done:
            return Reply(tool_calls=(("run_shell", {"command": self.command, "timeout_seconds": 300}),))
        if self.question and not done:
            return Reply(tool_calls=(("ask_parent", self.question),))
        if self.question:
            return Reply(f"The answer is 42. {'It is blue.' if CHOSEN in str(call.body) else 'Nobody told me.'}")
        steps = 10 if self.seconds > 0 else 0
        if done < steps:
            return Reply(tool_calls=(("think", {"thought": f"Step {done}."}),), delay=self.seconds / steps)
        number = re.search(r"answer number (\d)", call.texts[0])
        return Reply(f"The answer to {number[1]} is 42." if number else "The answer is 42.")


def serving(script: Callable[[Call], Any]) -> ModelServer:
    """A server of this model, which also answers what clients ask besides."""
    models = ("test-model", CHILD, JUDGE, "gpt-6.1-sol", "gpt-5.5", "gemini-2.5-pro")
    return ModelServer(script, models=models, others=lambda call: Fault(404, {"error": {"message": "not here"}}))
