"""`delegate rule` and `delegate calibrate` on recorded runs."""

import asyncio
import json
import os
import pty
import re
import select
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, RunResult, Task
from delegate.models.providers.scripted import Scripted
from tests.cli.command import delegate
from tests.support import warm
from tests.support.words import is_judge, met_by

REPORT = "I ran it: hello reader \x1b[2J\u202e."
CRITERIA = ["report: the report greets the reader", "report: the report is polite"]


@pytest.fixture
def handle() -> str:
    """The task of the latest run, whose two criteria a judge found met."""

    def answer(request: Any) -> Any:
        return met_by("hello reader")(request) if is_judge(request) else REPORT

    async def run() -> RunResult:
        async with Delegator(client=Scripted(answer)) as delegator:
            return await delegator.run(Task(goal="greet", acceptance_criteria=CRITERIA))

    return asyncio.run(run()).results[0].handle or ""


def printed(*arguments: str, stdin: str | None = None) -> str:
    done = delegate(*arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments: str) -> str:
    done = delegate(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_ruling_is_recorded_and_measured(handle: str) -> None:
    assert "no rulings are on record" in printed("calibrate")
    said = printed("rule", "last", "c1", "not_met", "--by", "ann", "--because", "it doesn't")
    assert said.startswith(f"{handle} c1: not_met, says ann; ")
    assert said.endswith("said met (differs)\n")
    (row,) = json.loads(printed("rule", handle, "c2", "met", "--by", "ann", "--json"))
    assert (row["ruling"], row["judged"], row["sampling"]) == ("met", "met", "chosen")
    shown = printed("calibrate")
    assert shown.startswith("Chosen by hand, so these rates don't hold for other criteria\n")
    assert "100.0% (2.5%–100.0%)" in shown
    document = json.loads(printed("calibrate", "--json"))
    assert [(one["n"], one["false_pass"], one["worker"] is None) for one in document["judges"]] == [
        (2, 1, True),
        (2, 1, False),
    ]


def test_the_one_task_that_somebody_picked_is_no_random_sample(handle: str) -> None:
    for named in (handle, "last"):
        done = delegate("rule", "--review", named, "--sample", "2", "--format", "jsonl")
        assert done.returncode == 2
        assert "not random" in json.loads(done.stdout)["error"]["message"]


def test_criteria_are_drawn_filled_in_and_imported(handle: str) -> None:
    rows = [json.loads(line) for line in printed("rule", "--sample", "9", "--format", "jsonl").splitlines()]
    assert {(row["task"], row["criterion"], row["ruling"], row["sampling"]) for row in rows} == {
        (handle, "c1", None, "random"),
        (handle, "c2", None, "random"),
    }
    assert not {"judged", "outcome", "verdict"} & set().union(*rows), "blind"
    filled = "\n".join(json.dumps({**row, "ruling": "met"}) for row in rows)
    assert printed("rule", "--import", "-", "--by", "ann", stdin=filled) == "2 rulings recorded\n"
    assert printed("calibrate").startswith("Drawn at random")


def test_a_batch_its_layers_and_lines_for_the_settings_are_printed(
    handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = "\n".join(
        json.dumps({"task": handle, "criterion": id, "ruling": word, "sampling": "random"})
        for id, word in (("c1", "met"), ("c2", "not_met"))
    )
    odd = {"task": "x", "criterion": "c", "ruling": "met", "judged": "met", "judge": "a \U0001f600 judge\x7f"}
    odd |= {"judge_version": "v", "sampling": "random"}
    printed("rule", "--import", "-", stdin=f"{filled}\n{json.dumps(odd)}")
    assert re.search(r"^PASS: 100.0% of 1 as judged; too few", printed("calibrate", "--batch", "last"), re.MULTILINE)
    layers = json.loads(printed("calibrate", "--layers", "--json"))
    assert (layers["verdicts"], layers["passed"], [one["stopped"] for one in layers["layers"]]) == (1, 1, [0] * 4)
    toml = printed("calibrate", "--toml")
    assert '"a \U0001f600 judge\\u007f" = {' in toml, "TOML has no surrogates"
    toml = "".join(line for line in toml.splitlines(keepends=True) if "judge\\u007f" not in line)
    Path("delegate.toml").write_text(toml)
    model = next(iter(json.loads(line.partition(" = ")[0]) for line in toml.splitlines()[1:]))
    monkeypatch.setenv("DELEGATE_CONFIG", "delegate.toml")
    with Delegator() as delegator:
        entry = delegator.catalog.find(model)
    assert entry
    assert entry.judge_accuracy
    measured = entry.judge_accuracy
    assert (measured.accuracy, measured.rulings, measured.bad, measured.false_passes) == (0.5, 2, 1, 1)
    assert measured.judge_version.startswith("sha256:")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rule"], ["nothing to rule on", "--sample N"]),
        (["rule", "last"], ["CRITERION is missing"]),
        (["rule", "last", "c1"], ["met or not_met is missing"]),
        (["rule", "last", "c9", "met"], ["no criterion 'c9'", "c1, c2"]),
        (["rule", "nowhere", "c1", "met"], ["no record 'nowhere'"]),
        (["rule", "last", "c1", "met", "--sample", "3"], ["only one of"]),
        (["rule", "--sample", "3"], ["needs a terminal", "--import"]),
        (["rule", "--import", "nowhere.jsonl"], ["nowhere.jsonl can't be read"]),
        (["calibrate", "--layers", "--fit"], ["don't go together"]),
        (["calibrate", "--fit"], ["at least 100 are needed"]),
        (["calibrate", "--batch", "nowhere"], ["no record 'nowhere'"]),
    ],
)
def test_a_mistake_is_named_in_one_line(handle: str, arguments: list[str], words: list[str]) -> None:
    message = refused(*arguments)
    for word in words:
        assert word in message


def test_a_review_shows_the_evidence_without_the_verdict_and_asks(handle: str) -> None:
    shown = _in_terminal(["rule", "--sample", "5", "--by", "ann"], ["a", "n", "it doesn't", "?", "y", ""])
    assert shown.count("I ran it: hello reader") == 3, "each once, and once more on request"
    assert not re.search(r"PASS|FAIL|met_by|It is there", shown.replace("not met", ""))
    assert "\x1b[2J" not in shown
    assert "2 of 2 ruled" in shown
    rows = json.loads(printed("calibrate", "--json"))["judges"]
    assert (rows[0]["sampling"], rows[0]["n"], rows[0]["false_pass"]) == ("random", 2, 1)


def _in_terminal(arguments: list[str], answers: list[str]) -> str:
    """What the command shows on a terminal whose user types these lines, each after the question before."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*warm.delegate(), *arguments], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, left = "", list(answers)
    try:
        while select.select([ours], [], [], 20)[0]:
            shown += os.read(ours, 10_000).decode(errors="replace")
            if left and re.search(r"(?: > |because: )\Z", shown):
                os.write(ours, f"{left.pop(0)}\n".encode())
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    assert process.wait(20) == 0, shown
    return shown
