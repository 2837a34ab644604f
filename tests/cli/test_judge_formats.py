"""`delegate judge --format junit|github|sarif`: what CI systems read, with a worker and a judge that attack them."""

import html
import json
import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from tests.cli.command import delegate, openai_at
from tests.support.model_server import Call, ModelServer, Reply

ATTACK = (
    "::add-mask::secret 100% ]]></failure></testcase><testcase name='forged'/><![CDATA[\r\n"
    "::error file=x,line=1::forged\n##[add-path]/tmp/evil\n\n"
    '  ::stop-commands::%0A::x <img src="https://evil.test/pixel"> [click](https://evil.test) {0} {{1}} \\[x](1)'
    "\x1b[2J\x00\ufffe\u202e"
)
FILE = "out, put:1%0A.md"
CRITERIA = [
    {"kind": "file", "path": "note.md"},
    {"kind": "file", "path": FILE, "contains": "never"},
    {"kind": "shell", "command": "cat attack.txt; exit 1"},
    {"kind": "shell", "command": "cat attack.txt; exit 1", "findings_only": True},
    "file note.md: the note is kind",
]


@pytest.fixture(autouse=True)
def work(home: Path) -> None:
    """A folder whose files, names and command output attack every format."""
    Path("work").mkdir()
    Path("work/note.md").write_text("hello reader\n")
    Path("work", FILE).write_text(ATTACK)
    Path("work/attack.txt").write_text(ATTACK)
    Path("report.md").write_text(f"I wrote everything.\n{ATTACK}")
    Path("criteria.json").write_text(json.dumps(CRITERIA))


def _judged(format: str, *arguments: str, goal: str = f"Be kind. {ATTACK[:80]}", **environment: str) -> tuple[int, str]:
    done = delegate("judge", f"--goal={goal}", "--report", "report.md", "--workspace", "work", "--format", format,
                    *(arguments or ("--criteria", "criteria.json")), **environment)  # fmt: skip
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def _hostile_judge() -> ModelServer:
    """A server whose judge answers that c1 isn't met, with a reason that attacks."""

    def script(call: Call) -> Reply:
        answer = {"id": "c1", "source": "artifact:note.md", "evidence": "hello reader", "reason": ATTACK,
                  "verdict": "not_met"}  # fmt: skip
        return Reply(json.dumps({"answers": [answer]}))

    return ModelServer(script)


# ------------------------------------------------------------------------------------------------------------- JUnit


def _cases(xml: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(xml)
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.get(name) == root.get(name) == str(sum(case.find(tag) is not None for case in cases))
    assert suite.get("tests") == str(len(cases))
    return {(case.get("name") or "").split()[0]: case for case in cases}


def test_junit_has_one_case_per_criterion_that_no_text_can_forge() -> None:
    code, xml = _judged("junit")
    cases = _cases(xml)
    assert code == 1
    assert list(cases) == ["c1", "c2", "c3", "c4", "c5"]
    failed = {id: case.find("failure") for id, case in cases.items() if case.find("failure") is not None}
    assert list(failed) == ["c2", "c3"]
    assert cases["c3"].get("classname") == "delegate.shell"
    assert failed["c3"] is not None
    assert failed["c3"].get("type") == "not_met"
    assert "]]></failure>" in (failed["c3"].text or ""), "it is there as text"
    assert [cases[id].find("skipped") is not None for id in ("c4", "c5")] == [True, True]


def test_junit_tells_a_judge_that_could_not_look_from_bad_work() -> None:
    code, xml = _judged("junit", "-c", "file note.md: the note is kind", "-c", "file: note.md")
    cases = _cases(xml)
    assert code == 3
    error = cases["c1"].find("error")
    assert error is not None
    assert error.get("type") == "no_eligible_judge"
    assert "no model may judge this: no key (set OPENAI_API_KEY) (" in (error.get("message") or "")
    assert cases["c1"].find("failure") is None
    properties = {one.get("name"): one.get("value") for one in ElementTree.fromstring(xml).iter("property")}
    assert (properties["verdict"], properties["examined"]) == ("FAIL", "false")
    assert "score" not in properties, "the criterion that a check decided is met, which says nothing about the rest"


def test_a_fail_of_the_gate_is_a_failing_case_of_its_own() -> None:
    code, xml = _judged("junit", "-c", "file: note.md", "--status", "timeout")
    cases = _cases(xml)
    assert code == 1
    assert list(cases) == ["c1", "the"]
    failure = cases["the"].find("failure")
    assert failure is not None
    assert failure.get("type") == "run_failed"


@pytest.mark.parametrize("format", ["junit", "github", "sarif"])
def test_a_pass_has_no_problem_in_any_format(format: str) -> None:
    code, text = _judged(format, "-c", "file: note.md", goal="x")
    assert code == 0
    match format:
        case "junit":
            assert all(case.find("failure") is None and case.find("error") is None for case in _cases(text).values())
        case "github":
            assert text == "::notice title=delegate%3A x::PASS (proven): the criterion is met%0Ac1 met; proven\n"
        case _:
            (run,) = json.loads(text)["runs"]
            assert (run["results"], run["invocations"][0]["executionSuccessful"]) == ([], True)


# ------------------------------------------------------------------------------------------------------------ GitHub


class Command(NamedTuple):
    """A workflow command as the runner understands it."""

    name: str
    properties: dict[str, str]
    message: str


def _commands(text: str) -> Iterator[Command]:
    """What GitHub's runner reads from a step's output: `::name key=value,…::message`, and the older `##[name]`."""
    for line in re.split(r"\r\n|\r|\n", text.removesuffix("\n")):
        found = re.match(r"\s*::([a-z-]+)(?: (.*?))?::(.*)", line)
        assert found, f"plain text, in which the runner would look for ##[…]: {line!r}"
        pairs = [pair.partition("=") for pair in (found[2] or "").split(",") if pair]
        yield Command(found[1], {key: _unescaped(value) for key, _, value in pairs}, _unescaped(found[3]))


def _unescaped(text: str) -> str:
    for escape, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escape, char)
    return text


