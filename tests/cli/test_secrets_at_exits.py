"""No secret leaves the process, wherever it came in: on streams, in files, in pages, in records and in exports."""

import ast
import csv
import html
import json
import re
import sqlite3
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from delegate.telemetry.conventions import CAPTURE_CONTENT
from tests.cli.command import COMMAND, delegate, openai_at
from tests.support.model_server import Call, ModelServer, Reply
from tests.util.secret_shapes import OWN as VARIABLES
from tests.util.secret_shapes import chars, plants

KEY, ASSIGNED, OWN = f"pcsk_{chars(60)}", chars(28), f"{chars(9)}-of-mine"
SECRETS = (KEY, ASSIGNED, OWN)
LEAK = f"the key {KEY} and DB_PASSWORD={ASSIGNED}, also {OWN}, that is all"
CRITERIA = [
    f"report: it says that {LEAK}",
    {"kind": "regex", "pattern": f"never said: {LEAK}"},
    {"kind": "file", "path": "keys.txt", "contains": f"absent {LEAK}"},
    {"kind": "shell", "command": f"cat keys.txt; echo '{LEAK}' >&2; exit 1"},
]


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret[5:] in text]


@pytest.fixture(autouse=True)
def work(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_TOKEN", OWN)
    Path("work").mkdir()
    Path("work/keys.txt").write_text(LEAK)
    Path("report.md").write_text(f"I found it: {LEAK}")
    Path("criteria.json").write_text(json.dumps(CRITERIA))
    receipt = {"tool": f"read {KEY}", "args": {"why": LEAK, "api_key": ASSIGNED}, "status": "ok", "output": LEAK}
    Path("receipts.json").write_text(json.dumps([receipt]))


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """A child that writes, reads, says and fails with secrets, and a judge that repeats them."""

    def script(call: Call) -> Reply:
        if call.wants_json:
            answer = {"id": "c1", "source": "report", "evidence": LEAK, "reason": LEAK, "verdict": "not_met"}
            return Reply(json.dumps({"answers": [answer]}))
        if not call.tool_results:
            return Reply(
                tool_calls=(
                    ("write_file", {"path": "keys.txt", "content": LEAK}),
                    ("read_file", {"path": "keys.txt"}),
                    ("read_file", {"path": f"no/{KEY}.txt"}),
                )
            )
        return Reply(f"I found it: {LEAK}")

    with ModelServer(script) as server:
        yield server


@pytest.mark.parametrize("format", ["pretty", "json", "jsonl", "junit", "github", "sarif"])
def test_no_format_of_a_verdict_has_a_secret(format: str, models: ModelServer) -> None:
    summary = Path("summary.html").resolve()
    done = delegate("judge", f"--goal=Find it: {LEAK}", "--criteria=criteria.json", "--report=report.md",
                    "--workspace=work", "--receipts=receipts.json", f"--format={format}",
                    GITHUB_STEP_SUMMARY=str(summary), **openai_at(models))  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "redacted" in done.stdout
    assert leaked(done.stdout + done.stderr) == []
    if format == "github":
        assert leaked(summary.read_text()) == []


@pytest.mark.slow
def test_no_output_file_or_page_of_a_run_has_a_secret(models: ModelServer, home: Path) -> None:
    environment, texts = openai_at(models), dict[str, str]()
    done = delegate("run", f"Find it: {LEAK}", "--context", LEAK, "-c", f"report: it says that {LEAK}",
                    "-c", f"regex: never said: {KEY}", "--trace=trace.json", **environment)  # fmt: skip
    assert done.returncode == 1, done.stderr
    texts["run"] = done.stdout + done.stderr
    for arguments in (
        ["show", "last"], ["show", "last", "--format=json"], ["runs"], ["runs", "--format=json"],
        ["export", "last", "--format=atif"], ["export", "last", "--format=preference"], ["page", "last", "-o", "-"],
        ["page", "last", "-o", "page.html"], ["lint", "--criteria=criteria.json"],
        ["lint", "--criteria=criteria.json", "--format=json"],
    ):  # fmt: skip
        done = delegate(*arguments, **environment)
        assert done.returncode == 0, done.stderr
        texts[" ".join(arguments)] = done.stdout + done.stderr
    texts |= {name: Path(name).read_text() for name in ("trace.json", "page.html")}
    stored = [file for file in home.rglob("*") if file.name.startswith("records.sqlite3")]
    texts["records"] = "".join(file.read_bytes().decode("utf-8", "replace") for file in stored)
    texts["served"] = served()
    assert {name: found for name, text in texts.items() if (found := leaked(text))} == {}
    shown = ("run", "show last", "export last --format=atif", "page.html", "records", "served")
    assert all("redacted" in texts[name] for name in shown)


def served() -> str:
    """The list of runs and the page of the first one, as a browser gets them."""
    view = subprocess.Popen([*COMMAND, "view"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert view.stdout
        address = next(found[0] for line in view.stdout if (found := re.search(r"http://\S+/", line)))
        with urllib.request.urlopen(address) as answer:
            listed = answer.read().decode()
        link = re.findall(r'href="(run/[^"]*)"', listed)[0]
        with urllib.request.urlopen(address + link) as answer:
            return listed + answer.read().decode()
    finally:
        view.terminate()
        view.communicate(timeout=10)


@pytest.mark.parametrize(
    "arguments",
    [
        ["judge", "--goal=x", "-c", f"regex: ({LEAK}", "--report=report.md"],
        ["judge", "--goal=x", "-c", f"schema: {LEAK}", "--report=report.md"],
        ["judge", "--goal=x", "-c", "it is", f"--report={KEY}.txt"],
        ["judge", "--goal=x", "-c", f"json_predicate: {LEAK} (", "--report=report.md", "--format=json"],
        ["run", "x", "-c", f"regex: ({LEAK}", "--format=json"],
        ["show", KEY],
        [f"--{KEY}"],
    ],
)
def test_no_error_has_a_secret(arguments: list[str]) -> None:
    done = delegate(*arguments)
    assert done.returncode != 0
    assert leaked(done.stdout + done.stderr) == []


# ---------------------------------------------------------------------------------- every encoding, and every shape

PLANTS = plants()
HIDDEN = re.compile("[\u00ad\u200b\u2060]|\\\\u(?:00ad|200b|2060)")


def seen_in(text: str) -> dict[int, list[str]]:
    """The parts of planted secrets in a text, as it is, as HTML or JSON means it, and without hidden characters."""
    plain = text.replace("\\\\", "\\").replace("\\n", "\n").replace('\\"', '"')
    forms = (text, plain, html.unescape(text), HIDDEN.sub("", text), HIDDEN.sub("", plain))
    found = {n: [part for part in plant.secrets if any(part in one for one in forms)] for n, plant in enumerate(PLANTS)}
    return {n: parts for n, parts in found.items() if parts}


def planted(call: Call) -> Reply:
    """A child that writes, reads, says and asks for what its task is about, and a judge that repeats it."""
    items = dict.fromkeys(re.findall(r"item (\d+):", "\n".join(call.texts)))
    text = "\n".join(PLANTS[int(n)].text for n in items)
    if call.wants_json:
        answer = {"id": "c1", "source": "report", "evidence": text, "reason": text, "verdict": "not_met"}
        return Reply(json.dumps({"answers": [answer]}))
    if call.tool_results:
        return Reply(f"I found it: {text}")
    end = "\n"
    return Reply(
        text,
        tool_calls=(
            ("write_file", {"path": "keys.txt", "content": text}),
            ("read_file", {"path": "keys.txt"}),
            ("read_file", {"path": f"no {text.partition(end)[0].replace('/', '_')}.txt"}),
        ),
    )


def stored(path: Path) -> str:
    """All that a store has, and the bytes of its file, which keep what was deleted."""
    with closing(sqlite3.connect(path)) as connection:
        dump = "\n".join(connection.iterdump())
    return dump + path.read_bytes().decode("utf-8", "replace")


@pytest.mark.slow
@pytest.mark.more_cases
@pytest.mark.timeout(300)
def test_no_encoding_and_no_shape_passes_any_exit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**VARIABLES, CAPTURE_CONTENT: "span_and_event"}.items():
        monkeypatch.setenv(name, value)
    with open("tasks.csv", "w", newline="") as file:
        csv.writer(file).writerows([("n", "text"), *((n, plant.text) for n, plant in enumerate(PLANTS))])
    criteria = [{"kind": "file", "path": "keys.txt", "contains": f"not {plant.text}"} for plant in PLANTS]
    Path("criteria.json").write_text(json.dumps(criteria))
    Path("report.md").write_text("\n".join(plant.text for plant in PLANTS))
    given = {"tasks.csv", "criteria.json", "report.md", "receipts.json", "keys.txt"}
    texts = dict[str, str]()

    with ModelServer(planted) as server:
        environment = openai_at(server) | {"GITHUB_STEP_SUMMARY": str(Path("summary.html").resolve())}

        def run(*arguments: str, stdin: str | None = None) -> None:
            done = delegate(*arguments, stdin=stdin, **environment)
            assert done.returncode in (0, 1), done.stderr
            texts[f"{len(texts)}: {' '.join(arguments)[:20]} {arguments[-1][:20]}"] = done.stdout + done.stderr

        batch = ("batch", "tasks.csv", "--concurrency=20", "--goal=item {n}: say {text}", "-c", "report: it has {text}")
        run(*batch, "-o", "r.jsonl", "--trace=trace.json")
        run(*batch, "-o", "r.csv", "--again", "--format=jsonl")
        for arguments in (
            ["show", "last"], ["show", "last", "--failed"], ["show", "last", "--transcript"], ["runs"],
            ["show", "last", "--format=json"], ["export", "last", "--format=atif"],
            ["page", "last", "-o", "page.html"],
            ["export", "last", "--format=preference", "--labels=judge", "-o", "examples.jsonl"],
            ["lint", "--criteria=criteria.json"], ["lint", "--criteria=criteria.json", "--format=json"],
        ):  # fmt: skip
            run(*arguments)
        for kind in ("pretty", "json", "jsonl", "junit", "github", "sarif"):
            files = ("--criteria=criteria.json", "--report=report.md", "--workspace=work")
            run("judge", f"--goal=Find it: {LEAK}", *files, f"--format={kind}")
        goals = ["\n".join(f"item {n}: {PLANTS[n].text}" for n in range(first, len(PLANTS), 3)) for first in range(3)]
        run("call", stdin=json.dumps({"tasks": [{"goal": goal, "acceptance_criteria": []} for goal in goals]}))
        texts["served"] = served()
        judged = [call.raw.decode() for call in server.calls if call.wants_json]
    assert len(judged) >= 2 * len(PLANTS)
    texts["judges"] = "\n".join(judged)
    for path in home.parent.rglob("*"):  # whatever was written, also by what is added later
        if path.is_file() and path.name not in given:
            is_store = path.suffix == ".sqlite3"
            texts[str(path.relative_to(home.parent))] = stored(path) if is_store else path.read_text("utf-8", "replace")
    assert {
        "cwd/trace.json",
        "cwd/r.jsonl",
        "cwd/r.csv",
        "cwd/page.html",
        "cwd/summary.html",
        "home/records.sqlite3",
    } <= {*texts}
    assert {where: found for where, text in texts.items() if (found := seen_in(text))} == {}


# --------------------------------------------------------------------------------------------------- the list of exits

PACKAGE = Path(__file__).resolve().parents[2] / "delegate"
WRITES = {
    "write", "write_all", "write_text", "write_bytes", "writelines", "send", "sendall", "sendto", "NamedTemporaryFile",
}  # fmt: skip
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND"}
PRINTS = {"print", "echo"}
"""Only the command may do this. Its streams are guarded by `cli/ci/logs.py`."""
MAY_WRITE = re.compile(r"\b(open|fdopen|" + "|".join(WRITES | FLAGS | PRINTS) + r")\b")


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    text = path.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if MAY_WRITE.search(text) else ()
    called = ((node.func, node) for node in nodes if isinstance(node, ast.Call))
    return [(func.attr if isinstance(func, ast.Attribute) else func.id, node) for func, node in called
            if isinstance(func, ast.Attribute | ast.Name)]  # fmt: skip


def writes(name: str, call: ast.Call) -> bool:
    """Whether a call may write a file or a socket."""
    if name in WRITES:
        return True
    inside = [*ast.walk(call)]
    modes = (node.value for node in inside if isinstance(node, ast.Constant) and isinstance(node.value, str))
    opens = name in ("open", "fdopen") and any(re.fullmatch("[rbt]*[wax+][bt+]*", mode) for mode in modes)
    return opens or any(isinstance(node, ast.Attribute) and node.attr in FLAGS for node in inside)


def modules(wanted: Callable[[str, ast.Call], bool]) -> set[str]:
    paths = (path for path in PACKAGE.rglob("*.py") if any(wanted(*call) for call in calls(path)))
    return {path.relative_to(PACKAGE).as_posix() for path in paths}


EXITS = {
    "what was redacted before, for a store or a file": """
        batch/journal.py batch/results_file.py cli/ci/github.py cli/commands/export.py cli/commands/hook.py
        _util/documents.py
        records/aside.py records/history.py records/recovery.py records/sqlite.py telemetry/otlp_file.py""",
    "a stream that redacts": "cli/ci/logs.py",
    "requests, and what is learned from the replies": """
        models/providers/_http.py models/providers/_pool.py models/providers/_profile.py
        models/shared_limits.py""",
    "answers to a host and its notifications": """
        hosts/mcp/connection.py hosts/mcp/http.py hosts/mcp/stdio.py hosts/mcp/tools.py
        hosts/own_agents.py hosts/progress.py""",
    "the work itself, and what its commands get": """
        child/acp.py child/acp_connection.py child/command.py child/job.py child/mcp_connection.py child/toolbox.py
        judging/checks/can_fail.py sandbox/commands/confinement.py
        sandbox/filesystem/copy_out.py sandbox/filesystem/files.py sandbox/tampering/git_files.py
        sandbox/commands/landlock.py sandbox/filesystem/paths.py sandbox/commands/subreaper.py
        sandbox/filesystem/trees.py sandbox/workspace/inputs.py sandbox/workspace/folder.py
        sandbox/workspace/worktree.py""",
    "what a person is asked on a terminal": "cli/screen/approvals.py cli/work.py",
    "numbers, or what the operator typed": """
        budget/nested.py budget/shared.py judging/calibration/detector.py cli/__init__.py
        cli/doctor/diagnostics.py cli/commands/init.py cli/input/starting.py""",
    "what the attacks on the sandbox try": "cli/doctor/security/probes.py cli/doctor/security/scene.py",
}
"""The modules that write or send, by what that is."""


def test_every_module_that_writes_or_sends_is_known_and_what_it_writes() -> None:
    known = [path for paths in EXITS.values() for path in paths.split()]
    assert modules(writes) == set(known)
    assert len(known) == len(set(known))


def test_only_the_command_prints() -> None:
    printing = modules(lambda name, call: name in PRINTS and not isinstance(call.func, ast.Attribute))
    assert {path for path in printing if not path.startswith("cli/")} == {
        "hosts/hermes/terminal.py",  # shows a verdict on a terminal
        "judging/checks/worker_main.py",  # answers the process that started it
    }
