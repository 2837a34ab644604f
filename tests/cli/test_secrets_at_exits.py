"""No secret leaves the process, wherever it came in: on streams, in files, in pages, in records and in exports."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, delegate, openai_at
from tests.support.model_server import Call, ModelServer, Reply
from tests.util.secret_shapes import chars

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
            answer = {"id": "c1", "source": "output", "evidence": LEAK, "reason": LEAK, "verdict": "not_met"}
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
    done = delegate("judge", f"--goal=Find it: {LEAK}", "--criteria=criteria.json", "--output=report.md",
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
        ["export", "last", "--format=atif"], ["export", "last", "--format=preference"], ["report", "last", "-o", "-"],
        ["report", "last", "-o", "page.html"], ["lint", "--criteria=criteria.json"],
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
        ["judge", "--goal=x", "-c", f"regex: ({LEAK}", "--output=report.md"],
        ["judge", "--goal=x", "-c", f"schema: {LEAK}", "--output=report.md"],
        ["judge", "--goal=x", "-c", "it is", f"--output={KEY}.txt"],
        ["judge", "--goal=x", "-c", f"json_predicate: {LEAK} (", "--output=report.md", "--format=json"],
        ["run", "x", "-c", f"regex: ({LEAK}", "--format=json"],
        ["show", KEY],
        [f"--{KEY}"],
    ],
)
def test_no_error_has_a_secret(arguments: list[str]) -> None:
    done = delegate(*arguments)
    assert done.returncode != 0
    assert leaked(done.stdout + done.stderr) == []
