"""`delegate judge`: verdicts on existing work, read from files."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import delegate, openai_at
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

WORK = ("judge", "--goal", "Write note.md", "--report", "report.md", "--workspace", "work")


@pytest.fixture(autouse=True)
def work(home: Path) -> None:
    """Create a report, a folder with the work, and receipts of two tool calls in the working directory."""
    Path("work").mkdir()
    Path("work/note.md").write_text("hello reader\n")
    Path("report.md").write_text("I wrote `note.md` and told Ann.\n")
    receipts = [
        {"tool": "write_file", "args": {"path": "note.md"}, "status": "ok", "output": "13 bytes"},
        {"tool": "send_email", "args": {"to": "ann"}, "status": "error", "output": "no route to host"},
    ]
    Path("receipts.jsonl").write_text("\n".join(map(json.dumps, receipts)))


def _judge(quote: str) -> ModelServer:
    """A server whose model decides that c1 is met and quotes `quote` from the note."""

    def script(call: Call) -> Reply:
        answer = {"id": "c1", "source": "artifact:note.md", "evidence": quote, "reason": "It greets.", "verdict": "met"}
        return Reply(json.dumps({"answers": [answer]}))

    return ModelServer(script)


def test_checks_alone_give_a_pass_without_a_key_or_allowed_commands() -> None:
    text = "file: note.md\n\n- shell: grep -q hello note.md\n2. called: write_file\n"
    Path("criteria.txt").write_text(text)
    done = delegate(*WORK, "--criteria", "criteria.txt", "--receipts", "receipts.jsonl",
                    "-c", "never called: send_email", DELEGATE_COMMANDS="deny")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == "PASS (proven)  Write note.md"
    assert any(line.startswith("  ✓ check  never called send_email ") for line in rest)
    assert rest[-1] == "  basis    met, decided by check; level proven"
    assert done.stderr == ""


def test_a_command_is_shown_with_its_own_spaces() -> None:
    done = delegate("judge", "--goal", "Compare.", "--workspace", ".", "-c", "shell: test 'A  b' = ab", COLUMNS="160")
    assert done.returncode == 1
    assert "`test 'A  b' = ab` exits with 0" in done.stdout


def test_a_forbidden_tool_of_which_the_record_shows_nothing_is_met_only_on_trust() -> None:
    done = delegate(*WORK, "--receipts", "receipts.jsonl", "-c", "never called: send_emial")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS (trusted: c1)  Write note.md\n")
    assert "it isn't known whether the child had such a tool" in " ".join(done.stdout.split())


def test_a_judge_whose_quote_is_found_gives_a_pass_and_json_is_complete() -> None:
    with _judge("hello reader") as server:
        done = delegate(*WORK, "-c", "file note.md: the note greets the reader", "--worker-model", "gpt-6-luna",
                        "--format", "json", **openai_at(server))  # fmt: skip
        assert [call.wants_json for call in server.calls] == [True]
    verdict = json.loads(done.stdout)
    assert done.returncode == 0
    assert (verdict["verdict"], verdict["verified"], verdict["decided_by"]) == ("PASS", True, "judge")
    assert verdict["criteria"][0]["source"] == "artifact:note.md"
    assert verdict["judge"]["same_model_as_worker"] is True
    above = {one["reason"] for one in verdict["judge"]["candidates"] if one["tier"] == "deep"}
    assert above == {"tier deep is above the worker's fast"}


def test_a_missing_quote_is_a_fail_and_exits_with_1() -> None:
    with _judge("welcome, dear reader") as server:
        done = delegate(*WORK, "-c", "file note.md: the note greets the reader", **openai_at(server))
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  Write note.md  ")
    assert "\n  basis    evidence_not_found, decided by " in done.stdout
    assert "judge gpt-" in done.stdout


def test_a_check_that_fails_spends_nothing_on_a_judge() -> None:
    with _judge("hello reader") as server:
        done = delegate(*WORK, "-c", "file note.md: the note greets the reader", "-c", "called: send_email",
                        "--receipts", "receipts.jsonl", **openai_at(server))  # fmt: skip
        assert server.calls == []
    assert done.returncode == 1
    assert "✗ check   called send_email" in done.stdout


def test_the_report_may_come_from_stdin() -> None:
    done = delegate("judge", "--goal", "Count", "--report", "-", "-c", "json: total === 3", stdin='{"total": 3}')
    assert done.returncode == 0
    assert done.stdout.startswith("PASS (seen)  Count\n")


def test_a_piped_report_needs_no_option_and_may_come_from_a_file() -> None:
    arguments = ("judge", "--goal", "Count", "-c", "json: total === 3")
    piped = delegate(*arguments, stdin='{"total": 3}')
    Path("report.json").write_text('{"total": 4}')
    with Path("report.json").open() as file:
        redirected = subprocess.run([*warm.delegate(), *arguments], stdin=file, capture_output=True, text=True)
    assert (piped.returncode, redirected.returncode) == (0, 1), piped.stderr + redirected.stderr


@pytest.mark.parametrize("stdin", [None, ""], ids=["no stdin", "an empty pipe"])
def test_a_workspace_is_judged_alone_without_a_report(stdin: str | None) -> None:
    arguments = ("judge", "--goal", "x", "--workspace", "work", "-c", "file: note.md", "-c", "shell: grep -q h note.md")
    done = delegate(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS (proven)  x\n")
    bad = delegate(*arguments, "-c", "file: other.md", stdin=stdin)
    assert bad.returncode == 1


def test_a_judge_sees_no_report_where_there_is_none() -> None:
    with _judge("hello reader") as server:
        done = delegate("judge", "--goal", "x", "--workspace", "work", "-c", "file note.md: the note greets the reader",
                        **openai_at(server))  # fmt: skip
        (call,) = server.calls
    assert done.returncode == 0, done.stdout + done.stderr
    assert "artifact:note.md" in call.texts[-1]
    assert "<<<report" not in call.texts[-1]


def test_an_empty_report_that_is_named_is_a_fail() -> None:
    done = delegate("judge", "--goal", "x", "--workspace", "work", "-c", "file: note.md", "--report", "-", stdin="")
    assert done.returncode == 1
    assert "empty_report, decided by gate" in done.stdout


def test_without_receipts_nobody_can_tell_which_tools_were_called() -> None:
    done = delegate(*WORK, "-c", "never called: send_email")
    assert done.returncode == 3
    assert "no_receipts" in done.stdout


def test_without_a_key_it_says_why_no_model_may_judge() -> None:
    done = delegate(*WORK, "-c", "file note.md: the note greets the reader")
    assert done.returncode == 3
    assert "no_eligible_judge" in done.stdout
    assert "no model may judge this: no key (set OPENAI_API_KEY) (" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--criteria", "nothing.txt"), "nothing.txt can't be read: No such file or directory"),
        (("--criteria", "criteria.txt"), "criteria.txt, line 3: "),
        (("-c", "ok", "-c", "rubric: beauty"), "-c (number 2): there is no rubric 'beauty'; use one of "),
        (("-c", "ok", "--workspace", "nowhere"), "workspace nowhere is not a folder (name a folder that exists)"),
        (("-c", "ok", "--receipts", "criteria.txt"), "criteria.txt, line 1: not valid JSON"),
        (
            ("-c", "ok", "--report", "-", "--receipts", "-"),
            "only one of --criteria, --report, --receipts and --transcript can",
        ),
        ((), "there are no criteria to judge by (add -c CRITERION"),
        (("-c", "regex: x", "--report", "report.md", "--receipts", "nothing"), "nothing can't be read"),
        (("-c", "ok", "--goal", " "), "`goal` is empty"),
    ],
)
def test_invalid_input_is_one_error_line_with_its_location(arguments: tuple[str, ...], complaint: str) -> None:
    Path("criteria.txt").write_text("the note greets the reader\n\nregex: (\n")
    done = delegate(*WORK, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"delegate: {complaint}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-c", "file: note.md"), "there is no report to judge (give it with --report FILE or pipe it to stdin, or "),
        (("--workspace", "work", "-c", "ok", "-c", "regex: x"), "-c (number 2): `regex` is about the report, and "),
        (("--workspace", "work", "-c", "json: x"), "-c (number 1): `json_predicate` is about the report, and there is"),
    ],
)
def test_without_a_report_what_needs_one_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    done = delegate("judge", "--goal", "x", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"delegate: {complaint}")


def test_strict_checks_refuse_a_vacuous_criterion_with_its_location() -> None:
    done = delegate(*WORK, "-c", "file: note.md", "-c", "shell: false || true", DELEGATE_STRICT_CHECKS="1")
    assert done.returncode == 2
    assert done.stderr.startswith("delegate: -c (number 2): it can't fail: it succeeds in an empty folder")


@pytest.mark.parametrize(
    ("environment", "code"), [({}, "invalid_criterion"), ({"DELEGATE_GATE": "maybe"}, "config_error")]
)
def test_in_json_a_refusal_is_exactly_one_error_object(environment: dict[str, str], code: str) -> None:
    done = delegate(*WORK, "-c", "regex: (", "--format", "json", **environment)
    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert done.stderr == ""
    assert list(document) == ["error"]
    assert set(document["error"]) == {"code", "message", "field", "hint"}
    assert document["error"]["code"] == code
