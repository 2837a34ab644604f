"""The judged delegation that every contender performs: its requests and the model's replies.

A child makes three model calls (write a note, read it back, report), then a judge makes one. Notes are files in a
folder of the child's own, or, where the tools are functions of the program, kept in memory. All contenders send the
same requests: `ours.capture` records those of one delegation of each kind, and the other contenders repeat them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.model_server import Call, Reply

Json = dict[str, Any]

CRITERIA = (
    "report: The report names the file that was written.",
    "report: The report says how many findings there are.",
)
"""They say what they are about, so that nobody has to read them: all contenders make the same four model calls."""
NOTE = "# Findings\n\n" + "\n".join(
    f"{n}. Retries are capped, and the cap is logged where it bites." for n in range(1, 5)
)
REPORT = "I read the logs and wrote notes.md. There are four findings, all about retries. " + (
    "Each one names the module, the line and the smallest change that fixes it. " * 3
)
_ANSWERS = [
    {"id": "c1", "evidence": "wrote notes.md", "reason": "The report names notes.md.", "verdict": "met"},
    {"id": "c2", "evidence": "There are four findings", "reason": "The report says four.", "verdict": "met"},
]
FUNCTIONS = ("write_note", "read_note")
"""The tools of a child whose tools are functions, with the same arguments as those for files."""
JUDGMENT = json.dumps({"answers": _ANSWERS})


def goal(number: int) -> str:
    """Return the goal of the delegation with this number. All goals are different and have the same length."""
    return f"Read the logs of service {number:06d} and write what you find to notes.md."


def answer(call: Call, delay: float = 0) -> Reply:
    """Return the model's reply: two tool calls, then a report, or a judgment if JSON is requested."""
    if call.wants_json:
        if "Read each of these ids" in call.last_text:
            return Reply(_reading(call.last_text), input_tokens=2_000, output_tokens=400, delay=delay)
        return Reply(JUDGMENT, input_tokens=900, output_tokens=70, delay=delay)
    if call.tool_names and len(done := call.tool_results) < 2:
        write, read = ("write_file", "read_file") if "write_file" in call.tool_names else FUNCTIONS
        step = (read, {"path": "notes.md"}) if done else (write, {"path": "notes.md", "content": NOTE})
        return Reply(tool_calls=(step,), input_tokens=700, output_tokens=60, delay=delay)
    return Reply(REPORT, input_tokens=800, output_tokens=70, delay=delay)


def _reading(request: str) -> str:
    """Return the reply of a model that is asked what criteria are about: all of them are about the report."""
    lists: Json = {"files": [], "tools": [], "names": [], "allowed": []}
    part = {"text": "x", "about": "report", **lists, "claim": False, "whole": False}
    ids = request.rpartition("exactly once: ")[2].split(", ")
    return json.dumps({"criteria": [{"id": id, "parts": [part]} for id in ids], "effects": []})


@dataclass(frozen=True)
class Workload:
    """The requests that delegate sends for one delegation, for the other contenders to repeat."""

    model: str
    child_system: str
    child_user: str
    tools: list[Json]
    judge_system: str
    judge_user: str
    response_format: Json
    conversation: list[Json]
    """An agent's conversation of 100 messages in the Chat Completions format."""
    with_functions: Json
    """The fields of the same workload of a child whose tools are functions. Empty in that one."""

    @classmethod
    def from_calls(cls, calls: list[Call], with_functions: "Workload | None" = None) -> Self:
        """Create the workload from the four recorded calls of one delegation."""
        first, judge = calls[0], calls[-1]
        return cls(
            model=first.model,
            child_system=first.system,
            child_user=first.last_text,
            tools=first.body["tools"],
            judge_system=judge.system,
            judge_user=judge.last_text,
            response_format=judge.body["response_format"],
            conversation=conversation(first.system),
            with_functions=asdict(with_functions) if with_functions else {},
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def child_messages(self) -> list[Json]:
        return [{"role": "system", "content": self.child_system}, {"role": "user", "content": self.child_user}]

    def judge_messages(self) -> list[Json]:
        return [{"role": "system", "content": self.judge_system}, {"role": "user", "content": self.judge_user}]

    def check(self, report: str, judgment: Json) -> None:
        """Check a judgment in the simplest way a user could."""
        answers = judgment["answers"]
        assert len(answers) == len(CRITERIA)
        assert all(answer["verdict"] == "met" and answer["evidence"] in report for answer in answers)


def use_tool(folder: Path, name: str, args: Json) -> str:
    """Run one of the delegation's two tools for files, in a minimal implementation."""
    path = folder / args["path"]
    if name == "read_file":
        return path.read_text()
    path.write_text(args["content"])
    return f"wrote {path.name}"


_notes: dict[str, str] = {}


def use_function(name: str, args: Mapping[str, Any]) -> str:
    """Run one of the delegation's two functions."""
    if name == "read_note":
        return _notes[args["path"]]
    _notes[args["path"]] = args["content"]
    return f"wrote {args['path']}"


def conversation(system: str) -> list[Json]:
    """Return a conversation: system, user, then 49 turns of one tool call and its reply."""
    messages: list[Json] = [{"role": "system", "content": system}, {"role": "user", "content": goal(0)}]
    for n in range(49):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"logs/{n}.txt"})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"line {n}: the cap was reached after 3 retries"},
        ]
    return messages
