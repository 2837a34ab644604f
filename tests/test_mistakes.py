"""Mistakes that people make, each refused before anything is spent, in one line that names what is wrong and the fix.

Those of a command are in `COMMANDS`, those of a program in `PROGRAMS`. More that need a server are in
tests/cli/test_first_hour.py.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import delegate as package
from delegate import Delegator, types
from delegate.contract.problems import KINDS
from delegate.policy import settings
from delegate.testing import Scripted
from delegate.types.errors import DelegateError
from tests.cli.command import delegate, openai_at
from tests.support.model_server import ModelServer, Reply

GOAL = ("run", "Write note.md", "-c", "file: note.md")
BATCH = ("-o", "r.jsonl", "--goal", "Greet {name}")
Task, Wrong = cast("Any", package.Task), cast("Any", Delegator)
Parent, Workspace = cast("Any", package.Parent), cast("Any", types.Workspace)
Settings, load_settings = cast("Any", package.Settings), cast("Any", settings.load_settings)
"""Type checkers would refuse most of these programs."""
LONGEST = 400
"""Characters of a line that can be read at once."""


class Mistake(NamedTuple):
    arguments: tuple[str, ...]
    words: tuple[str, ...]
    """What the line has to say."""
    file: str | bytes = ""
    """What the file has that the arguments name: the first one with a dot, or `delegate.toml`."""
    environment: tuple[str, str] | None = None


def of_file(name: str, text: str | bytes, *words: str) -> Mistake:
    if name.endswith((".json", ".yaml", ".toml")):
        return Mistake(("run", "--file", name), words, text)
    arguments = ("batch", name, *(BATCH if name.endswith(".csv") else BATCH[:2]))
    return Mistake(arguments, words, text)


def of_settings(text: str | bytes, *words: str) -> Mistake:
    return Mistake(GOAL, ("delegate.toml", *words), text)


def of_variable(name: str, value: str, *words: str) -> Mistake:
    return Mistake(GOAL, (name, *words), environment=(name, value))


def task(**fields: Any) -> str:
    return json.dumps([{"goal": "g", **fields}])


def needing(goal: str, **fields: Any) -> str:
    """Two tasks, of which the second needs the first, `a`."""
    first = {"id": "a", "goal": "g", "acceptance_criteria": ["file: a"]}
    return json.dumps([first, {"goal": goal, "needs": ["a"], **fields}])


def rows(goal: str, **fields: Any) -> str:
    return "\n".join(map(json.dumps, json.loads(needing(goal, **fields))))


def of_csv(goal: str, *words: str) -> Mistake:
    return Mistake(("batch", "t.csv", "-o", "r.jsonl", "--goal", goal), ("t.csv", *words), "name\nx\n")


COMMANDS = {
    # files of tasks
    "no goal": of_file("t.json", "[{}]", "task 1", "`goal` is missing"),
    "an empty goal": of_file("t.json", '[{"goal": " "}]', "task 1", "`goal` is empty"),
    "a goal that is a number": of_file("t.json", '[{"goal": 1}]', "`goal`", "should be a string"),
    "a misspelled field": of_file("t.json", task(contxt="c"), "`contxt`", "did you mean `context`?"),
    "criteria by another name": of_file("t.json", task(criteria=["x"]), "did you mean `acceptance_criteria`?"),
    "one criterion, no list": of_file("t.json", task(acceptance_criteria="x"), "`acceptance_criteria`", "a list"),
    "a criterion without its path": of_file("t.json", task(acceptance_criteria=[{"kind": "file"}]), ".path`", "add it"),
    "a kind by another name": of_file("t.json", task(acceptance_criteria=[{"kind": "bash"}]), "did you mean `shell`?"),
    "a criterion without a kind": of_file("t.json", task(acceptance_criteria=[{"path": "a"}]), '"kind": "file"'),
    "about nothing": of_file(
        "t.json",
        task(acceptance_criteria=[{"kind": "text", "text": "t", "about": "haiku"}]),
        "about`",
        "path of a file",
    ),
    "a tier that isn't": of_file("t.json", task(tier="fsat"), "`tier`", "'deep', 'standard' or 'fast'"),
    "a negative limit": of_file("t.json", task(max_cost_usd=-1), "`max_cost_usd`", "greater than 0"),
    "goal mode without criteria": of_file("t.json", task(mode="goal"), "needs acceptance_criteria"),
    "a workspace without a path": of_file("t.json", task(workspace={"mode": "copy"}), "`workspace`", "needs a path"),
    "an unknown role": of_file("t.json", task(role="tester"), "role", "tester"),
    "a report as tasks": of_file("t.json", '{"error": null, "results": []}', "results, not tasks", "the file of tasks"),
    "a task without a list": of_file("t.json", '{"goal": "g"}', "`tasks`"),
    "a list of numbers": of_file("t.json", "[1]", "task 1", "write an object with at least `goal`"),
    "YAML without quotes": of_file(
        "t.yaml", "- goal: g\n  acceptance_criteria: [file: a.txt]\n", "quotes", '"file: a.txt"'
    ),
    "YAML with a field twice": of_file(
        "t.yaml",
        "- goal: g\n  acceptance_criteria: ['shell: false']\n  acceptance_criteria: ['file: a']\n",
        "'acceptance_criteria' is there twice",
        "line 3",
    ),
    "JSON with a field twice": of_file(
        "t.json",
        '[{"goal": "g", "acceptance_criteria": [], "acceptance_criteria": []}]',
        '"acceptance_criteria" is twice',
        "that begins with \"{'goal': 'g'\"",
    ),
    "YAML with a tab": of_file("t.yaml", "- goal: g\n\tcontext: c\n", "not valid YAML", "line 2", "correct the file"),
    "YAML in Latin-1": of_file("t.yaml", b"- goal: Caf\xe9\n", "not UTF-8", "save it as UTF-8"),
    "TOML without quotes": of_file("t.toml", "[[tasks]]\ngoal = g\n", "not valid TOML", "line 2", "correct the file"),
    "a file of another kind": Mistake(("run", "--file", "t.txt"), ("can't tell its format", ".json"), "g"),
    "a file that isn't there": Mistake(("run", "--file", "absent"), ("absent", "a name that ends in .json")),
    "a Word file": Mistake(("batch", "t.docx", *BATCH), ("t.docx", ".csv"), b"PK"),
    "a truth as a number": of_file("t.json", task(max_steps=True), "task 1", "`max_steps`", "whole number", "'true'"),
    "a file that is absent and has a text": of_file(
        "t.json",
        task(acceptance_criteria=[{"kind": "file", "path": "a", "exists": False, "contains": "x"}]),
        "`exists` is false, and `contains` needs the file",
    ),
    "a reference of batches": of_file(
        "t.json", needing("{{ a.report }}"), "{{ a.report }}", "write inputs/a/report.md"
    ),
    # batches
    "a reference that isn't closed": of_file("t.jsonl", rows("{{ a.report }"), "{{ a.report }", "{{ id.report }}"),
    "a reference to another part": of_file("t.jsonl", rows("{{a.result}}"), "{{a.result}}", "{{ id.report }}"),
    "a reference in one brace": of_file("t.jsonl", rows("{a.report}"), "{a.report}", "{{ id.report }}"),
    "a reference in a criterion": of_file(
        "t.jsonl", rows("x", acceptance_criteria=["report: {{ a.report }}"]), "{{ a.report }}", "in goal or context"
    ),
    "several attempts": of_file("t.jsonl", task(attempts=2)[1:-1], "row 1", "one attempt"),
    "a column in two braces": of_csv("CEO of {{name}}", "name no column", "{name}; the columns are: name"),
    "a column that isn't closed": of_csv("CEO of {name", "name no column", "{name}; the columns are: name"),
    "no column": of_csv("CEO", "name no column", "{name}; the columns are: name"),
    "CSV in Latin-1": of_file("t.csv", b"name\nCaf\xe9\n", "row 1", "not UTF-8", "save the file as UTF-8"),
    "CSV in UTF-16": of_file("t.csv", "name\nx\n".encode("utf-16"), "not UTF-8", "save the file as UTF-8"),
    "CSV with a column twice": of_file("t.csv", "name,name\na,b\n", "two columns are named 'name'", "rename one"),
    "CSV with a field too many": of_file("t.csv", "name,age\na,b,c\n", "row 1", "3 fields", "the header has 2"),
    "CSV with only a header": of_file("t.csv", "name\n", "t.csv"),
    "an empty CSV": of_file("t.csv", "\n", "t.csv"),
    "JSONL that isn't": of_file("t.jsonl", '{"goal": "g",}\n', "row 1", "JSON"),
    "JSONL with a field twice": of_file("t.jsonl", '{"goal": "g", "goal": "h"}\n', "row 1", 'the key "goal" is twice'),
    "JSONL of texts": of_file("t.jsonl", '"g"\n', "row 1", "write an object with at least `goal`"),
    "JSONL in Latin-1": of_file("t.jsonl", b'{"goal": "Caf\xe9"}\n', "row 1", "save the file as UTF-8"),
    "results as tasks": of_file(
        "t.jsonl", '{"handle": "a-0", "verdict": "PASS"}\n', "row 1", "a result", "file of tasks"
    ),
    "templates for tasks": Mistake(("batch", "t.jsonl", *BATCH), ("templates are for the columns of a CSV",), task()),
    "results nowhere": Mistake(("batch", "t.csv", "--goal", "Greet {name}"), ("-o", ".jsonl or .csv"), "name\nx\n"),
    "no such run": Mistake(("batch", "--resume", "1f2e3d"), ("1f2e3d",)),
    # settings
    "a setting by another name": of_settings("modle = 'x'\n", "modle", "did you mean model?"),
    "a setting of another type": of_settings("max_children = 'many'\n", "max_children", "a whole number"),
    "a setting out of range": of_settings("max_cost_usd = -1\n", "max_cost_usd", "greater than 0"),
    "a setting that isn't a choice": of_settings("sandbox = 'maybe'\n", "sandbox", "'auto'"),
    "settings in Latin-1": of_settings(b"# caf\xe9\n", "not UTF-8", "save it as UTF-8"),
    "settings that are YAML": of_settings("model: gpt\n", "TOML", "line 1", "correct it there"),
    "a variable by another name": of_variable("DELEGATE_MODLE", "x", "did you mean DELEGATE_MODEL?"),
    "a variable that is no number": of_variable("DELEGATE_MAX_CHILDREN", "many", "a whole number"),
    "a home that is a device": of_variable("DELEGATE_HOME", "/dev/full", "not a folder", "nothing was run", "writable"),
    "a home that is a file": of_variable("DELEGATE_HOME", "/etc/hosts", "nothing was run", "to a writable folder"),
    # commands
    "a model that isn't": Mistake((*GOAL, "--model", "gpt-9"), ("'gpt-9'", "use one of: gpt-", ", gpt-")),
    "no goal on the line": Mistake(("run",), ("GOAL", "--file")),
    "a folder that isn't there": Mistake(("run", "x", "--in", "absent"), ("absent", "folder")),
    "both kinds of folder": Mistake(("run", "x", "--copy", "--worktree"), ("--worktree", "leave out one")),
    "a number that isn't": Mistake((*GOAL, "--max-steps", "many"), ("--max-steps", "integer")),
    "claims without goal mode": Mistake((*GOAL, "--max-claims", "2"), ("--max-claims", "--until-verified")),
    "criteria missing for a judge": Mistake(("judge", "--report", "x"), ("no criteria", "add -c CRITERION")),
    "criteria twice for a judge": Mistake(
        ("judge", "--goal", "g", "--criteria", "t.json"),
        ("t.json", '"acceptance_criteria" is twice'),
        '{"acceptance_criteria": ["file: a"], "acceptance_criteria": ["file: b"]}',
    ),
    "a criterion with a field twice": Mistake(
        ("judge", "--goal", "g", "-c", '{"kind": "file", "path": "a", "path": "b"}'), ('the key "path" is twice',)
    ),
    "a ruling twice": Mistake(
        ("rule", "--import", "t.jsonl"), ("t.jsonl:1", '"ruling" is twice'), '{"ruling": "met", "ruling": "not_met"}'
    ),
    "no such task": Mistake(("show", "1f2e3d4c"), ("1f2e3d4c",)),
    "nothing to rule on": Mistake(("rule", "last", "c1", "met"), ("no run is on record",)),
    "a ruling that isn't": Mistake(("rule", "last", "c1", "maybe"), ("'maybe'", "'met', 'not_met'")),
    "a state spelled the other way": Mistake(("judge", "--status", "canceled"), ("'canceled'", "'cancelled'")),
    "an unknown dialect": Mistake(("tool", "--dialect", "opnai"), ("opnai", "openai")),
    "a port that isn't": Mistake(("serve", "--port", "http"), ("--port", "integer")),
    "a port out of range": Mistake(("serve", "--port", "99999"), ("--port", "65535")),
    "a port with its host": Mistake(("serve", "--port", "127.0.0.1:80"), ("--port", "integer")),
    "a host that all can reach": Mistake(("serve", "--host", "0.0.0.0"), ("--host", "use 127.0.0.1")),
    "a token that can be guessed": Mistake(("serve", "--token", "secret"), ("--token", "at least 16")),
    "no token": Mistake(("serve", "--tokens", "t.conf"), ("t.conf has no token", "NAME=TOKEN"), "\n"),
    "a token without a name": Mistake(("serve", "--tokens", "t.conf"), ("t.conf, line 1", "NAME=TOKEN"), "secret\n"),
    "tokens that aren't there": Mistake(("serve", "--tokens", "absent"), ("absent", "name a file that exists")),
    "no program as runner": Mistake(("serve", "--runner", ""), ("command is empty", "name a program")),
    "an unknown client": Mistake(("mcp", "install", "cursr"), ("'cursr'", "did you mean cursor?")),
    "a client's other name": Mistake(("mcp", "install", "claude-code"), ("did you mean claude?",)),
    "a key in place of its name": Mistake(
        ("mcp", "install", "codex", "--key", "sk-dummy-1234567890"), ("--key", "name the variable")
    ),
    "broken settings of a client": Mistake(
        ("mcp", "install", "codex", "--write", "--file", "t.toml"),
        ("t.toml", "can't be read", "correct the file", "without --write"),
        "model = [\n",
    ),
    "a folder as a client's settings": Mistake(
        ("mcp", "install", "claude", "--write", "--file", "/"), ("/", "Is a directory", "correct the file")
    ),
    "an unknown hook": Mistake(("hook", "claud"), ("claud",)),
}


PLANNED = [name for name, mistake in COMMANDS.items() if mistake.arguments[0] in ("run", "batch")]
"""What a plan refuses too. Only what it needs none of isn't in them."""
NOT_PLANNED = {"results nowhere", "a home that is a device", "a home that is a file", "no such run"}


