"""The gate rejects obvious failures with a reason code, and lets everything else pass."""

from typing import Any

import pytest

from delegate.judging import gate
from delegate.types import Artifact, ChildRun, PlanStep, RunStatus, Task

TASK = Task(goal="write it to out/table.csv", acceptance_criteria=("it is written",), deliverables=("out/table.csv",))


def code(report: str, status: RunStatus = "completed", exists: bool = True) -> str | None:
    rejection = gate.inspect(TASK, ChildRun(status=status, report=report), lambda path: exists)
    return rejection.code if rejection else None


@pytest.mark.parametrize("status", ["failed", "timeout", "cancelled", "budget_exceeded", "max_steps"])
def test_a_run_that_did_not_complete_is_refused_whatever_it_says(status: RunStatus) -> None:
    assert code("All done, every test passes.", status) == "run_failed"


@pytest.mark.parametrize("report", ["", "  \n\t", "\u200b\u200b", "\u202e\u2066"])
def test_a_report_of_invisible_characters_is_empty(report: str) -> None:
    assert code(report) == "empty_report"


@pytest.mark.parametrize("report", [".", ":", "。", "!!!!!!", "aaaaaa", "… …"])
def test_a_report_without_content_is_degenerate(report: str) -> None:
    assert code(report) == "degenerate_report"


@pytest.mark.parametrize("report", ["42", "Yes", "Done.", "Fertig", "Done: wrote 3 rows", "否", "x = 1", "[]"])
def test_a_short_honest_answer_passes(report: str) -> None:
    assert code(report) is None


@pytest.mark.parametrize(
    "report",
    [
        "I wrote the table to `out/table.csv`.",
        "Die Tabelle steht in `out/table.csv`.",
        "表は`out/table.csv`にあります。",
    ],
)
def test_a_file_that_the_task_asks_for_and_the_report_names_has_to_be_there(report: str) -> None:
    assert code(report, exists=False) == "claimed_artifact_missing"
    assert code(report, exists=True) is None


@pytest.mark.parametrize(
    "report", ["I wrote it to `notes.md`.", "I created `https://x.org/a.html` links", "out/table.csv isn't there"]
)
def test_other_files_may_be_named(report: str) -> None:
    assert code(report, exists=False) is None


DECLARED = {
    "deliverables": {"deliverables": ["./out/table.csv"]},
    "about": {"acceptance_criteria": [{"kind": "text", "text": "it has three rows", "about": "out/table.csv"}]},
    "file": {"acceptance_criteria": [{"kind": "file", "path": "out/table.csv"}]},
    "shell": {"acceptance_criteria": [{"kind": "shell", "command": "true", "deliverables": ["out/table.csv"]}]},
}


@pytest.mark.parametrize("fields", DECLARED.values(), ids=DECLARED)
def test_a_task_declares_files_in_several_ways(fields: dict[str, Any]) -> None:
    task = Task.model_validate({"goal": "make the table", **fields})
    run = ChildRun(status="completed", report="It is in `out/table.csv`.")
    rejection = gate.inspect(task, run, lambda path: False)
    assert rejection
    assert rejection.code == "claimed_artifact_missing"


@pytest.mark.parametrize("word", ["184.5", "server.port", "example.org", "calc.add", "v1.2", "out/table.csv", "z.B"])
def test_what_only_words_name_need_not_be_a_file(word: str) -> None:
    task = Task(
        goal=f"Set {word} as asked.",
        acceptance_criteria=(f"{word} is right", {"kind": "regex", "pattern": word}),  # pyright: ignore[reportArgumentType]
    )
    run = ChildRun(status="completed", report=f"`{word}` is set.")
    assert gate.inspect(task, run, lambda path: False) is None
    assert gate.unrecorded_files(run, lambda path: False) == [word], "which is a finding"


def test_of_many_files_that_a_report_names_some_are_looked_for() -> None:
    looked: list[str] = []

    def never(path: str) -> bool:
        looked.append(path)
        return False

    many = ChildRun(status="completed", report=" ".join(f"`{n}.md`" for n in range(10_000)))
    assert gate.unrecorded_files(many, never) == looked == [f"{n}.md" for n in range(gate.MAX_NAMED_FILES)]


def test_a_deleted_file_may_be_named() -> None:
    task = Task(goal="delete out/table.csv")
    gone = ChildRun(
        status="completed",
        report="`out/table.csv` is gone",
        artifacts=(Artifact(path="out/table.csv", change="deleted"),),
    )
    assert gate.inspect(task, gone, lambda path: False) is None


def reported(task: Task = TASK, report: str = "I filled in the form.", **known: object) -> str | None:
    run = ChildRun(status="completed", report=report, **known)  # pyright: ignore[reportArgumentType]
    rejection = gate.inspect(task, run, lambda path: True)
    return rejection.code if rejection else None


STEPS = (PlanStep(text="read", done=True), PlanStep(text="write", done=False))


@pytest.mark.parametrize(
    ("known", "code"),
    [
        ({"plan": STEPS}, "plan_steps_incomplete"),
        ({"plan": STEPS[:1]}, None),
        ({"pending": ("date of birth",)}, "pending_form_values"),
        ({"report": "", "pending": ("x",)}, "empty_report"),  # the first rule that refuses names the reason
        ({"observations": ("a", "a", "a")}, "no_observed_delta"),
        ({"observations": ("a", "b")}, None),
        ({"observations": ("a",)}, None),
        ({"observations": ("a", "b", "b", "b", "b", "b")}, "no_progress_in_window"),
        ({"observations": ("a", "b", "b", "b", "b")}, None),
    ],
)
def test_what_a_child_left_open_and_what_never_changed_is_refused(known: dict[str, Any], code: str | None) -> None:
    assert reported(**known) == code


def test_required_fields_must_be_in_the_report() -> None:
    task = Task(goal="sum", output_schema={"type": "object", "required": ["total", "unit"]})
    assert reported(task, '{"total": 1}') == "report_missing_required_fields"
    assert reported(task, '{"total": 1, "unit": "kg"}') is None
    assert reported(task, "[]") == "report_missing_required_fields"
