"""`delegate run --until-verified` and `--resume`, and what `delegate show` tells of claims."""

import json
from typing import Any

import pytest

from tests.cli.command import delegate, openai_at
from tests.support.model_server import Call, ModelServer, Reply

FILE = ("-c", "file: a.txt", "-c", "regex: hello")


def worker(*turns: tuple[str, dict[str, Any]]) -> Any:
    """A model that calls one tool per turn."""

    def script(call: Call) -> Reply:
        name, arguments = turns[len(call.tool_results)]
        return Reply(tool_calls=((name, arguments),))

    return script


HONEST = worker(
    ("claim_complete", {"rationale": "I wrote a.txt."}),
    ("write_file", {"path": "a.txt", "content": "hello"}),
    ("claim_complete", {"rationale": "Now a.txt is there, with hello.\x1b[2J"}),
)
LIAR = worker(*(("claim_complete", {"rationale": f"It is done, {n}."}) for n in range(9)))


def test_a_goal_that_is_verified_exits_with_0_and_is_shown_with_its_claims() -> None:
    with ModelServer(HONEST) as server:
        done = delegate("run", "Write hello", "--until-verified", *FILE, **openai_at(server))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS (seen)  Write hello")
    assert "  ✓ goal   verified, after 2 claims" in done.stdout.splitlines()
    shown = delegate("show", "last", COLUMNS="120").stdout
    assert "claim 1  I wrote a.txt." in shown
    assert "refused: not_met (call 1, " in shown
    assert "✗ c1 file a.txt exists" in shown
    assert "claim 2  Now a.txt is there, with hello." in shown
    assert "verified (call 3, " in shown
    assert "\x1b" not in shown
    transcript = delegate("show", "last", "--transcript").stdout
    assert "claims to be done: I wrote a.txt." in transcript
    assert "claim 1: refused, not_met" in transcript
    assert "claim 2: verified" in transcript


def test_a_goal_that_is_not_verified_exits_with_1_after_its_claims() -> None:
    with ModelServer(LIAR) as server:
        done = delegate(
            "run",
            "Write hello",
            "--until-verified",
            "--max-claims",
            "2",
            *FILE,
            "--format",
            "json",
            **openai_at(server),
        )
    assert done.returncode == 1
    (result,) = json.loads(done.stdout)["results"]
    assert (result["goal_end"], len(result["claims"])) == ("budget_limited", 2)
    assert "✗ goal   not verified within its limits, after 2 claims" in delegate("show", "last").stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["x", "--until-verified"], "needs acceptance_criteria"),
        (["x", "--max-claims", "2"], "--max-claims: can only be used with --until-verified"),
        (["x", "--until-verified", "-c", "manual: nice"], "can't verify the manual criterion c1"),
        (["x", "--until-verified", "-c", "file: a", "--runner", "cat"], "only the built-in child can do goal mode"),
        (["x", "--resume", "abc"], "--resume: can't be used with GOAL"),
        (["--resume", "0123456789ab-0"], "there is no record '0123456789ab-0'"),
    ],
)
def test_what_cannot_be_a_goal_is_one_line_and_exits_with_2(options: list[str], problem: str) -> None:
    done = delegate("run", *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert problem in done.stderr


def test_a_task_that_has_ended_cannot_be_resumed() -> None:
    with ModelServer(HONEST) as server:
        delegate("run", "Write hello", "--until-verified", *FILE, **openai_at(server))
        done = delegate("run", "--resume", "last", **openai_at(server))
    assert done.returncode == 2
    assert "can't be resumed: it has ended" in done.stderr