@pytest.mark.parametrize("name", [name for name in PLANNED if name not in NOT_PLANNED])
def test_a_plan_refuses_what_is_refused_before_any_work(name: str) -> None:
    mistake = COMMANDS[name]
    test_a_mistake_at_a_command_is_one_line(mistake._replace(arguments=(*mistake.arguments, "--plan")))


@pytest.mark.parametrize("results", ["r.txt", "absent/r.jsonl", "t.jsonl"])
def test_a_plan_refuses_results_that_cant_be_written(results: str) -> None:
    arguments = ("batch", "t.jsonl", "-o", results, "--plan")
    test_a_mistake_at_a_command_is_one_line(Mistake(arguments, (results,), task()[1:-1]))


HONEST = [
    'Return {{"name": "{name}"}}.', "Write \\frac{1}{2} for {name}.", 'Print(f"{x!r}") for {name}.', "{name}: {2,3}",
    "awk '{print $1}' {name}", "${HOME} {name}", "{{ b.name }} {name}", "{ name }", "Jinja: {{ user.name }}, {name}",
    "Go: {{.Values.x}} {name}", "${{ secrets.KEY }} {name}", "\\begin{{name}} of {name}", "function() {} {name}",
    "{{{name}}} and {name}", "{name} {{name}}", "dict: {'a': 1} {name}", "{% if x %}{name}{% endif %}", "{name}\n{ }",
    "CSS a{color:red} {name}", "{name:>10}? {name}", "regex \\d{3} {name}", "shell {a,b}.txt {name}", "{name}{name}",
    "{#each}{name}", "C++ int a[]{1}; {name}", "set {1, 2, 3} {name}", "{}{name}", "Rust println!(\"{}\") {name}",
    "handlebars {{#if a}} {name}", "\\textbf{x {name}",
]  # fmt: skip


