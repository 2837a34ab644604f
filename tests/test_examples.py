"""Every program in examples/, run as a user runs it: its own process, the real SDKs, a model server on this machine."""

import csv
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from delegate.testing import judge_reply
from tests.support import warm
from tests.support.model_server import Call, Fault, ModelServer, Reply

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
HAIKU = "Old river, teach me\nhow you carry every stone\nand still reach the sea\n"
POEM_CALL = {
    "tasks": [
        {
            "goal": "Write haiku.txt.",
            "acceptance_criteria": [{"kind": "file", "path": "haiku.txt"}, "file haiku.txt: it names a river"],
        },
        {"goal": "Write snow.txt.", "acceptance_criteria": [{"kind": "file", "path": "snow.txt"}]},
    ]
}
Answer = Callable[[Call], Reply | Fault]


def run(
    example: str, *arguments: str, server: ModelServer | None = None, key: str = "OPENAI_API_KEY", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run an example with nothing of the developer's environment, in the test's own folder."""
    environment = {"PATH": os.pathsep.join([*warm.path(), os.environ["PATH"]]), "HOME": str(Path.cwd())}
    environment |= variables
    if server is not None:
        urls = {"OPENAI_BASE_URL": server.openai_url, "ANTHROPIC_BASE_URL": server.anthropic_url}
        environment |= {key: "sk-dummy-1234", **urls}
    command = warm.python() if example.endswith(".py") else ["sh"]
    done = subprocess.run(
        [*command, str(EXAMPLES / example), *arguments], env=environment, capture_output=True, text=True, timeout=50
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def family(call: Call) -> Reply:
    """A parent that delegates two poems and tells their verdicts, its children, and their judge."""
    if "delegate_task" in call.tool_names:
        if not call.tool_results:
            return Reply(tool_calls=(("delegate_task", POEM_CALL),))
        return Reply("I was told: " + " / ".join(call.tool_results[-1].splitlines()[:2]))
    if call.wants_json:
        return Reply(judge_reply(c2=("met", "Old river, teach me")))
    if "haiku.txt" in call.texts[0] and not call.tool_results:
        return Reply(tool_calls=(("write_file", {"path": "haiku.txt", "content": HAIKU}),))
    return Reply("I wrote the poem.")  # the second child writes nothing


LOOPS = [("openai_loop.py", "OPENAI_API_KEY", "chat"), ("anthropic_loop.py", "ANTHROPIC_API_KEY", "messages")]


@pytest.mark.parametrize(("example", "key", "api"), LOOPS)
def test_a_loop_gives_the_parent_a_verdict_per_task(example: str, key: str, api: str) -> None:
    with ModelServer(family) as server:
        done = run(example, "Have two poems written.", server=server, key=key)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("I was told: 1 of 2 PASS; task 2 FAIL not_met / task 1: PASS (seen)")
    parents = [call for call in server.calls if "delegate_task" in call.tool_names]
    assert [call.api for call in parents] == [api, api]
    assert parents[1].tool_results[0] in done.stderr
    made, answered = re.findall(r"'(?:\w+_)?id': '((?:call|toolu)_[^']*)'", str(parents[1].body["messages"]))
    assert made == answered


@pytest.mark.parametrize(
    ("loop", "call", "field"),
    [
        (LOOPS[0], {"goals": "Write a poem."}, "goals"),
        (LOOPS[1], {"goal": "Write a poem.", "tier": "deep"}, "tier"),
    ],
    ids=["a wrong name", "a tier above the parent's"],
)
def test_a_loop_tells_the_parent_what_is_wrong(loop: tuple[str, str, str], call: dict[str, str], field: str) -> None:
    def parent(request: Call) -> Reply:
        if not request.tool_results:
            return Reply(tool_calls=(("delegate_task", call),))
        return Reply(f"I was told: {json.loads(request.tool_results[0])['error']['field']}")

    with ModelServer(parent) as server:
        done = run(loop[0], "Have a poem written.", server=server, key=loop[1])
    assert (done.returncode, done.stdout) == (0, f"I was told: {field}\n"), done.stderr


def test_the_anthropic_loop_reads_a_long_report_back() -> None:
    long = "A line of a long report.\n" * 400 + "The last line."

    def parent(call: Call) -> Reply:
        if "delegate_task" not in call.tool_names:
            return Reply(long)
        if not call.tool_results:
            return Reply(tool_calls=(("delegate_task", {"goal": "Report at length."}),))
        if len(call.tool_results) == 1:
            handle = call.tool_results[0].split("handle: ")[1].split()[0]
            return Reply(tool_calls=(("read_delegation", {"handle": handle, "offset": 9_000}),))
        return Reply(f"It ends: {'The last line.' in call.tool_results[1]}")

    with ModelServer(parent) as server:
        done = run("anthropic_loop.py", "Have a long report written.", server=server, key="ANTHROPIC_API_KEY")
    assert (done.returncode, done.stdout) == (0, "It ends: True\n"), done.stderr


def clerk(call: Call) -> Reply:
    """Sorts tickets, the third one in a shape that wasn't asked for; a judge that quotes the reply."""
    if call.wants_json and "exactly once" in call.last_text:
        return Reply(judge_reply(c1=("met", "We are looking into")))
    category = "praise" if "colleague" in call.last_text else "bug"
    return Reply(json.dumps({"category": category, "reply": "We are looking into what you wrote to us."}))


def test_the_fan_out_writes_a_line_with_a_verdict_per_row() -> None:
    with ModelServer(clerk) as server:
        done = run("csv_fanout.py", str(EXAMPLES / "tickets.csv"), "results.csv", server=server)
    assert done.returncode == 1, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "3 of 4 passed; every result is in results.csv",
        "row 1: PASS (met)",
        "row 2: PASS (met)",
        "row 3: FAIL (not_met)",
        "row 4: PASS (met)",
    ]
    with open("results.csv", newline="", encoding="utf-8") as file:
        lines = {line["row"]: line for line in csv.DictReader(file)}
    assert {row: line["verdict"] for row, line in lines.items()} == {"1": "PASS", "2": "PASS", "3": "FAIL", "4": "PASS"}
    assert json.loads(lines["1"]["structured_output"])["category"] == lines["1"]["output.category"] == "bug"
    with open(EXAMPLES / "tickets.csv", newline="", encoding="utf-8") as file:
        assert [lines[str(n)]["text"] for n in range(1, 5)] == [row["text"] for row in csv.DictReader(file)]
    tickets = [call.texts[0] for call in server.calls if "The ticket:" in call.texts[0]]
    assert any("charged twice" in ticket for ticket in tickets)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Your order arrives on 9 November.", "task 1: PASS (seen)"),
        ("Your order arrives soon.", "task 1: FAIL (check, not_met)"),
    ],
)
def test_a_function_is_judged_by_its_receipts_and_report(said: str, line: str) -> None:
    def models(call: Call) -> Reply:
        if call.wants_json:
            return Reply(judge_reply(c3=("met", "arrives on 9 November")))
        assert "expected on 9 November" in call.last_text
        return Reply(said, input_tokens=120, output_tokens=30)

    with ModelServer(models) as server:
        done = run("own_function.py", server=server)
    assert f"\n{line}" in done.stdout, done.stdout + done.stderr
    assert "recorded tool calls: 1; succeeded: look_up_order 1" in done.stdout
    assert "1 model call, 120 input tokens, 30 output tokens" in done.stdout


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ([], 0, "task 1: PASS (proven)"),
        (["echo", "I wrote backup.csv."], 1, "task 1: FAIL (check, not_met)"),
        (["false"], 1, "task 1: FAIL (gate, run_failed)"),
    ],
)
def test_a_program_is_judged_by_what_it_left(command: list[str], code: int, line: str) -> None:
    with ModelServer([]) as server:
        # The setting is for machines without a sandbox.
        done = run("own_cli.py", *command, server=server, DELEGATE_COMMANDS="allow")
    assert f"\n{line}" in done.stdout, done.stdout + done.stderr
    assert done.returncode == code
    assert server.calls == []