def test_github_gets_only_our_commands_with_escaped_texts() -> None:
    code, text = _judged("github", GITHUB_WORKSPACE=os.getcwd())
    found = list(_commands(text))
    assert code == 1
    assert [one.name for one in found if one.name != "notice"] == ["error", "error"]
    assert {key for one in found for key in one.properties} == {"title", "file"}
    errors = [one for one in found if one.name == "error"]
    assert errors[0].properties["file"] == f"work/{FILE}"
    assert errors[0].properties["title"].startswith("c2 not_met: file out, put:1%0A.md exists")
    assert "file" not in errors[1].properties
    assert "\n: :error file=x,line=1::forged\n## [add-path]/tmp/evil\n" in errors[1].message
    assert "\x1b" not in text
    assert "\x00" not in text


def test_a_hostile_judge_cant_add_a_command() -> None:
    with _hostile_judge() as server:
        code, text = _judged("github", "-c", "file note.md: the note is kind", **openai_at(server))
    assert code == 1
    first, error, *rest = _commands(text)
    assert (first.name, error.name) == ("notice", "error")
    assert error.message.startswith(": :add-mask::secret 100% ]]>")
    assert all(one.name in ("notice", "warning") for one in rest)


class _Tags(HTMLParser):
    """Collects the tags and the text of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.text = list[str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"colspan"}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_summary_of_a_step_is_one_block_without_their_markup() -> None:
    Path("summary.md").write_text("before\n")
    with _hostile_judge() as server:
        _judged("github", "-c", "file note.md: the note is kind", GITHUB_STEP_SUMMARY="summary.md", **openai_at(server))
    text = Path("summary.md").read_text().removeprefix("before\n")
    assert text.startswith("<h3>FAIL (not_met): Be kind.")
    assert text.endswith("</table>\n\n")
    block = text.removesuffix("\n\n")
    assert "\n\n" not in block, "a blank line would end the block, and Markdown would follow"
    found = _Tags(block)
    assert set(found.tags) == {"h3", "table", "tr", "th", "td"}
    assert '<img src="https://evil.test/pixel">' in found.text
    assert html.escape('<img src="https://evil.test/pixel">') in block


def test_a_summary_that_cant_be_written_doesnt_change_the_verdict() -> None:
    done = delegate("judge", "--goal", "x", "--workspace", "work", "-c", "file: note.md", "--format", "github",
                    GITHUB_STEP_SUMMARY="no/such/summary.md")  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == "delegate: the summary of the step can't be written: No such file or directory\n"


# ------------------------------------------------------------------------------------------------------------- SARIF


def _plain(message: dict[str, str]) -> str:
    """The text of a message as a viewer shows it; asserts that it has neither links nor placeholders."""
    text = message["text"]
    bare = re.sub(r"\\.|\{\{|\}\}", "", text, flags=re.DOTALL)
    assert not set(bare) & set("[]{}\\"), text
    return re.sub(r"\\(.)", r"\1", text.replace("{{", "{").replace("}}", "}"), flags=re.DOTALL)


def _run_of(text: str) -> dict[str, Any]:
    """The run of a log, whose structure is that of SARIF 2.1.0."""
    log = json.loads(text)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "delegate"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    assert all(_plain(rule["shortDescription"]) for rule in driver["rules"])
    for one in run["results"]:
        assert ids[one["ruleIndex"]] == one["ruleId"]
        assert (one["kind"], one["level"]) in (("fail", "error"), ("open", "none"))
        (location,) = one["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert artifact["uriBaseId"] == "%SRCROOT%"
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", artifact["uri"])
    return run


def test_sarif_has_a_rule_per_kind_and_a_result_per_failing_criterion() -> None:
    code, text = _judged("sarif")
    run = _run_of(text)
    assert code == run["invocations"][0]["exitCode"] == 1
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["file", "shell", "text"]
    assert [one["properties"]["criterion"] for one in run["results"]] == ["c2", "c3"]
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]]
    assert unquote(uris[0]) == f"work/{FILE}"
    assert uris[1] == "report.md", "what is about no file is placed at the report"
    shown = _plain(run["results"][1]["message"])
    assert "[click](https://evil.test) {0} {{1}} \\[x](1)" in shown


def test_sarif_of_a_judge_that_could_not_look_says_so() -> None:
    code, text = _judged("sarif", "-c", "the note is kind")
    run = _run_of(text)
    assert code == 3
    assert (run["results"][0]["kind"], run["properties"]["examined"]) == ("open", False)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "no_eligible_judge" in _plain(invocation["toolExecutionNotifications"][0]["message"])


@pytest.mark.parametrize("format", ["junit", "github", "sarif"])
def test_invalid_input_leaves_stdout_empty_for_ci(format: str) -> None:
    done = delegate("judge", "--goal", "x", "--workspace", "work", "-c", "regex: (", "--format", format)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("delegate: -c (number 1): ")


@pytest.mark.skipif(sys.platform == "win32", reason="a file name that Windows refuses")
def test_a_file_outside_the_repository_is_not_named_as_one_of_it() -> None:
    Path("repository").mkdir()
    _, text = _judged("github", "-c", "file: gone.md", GITHUB_WORKSPACE=str(Path("repository").resolve()))
    assert all("file" not in one.properties for one in _commands(text))