@pytest.mark.parametrize("goal", HONEST)
def test_braces_of_other_languages_are_no_mistakes(goal: str) -> None:
    Path("t.csv").write_text("name\nx\n")
    Path("t.jsonl").write_text(rows(goal))
    for command in (("t.csv", "--goal", goal), ("t.jsonl",)):
        with ModelServer([]) as server:
            done = delegate("batch", *command, "-o", "r.jsonl", "--plan", **openai_at(server))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mistake", COMMANDS.values(), ids=COMMANDS)
def test_a_mistake_at_a_command_is_one_line(mistake: Mistake) -> None:
    if mistake.file:
        named = next((one for one in mistake.arguments if one.startswith("t.")), "delegate.toml")
        data = mistake.file.encode() if isinstance(mistake.file, str) else mistake.file
        Path(named).write_bytes(data)
        Path(named).chmod(0o600)
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    with ModelServer([]) as server:
        changed = dict([mistake.environment]) if mistake.environment else {}
        done = delegate(*mistake.arguments, **{**openai_at(server), **changed})
        assert server.calls == []
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    _says(done.stderr, mistake.words)
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


def _says(line: str, words: tuple[str, ...]) -> None:
    assert "\n" not in line.rstrip("\n")
    assert "pydantic" not in line
    assert len(line) <= LONGEST, line
    for word in words:
        assert word in line, line


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with ModelServer([]) as server:
        port = server.openai_url.split(":")[2].partition("/")[0]
        for command in ("serve", "view"):
            done = delegate(command, "--port", port)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
            _says(done.stderr, (f"port {port}", "ddress already in use", "choose another --port"))
            assert "bind" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_settings_of_a_client_that_can_t_be_written_are_named() -> None:
    Path("t.json").write_text("{}")
    Path().chmod(0o500)
    try:
        done = delegate("mcp", "install", "gemini", "--write", "--file", "t.json")
    finally:
        Path().chmod(0o700)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    _says(done.stderr, ("t.json", "Permission denied", "without --write"))


