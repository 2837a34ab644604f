"""The files in schemas/ are valid, up to date, and match what delegate reads and writes."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from delegate._util import resources
from delegate.types import (
    Artifact,
    ChildRun,
    CriterionResult,
    ErrorDetail,
    Finding,
    JudgeRecord,
    RunResult,
    Task,
    TaskResult,
    Verdict,
)
from scripts.write_schemas import GENERATED, document

SHIPPED = sorted(
    file.name.removesuffix(".json") for file in resources.folder("schemas").iterdir() if ".json" in file.name
)
TOOLS = ("delegate_task", "read_delegation", "think")

VERDICT = Verdict(
    verdict="FAIL",
    verified=True,
    decided_by="check",
    code="not_met",
    reasoning="c1 isn't met",
    criteria=(
        CriterionResult(
            id="c1", text="t", kind="shell", outcome="not_met", decided_by="check", code="not_met", evidence="1 failed"
        ),
    ),
    findings=(Finding(severity="minor", code="truncated_for_judge", message="half was read"),),
    judge=JudgeRecord(model="small-1", tier="fast"),
)
RESULT = RunResult(
    results=(
        TaskResult(
            verdict=VERDICT,
            task_index=0,
            status="completed",
            report="Done.",
            structured_output={"n": [1, None]},
            artifacts=(Artifact(path="a", change="created", bytes=3),),
        ),
        TaskResult(
            verdict=None, task_index=1, status="failed", report="", error=ErrorDetail(code="crashed", message="y")
        ),
    ),
    run_id="abc",
)
TASKS: list[dict[str, Any]] = [
    {"goal": "g"},
    {"goal": "g", "acceptance_criteria": ["a", {"kind": "shell", "command": "true"}], "workspace": "/tmp/x"},
    {"goal": "g", "tier": "fast", "max_steps": 3, "workspace": {"mode": "fresh"}, "output_schema": {"type": "object"}},
    {"goal": "g", "acceptance_criteria": [{"kind": "json_schema", "schema": {"type": "array"}}]},
    {"goal": "g", "acceptance_criteria": [{"kind": "rubric", "rubric": "code", "threshold": 0.5}]},
]


def validator(name: str) -> Any:
    return Draft202012Validator(resources.schema(name))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_definition_is_a_valid_json_schema(name: str) -> None:
    definition = resources.schema(name)
    Draft202012Validator.check_schema(definition["parameters"] if name in TOOLS else definition)


def test_the_full_variants_criteria_are_a_valid_json_schema_too() -> None:
    Draft202012Validator.check_schema(resources.schema("delegate_task")["typed_criterion"])


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_definition_is_fresh(name: str) -> None:
    assert resources.text("schemas", f"{name}.json") == document(name), "run `make schemas`"


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_definition_says_what_it_is(name: str) -> None:
    schema = resources.schema(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == name.title().replace("_", "")
    assert "make schemas" in schema["$comment"]


def test_a_result_and_its_verdict_fit_their_schemas_as_they_are_written() -> None:
    written = json.loads(RESULT.model_dump_json())
    validator("run_result").validate(written)
    validator("verdict").validate(written["results"][0]["verdict"])


def test_a_refused_call_fits_the_results_schema() -> None:
    refused = RunResult(error=ErrorDetail(code="no_task", message="m", field="goal", hint="h"))
    validator("run_result").validate(json.loads(refused.model_dump_json()))


def test_a_verdict_must_say_pass_or_fail_and_nothing_else() -> None:
    written = json.loads(VERDICT.model_dump_json())
    assert not validator("verdict").is_valid({**written, "verdict": "UNSURE"})
    assert not validator("verdict").is_valid({**written, "extra": 1})
    assert not validator("verdict").is_valid({key: value for key, value in written.items() if key != "verified"})


@pytest.mark.parametrize("task", TASKS)
def test_what_is_read_as_a_task_fits_its_schema_as_given_and_as_written(task: dict[str, Any]) -> None:
    validator("task").validate(task)
    validator("task").validate(json.loads(Task.model_validate(task).model_dump_json()))


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"goal": ""},
        {"goal": "g", "teir": "fast"},
        {"goal": "g", "tier": "opus"},
        {"goal": "g", "acceptance_criteria": [{"kind": "bash"}]},
    ],
)
def test_what_is_no_task_does_not_fit_its_schema(task: dict[str, Any]) -> None:
    assert not validator("task").is_valid(task)


def test_a_childs_run_is_no_result() -> None:
    assert not validator("run_result").is_valid(json.loads(ChildRun(status="completed").model_dump_json()))
