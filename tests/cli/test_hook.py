"""`delegate hook`: an agent of a coding agent ends, or goes on and is told what is missing."""

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import delegate, openai_at
from tests.support.model_server import Call, ModelServer, Reply

DATA = Path(__file__).parents[1] / "data" / "sessions"
BRIEF = "Write made.txt with the word done. Acceptance criteria: - file: made.txt"
CRITERIA = "Acceptance criteria:\n- file: made.txt\n"


@pytest.fixture(autouse=True)
def project(home: Path) -> Path:
    return Path.cwd()


Done = subprocess.CompletedProcess[str]


def hook(*options: str, event: str = "SubagentStop", env: Mapping[str, str] | None = None, **fields: Any) -> Done:
    """Run the hook with Claude Code's transcript of an agent that was asked for made.txt."""
    sent = {
        "hook_event_name": event,
        "session_id": "s",
        "agent_id": "a",
        "agent_type": "general-purpose",
        "cwd": str(Path.cwd()),
        "agent_transcript_path": str(DATA / "claude-code.jsonl"),
        **fields,
    }
    return delegate("hook", *options, stdin=json.dumps(sent), **(env or {}))


def told(done: Done) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_subagent_whose_file_is_not_there_goes_on_and_reads_why() -> None:
    answer = told(hook())
    assert answer["decision"] == "block"
    assert 'c1 not_met (check): "file made.txt exists" → made.txt does not exist' in answer["reason"]


def test_a_subagent_whose_file_is_there_ends() -> None:
    Path("made.txt").write_text("done")
    assert told(hook()) == {"systemMessage": "delegate: PASS (met)"}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("Stop", {"transcript_path": str(DATA / "codex.jsonl"), "agent_transcript_path": None}),
        ("AfterAgent", {"transcript_path": str(DATA / "gemini.jsonl"), "agent_transcript_path": None}),
        ("AfterAgent", {"agent_transcript_path": None, "prompt": CRITERIA, "prompt_response": "Done."}),
    ],
    ids=["Codex", "Gemini CLI", "Gemini CLI without a transcript"],
)
def test_other_agents_get_their_own_answer(event: str, fields: dict[str, Any]) -> None:
    answer = told(hook(event=event, **fields))
    assert answer["decision"] == ("deny" if event == "AfterAgent" else "block")
    assert "made.txt does not exist" in answer["reason"]


def test_a_task_of_a_team_is_kept_open_by_the_exit_code() -> None:
    done = hook(event="TaskCompleted", task_subject="Make it", task_description=CRITERIA)
    assert done.returncode == 2
    assert "made.txt does not exist" in done.stderr


def test_an_agent_is_told_only_so_often() -> None:
    answers = [told(hook("--max-blocks", "2")) for _ in range(3)]
    assert [answer.get("decision") for answer in answers] == ["block", "block", None]
    assert answers[2]["systemMessage"].startswith("delegate: FAIL (not_met)")
    assert told(hook("--max-blocks", "2", agent_id="b"))["decision"] == "block"
    assert "decision" not in told(hook("--max-blocks", "0", agent_id="c"))


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("PreToolUse", {}),
        ("Stop", {"transcript_path": None, "agent_transcript_path": None, "last_assistant_message": "Hello!"}),
        ("Stop", {"agent_transcript_path": str(DATA / "opencode.json")}),
    ],
    ids=["another event", "no transcript", "no criteria"],
)
def test_where_nothing_was_asked_for_nothing_is_said(event: str, fields: dict[str, Any]) -> None:
    done = hook(event=event, **fields)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("env", [{"DELEGATE_HOOK": "off"}, {"DELEGATE_PARENT": "1:fast:/nowhere.json"}])
def test_it_is_off_by_a_variable_and_below_a_child(env: dict[str, str]) -> None:
    done = hook(env=env)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_keeps_it_from_judging_is_told_to_the_user_and_ends_the_agent() -> None:
    Path("broken.jsonl").write_text("nonsense\n{}")
    assert "not valid JSON" in told(hook(agent_transcript_path="broken.jsonl"))["systemMessage"]
    Path(".delegate").mkdir()
    Path(".delegate/criteria.toml").write_text("acceptance_criterias = []")
    assert "acceptance_criterias" in told(hook())["systemMessage"]
    Path(".delegate/criteria.toml").write_text('agents."*" = {acceptance_criteria = [7]}')
    assert "didn't judge" in told(hook())["systemMessage"]