@pytest.mark.parametrize("stdin", ["", "{", "[]", "{}", '"SubagentStop"'])
def test_a_hook_that_is_told_nothing_says_who_has_to_run_it(stdin: str) -> None:
    done = delegate("hook", stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    _says(json.loads(done.stdout)["systemMessage"], ("hook_event_name", "as its hook for one of", "SubagentStop"))


def test_a_goal_of_two_megabytes_names_what_it_will_cost() -> None:
    Path("t.json").write_text(json.dumps([{"goal": "x" * 2_000_000, "acceptance_criteria": ["file: a.md"]}]))
    with ModelServer(lambda _: Reply("Done.")) as server:
        done = delegate("run", "--file", "t.json", **openai_at(server))
    line = next(line for line in done.stderr.splitlines() if "2,000,000 characters" in line)
    assert re.search(r"cost: \$\d+\.\d+ likely", line), line
    assert "put long text into a file" in line


def tool(**wrong: Any) -> Callable[[Any], object]:
    def f(x: int) -> str:
        """Do it."""
        return "done"

    return lambda _: run(Task(goal="x"), tools=[package.Tool.from_function(f, **wrong)])


def policy(*tools: str) -> Callable[[Any], object]:
    rules = {"rules": [{"decision": "deny", "reason": "r", "tools": list(tools)}]}
    return lambda _: run(Task(goal="x"), policy=rules)


def role(**fields: Any) -> Callable[[Any], object]:
    roles: Any = {"r": {"description": "d", **fields}}
    return lambda _: run(Task(goal="x", role="r"), roles=roles)


def run(task: Any, **options: Any) -> Any:
    with Delegator(client=Scripted([]), **options) as delegator:
        return delegator.run_sync(task)


SLIP = {"policy": {"rules": [{"decision": "deny", "reason": "r", "tools": ["run_shel"]}]}}


def judged(delegator: Any, **fields: Any) -> object:
    return delegator.wait_for(delegator.judge(**{"goal": "x", "acceptance_criteria": ["x"], "report": "x", **fields}))


PROGRAMS: dict[str, tuple[Callable[[Any], object], tuple[str, ...]]] = {
    "a text as task": (lambda d: d.run_sync("x"), ("'x' is str, not a Task", "write Task(goal='x')")),
    "a list of tasks": (lambda d: d.run_sync([Task(goal="x")]), ("a list, not a Task", "write *tasks")),
    "a list of tasks to await": (lambda d: asyncio.run(d.run([Task(goal="x")])), ("a list, not a Task",)),
    "a text to await": (lambda d: asyncio.run(d.run("x")), ("'x' is str, not a Task", "write Task(goal='x')")),
    "no task": (lambda d: d.run_sync(), ("no task to run",)),
    "None as task": (lambda d: d.run_sync(None), ("None is NoneType, not a Task",)),
    "a background of nothing": (lambda d: d.wait_for(awaited(d.background.start())), ("no task to run",)),
    "a handle that isn't": (lambda d: d.wait_for(d.resume("1f2e-0")), ("no such record",)),
    "a batch of none at a time": (lambda d: d.batches.run([TASK], concurrency=0), ("concurrency is 0", "above 0")),
    "a batch of a text at a time": (lambda d: d.batches.run([TASK], concurrency="3"), ("concurrency is '3'",)),
    "a batch below no cost": (lambda d: d.batches.run([TASK], max_cost_usd=-1), ("max_cost_usd is -1", "above 0")),
    "a batch of no minutes": (lambda d: d.batches.run([TASK], max_minutes=0), ("max_minutes is 0", "above 0")),
    "a batch to a failure": (lambda d: d.batches.run([TASK], stop_after_failures=True), ("failures is True",)),
    "a truth as a number": (lambda _: Task(goal="x", max_steps=True), ("`max_steps`", "whole number")),
    "a truth in a criterion": (
        lambda _: Task(goal="x", acceptance_criteria=[{"kind": "shell", "command": "x", "exit_code": True}]),
        ("exit_code`", "whole number"),
    ),
    "a truth as a setting": (lambda _: Wrong(max_concurrent=True), ("max_concurrent", "whole number")),
    "a dict as task": (lambda d: d.run_sync({"goal": "x"}), ("a dict, not a Task; write Task(**fields)",)),
    "a dict to start": (lambda d: asyncio.run(d.background.start({"goal": "x"})), ("a dict, not a Task",)),
    "a list to start": (lambda d: asyncio.run(d.background.start([Task(goal="x")])), ("write *tasks",)),
    "a batch of a number": (lambda d: d.batches.run(1), ("1 is int, not a Task",)),
    "a batch of texts": (lambda d: d.batches.run(["x"]), ("'x' is str, not a Task", "write Task(goal='x')")),
    "a batch of one text": (lambda d: d.batches.run("x"), ("'x' is str, not a Task",)),
    "criteria by another name": (lambda _: Task(goal="x", criteria=[]), ("did you mean `acceptance_criteria`?",)),
    "a workspace's field": (lambda _: Task(goal="x", workspace={"kind": "copy"}), ("`workspace.kind` is not",)),
    "a goal without its name": (lambda _: Task("x"), ("only named arguments", "Task(goal=…)")),
    "no goal": (lambda _: Task(), ("`goal` is missing",)),
    "an empty goal": (lambda _: Task(goal=""), ("`goal` is empty",)),
    "a text as criteria": (lambda _: Task(goal="x", acceptance_criteria="y"), ("_criteria` should be a list",)),
    "a short form that isn't": (lambda _: Task(goal="x", acceptance_criteria=["shel: y"]), ("`shel:`", "did you mean")),
    "a number as criterion": (lambda _: Task(goal="x", acceptance_criteria=[3]), ("should be a string, or an object",)),
    "a kind that isn't": (lambda _: Task(goal="x", acceptance_criteria=[{"kind": "fil"}]), ("`kind` is one of text",)),
    "a workspace of another type": (lambda _: Workspace(mode="copy", path=3), ("`path` should be a path, got 3",)),
    "a parent of another type": (lambda _: Parent(model=3), ("Parent: `model` should be a string, got 3",)),
    "a criterion to judge": (lambda d: judged(d, acceptance_criteria=[3]), ("acceptance_criteria[0]` should be a",)),
    "a goal to judge": (lambda d: judged(d, goal=3), ("`goal` should be a string, got 3",)),
    "a tier that isn't": (lambda _: Task(goal="x", tier="fsat"), ("`tier`", "'deep', 'standard' or 'fast'")),
    "a setting by another name": (lambda _: Wrong(modle="x"), ("modle", "did you mean model?")),
    "a model in place of settings": (lambda _: Wrong("gpt-5"), ("settings", "Delegator(model=…)")),
    "an unknown dialect": (lambda d: d.tool("opnai"), ("'opnai'", "use one of openai")),
    "arguments that are no JSON": (lambda d: d.call_sync('{"goal": x}'), ("not valid JSON",)),
    "arguments with a field twice": (lambda d: d.call_sync('{"goal": "x", "goal": "y"}'), ('the key "goal" is twice',)),
    "arguments that are null": (lambda d: d.call_sync(None), ("null", "not a JSON object")),
    "tasks without a goal": (lambda d: d.call_sync({"tasks": [{}]}), ("goal` is missing",)),
    "a goal of another type": (lambda d: d.call_sync({"tasks": [{"goal": 3}]}), ("goal`",)),
    "a text as a flag of a tool": (tool(read_only="no"), ("the tool f", "read_only is 'no'", "True or False")),
    "a text as deeds of a tool": (tool(acts="false"), ("acts is 'false'", "True or False")),
    "a text as effects": (tool(effects="external"), ("the tool f", "effects takes a list of commands")),
    "an effect in capitals": (tool(effects=["External"]), ("effects takes a list", "delegation, external")),
    "an effect that isn't": (tool(effects=["disk"]), ("effects takes a list", "files, network")),
    "a parameter that isn't": (tool(identifies=["y"]), ("identifies takes a list of x",)),
    "a schema of results that isn't": (tool(succeeded={"type": "objekt"}), ("succeeded", "$.type", "'objekt'")),
    "a rule for a misspelled tool": (policy("run_shel"), ("policy.rules[0].tools", "did you mean `run_shell`?")),
    "a role's rule for one": (role(**SLIP), ("roles.r.policy.rules[0].tools", "did you mean `run_shell`?")),
    "a role with a misspelled tool": (role(tools=["raed_file"]), ("there is no tool 'raed_file'",)),
    "a role without one": (role(without_tools=["run_shel"]), ("there is no tool 'run_shel'",)),
    "a field of the operator": (lambda d: d.call_sync({"goal": "x", "max_steps": 3}), ("set by the operator",)),
}  # fmt: skip


TASK = package.Task(goal="x")


async def awaited(delegation: Any) -> object:
    return await (await delegation)


def test_the_first_program_without_a_key_says_what_is_missing() -> None:
    program = "from delegate import Delegator, Task; print(Delegator().run_sync(Task(goal='x')).results)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "CallError: no model can be called: there is no API key\nhint: set ANTHROPIC_API_KEY" in done.stderr


VALUES: tuple[object, ...] = (3, -1, 1.5, [], [3], ["x"], {}, {"x": 1}, None, True, b"x", "x", "")
RAW = re.compile("[Ii]nput|valid (string|dictionary|tuple|number|integer|boolean)|pydantic|instance of|constrained|Any")


def of_criterion(**fields: Any) -> object:
    return Task(goal="x", acceptance_criteria=[fields])


def refusals() -> Iterator[tuple[str, str]]:
    """What is said of every field of a task, its workspace, a criterion and the settings, with values of any type."""
    criteria = [
        (kind, field.alias or name) for kind, model in KINDS.items() for name, field in model.model_fields.items()
    ]
    makers: list[tuple[str, Callable[..., object], dict[str, Any]]] = [
        *((field, Task, {"goal": "x"}) for field in Task.model_fields),
        *((field, Workspace, {"mode": "worktree", "path": "x"}) for field in Workspace.model_fields),
        *((field, of_criterion, {"kind": kind}) for kind, field in criteria),
        *((field, load_settings, {"environ": {}}) for field in Settings.model_fields),
    ]
    for field, make, others in makers:
        for value in VALUES:
            try:
                make(**{**others, field: value})
            except DelegateError as error:
                yield f"{field}={value!r}", str(error)


def test_what_is_said_of_a_value_of_another_type_is_in_plain_words() -> None:
    said = list(refusals())
    assert len(said) > 1_000
    assert [one for one in said if RAW.search(one[1].partition(", got ")[0].partition(", not ")[0])][:5] == []


def test_the_hint_of_a_refused_call_is_whole_where_it_is_printed() -> None:
    with Delegator(client=Scripted([])) as delegator:
        refused = delegator.call_sync({"goal": "x", "acceptance_criteria": [{"kind": "fil", "path": "a.md"}]})
    assert refused.error
    assert str(refused).endswith("did you mean `file`?)")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mistake_of_a_program_is_one_line(name: str) -> None:
    wrong, words = PROGRAMS[name]
    with Delegator(client=Scripted([])) as delegator:
        try:
            answer: Any = wrong(delegator)
        except DelegateError as error:
            _says(str(error), words)
            return
    assert answer.error is not None
    assert answer.results == ()
    _says(f"{answer.error.message} ({answer.error.hint})", words)