def says(verdict: str, quote: str) -> Answer:
    return lambda call: Reply(judge_reply(c3=(verdict, quote)))


def refuses(call: Call) -> Fault:
    return Fault(401)


@pytest.mark.parametrize(
    ("judge", "changed", "code", "printed"),
    [
        (says("met", "Prices are rounded half up"), "CHANGELOG.md", 0, "PASS"),
        (says("met", "Prices are never rounded"), "CHANGELOG.md", 1, "FAIL: evidence_not_found c3 "),
        (refuses, "CHANGELOG.md", 3, "nobody could look: judge_unavailable "),
        (None, "notes.md", 1, "FAIL: not_met c2 "),  # a check decides, and no judge is asked
    ],
    ids=["met", "a quote that isn't there", "no judge", "a failed check"],
)
def test_a_ci_step_ends_with_the_verdicts_exit_code(
    judge: Answer | None, changed: str, code: int, printed: str
) -> None:
    checkout = Path("checkout")  # in which an agent has fixed a bug
    checkout.mkdir()
    (checkout / changed).write_text("- Prices are rounded half up, no longer down.\n")
    (checkout / "test_prices.py").write_text(
        "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n"
    )
    Path("report.md").write_text("I fixed the rounding in prices.py and noted it in CHANGELOG.md.\n")
    with ModelServer(judge or []) as server:
        done = run("judge_in_ci.sh", "report.md", str(checkout), server=server)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.startswith(printed)
    assert json.loads(Path("verdict.json").read_text())["criteria"][0]["outcome"] == "met"
    assert bool(server.calls) == bool(judge)


def test_a_ci_step_without_its_arguments_says_how_it_is_called() -> None:
    done = run("judge_in_ci.sh")
    assert done.returncode == 2
    assert "usage: judge_in_ci.sh REPORT CHECKOUT" in done.stderr


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{path.name}"' in text for path in EXAMPLES.iterdir() if path.is_file())