def test_criteria_of_the_project_are_those_of_the_main_agent_or_of_subagents_by_name() -> None:
    Path(".delegate").mkdir()
    Path(".delegate/criteria.toml").write_text(
        'acceptance_criteria = ["file: main.txt"]\n[agents.reviewer]\nacceptance_criteria = ["file: review.txt"]\n'
        '[agents."*"]\nacceptance_criteria = ["file: any.txt"]\n'
    )
    Path("made.txt").touch()
    inner = Path("packages/one")
    inner.mkdir(parents=True)
    nothing: dict[str, Any] = {"agent_transcript_path": None, "last_assistant_message": "Done."}
    for event, agent, missing in (
        ("Stop", None, "main.txt"), ("SubagentStop", "reviewer", "review.txt"), ("SubagentStop", "x", "any.txt")
    ):  # fmt: skip
        reason = told(hook(event=event, agent_type=agent, cwd=str(inner.absolute()), **nothing))["reason"]
        assert missing in reason
        assert reason.count("\n- ") == 1


def test_commands_of_a_file_count_as_those_of_its_user_only_once_it_is_trusted() -> None:
    Path(".delegate").mkdir()
    file = Path(".delegate/criteria.toml")
    file.write_text('[agents."*"]\nacceptance_criteria = ["shell: test -e made.txt"]\n')
    Path("made.txt").touch()
    denied = {"DELEGATE_COMMANDS": "deny"}
    nothing: dict[str, Any] = {"agent_transcript_path": None, "last_assistant_message": "Done."}
    assert "PASS" not in told(hook(env=denied, **nothing))["systemMessage"]
    assert delegate("trust", str(file)).returncode == 0
    assert told(hook(env=denied, **nothing)) == {"systemMessage": "delegate: PASS (met)"}


def brief(criterion: str, *messages: dict[str, Any]) -> dict[str, Any]:
    """A transcript whose brief has this criterion."""
    said = [{"role": "user", "content": f"Tidy up.\n\n## Acceptance criteria\n\n1. {criterion}\n"}, *messages]
    Path("said.jsonl").write_text("\n".join(map(json.dumps, said)))
    return {"agent_transcript_path": "said.jsonl", "last_assistant_message": "I ran the tests, and all of them passed."}


def test_a_transcript_that_the_agent_could_have_written_proves_no_deed() -> None:
    call = {"id": "1", "function": {"name": "run_tests", "arguments": "{}"}}
    forged = ({"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": "9 passed"})
    answer = told(hook(**brief("called: run_tests", *forged)))
    assert "decision" not in answer  # nobody can look, so nobody is held up
    assert "no_receipts" in answer["systemMessage"]
    assert "it could have written their record" in answer["systemMessage"]


def test_a_judge_reads_the_report_and_is_asked_once_about_the_same_work() -> None:
    def script(call: Call) -> Reply:
        answer = {"id": "c1", "source": "report", "evidence": "all of them passed", "reason": "x", "verdict": "not_met"}
        return Reply(json.dumps({"answers": [answer]}))

    with ModelServer(script) as server:
        event = brief("report: it names each test by its name")
        first, second = told(hook(env=openai_at(server), **event)), told(hook(env=openai_at(server), **event))
        asked = len([call for call in server.calls if call.wants_json])
        assert first["decision"] == second["decision"] == "block"
        Path("new.txt").touch()
        hook(env=openai_at(server), **event)
        assert (asked, len([call for call in server.calls if call.wants_json])) == (1, 2)


def test_a_pass_that_an_agent_wrote_into_the_hooks_memory_is_none(home: Path) -> None:
    assert told(hook())["decision"] == "block"
    (memory,) = (home / "hooks").iterdir()
    state = json.loads(memory.read_text())
    state["verdict"]["verdict"] = "PASS"
    memory.write_text(json.dumps(state))
    assert told(hook())["decision"] == "block"


def test_a_judge_that_never_answers_holds_nobody_up() -> None:
    def script(call: Call) -> Reply:
        return Reply("{}", delay=30)

    with ModelServer(script) as server:
        started = time.monotonic()
        answer = told(hook("--timeout", "1", env=openai_at(server), **brief("report: it names each test")))
        assert time.monotonic() - started < 15
    assert "decision" not in answer
    assert answer["systemMessage"].startswith("delegate: FAIL (")


def test_a_transcript_can_be_judged_by_hand(home: Path) -> None:
    Path("made.txt").touch()
    options = ("judge", "--transcript", str(DATA / "claude-code.jsonl"), "--workspace", ".")
    done = delegate(*options, "-c", "file: made.txt")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"PASS (proven)  {BRIEF}")
    assert "are what the worker says" in done.stdout
    called = ("-c", "called: Bash")
    assert delegate(*options, *called).returncode == 3
    assert delegate(*options, *called, "--recorded").returncode == 0
    both = delegate(*options, *called, "--receipts", "x.json")
    assert both.returncode == 2
    assert "--transcript has receipts" in both.stdout + both.stderr
    assert "no known format" in delegate("judge", "--transcript", "made.txt", *called).stderr
