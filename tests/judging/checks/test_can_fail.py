"""Criteria that can't fail are found by trying them; honest ones raise no alarm."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.judging.checks import can_fail
from delegate.judging.checks.json_schema import unknown_keyword
from delegate.judging.checks.schema_worker import keywords
from delegate.judging.validate import refuse_undecidable
from delegate.sandbox.commands.commands import Commands
from delegate.testing import Scripted
from delegate.types.errors import CallError
from tests.cli.command import delegate

SHAPES = [
    "true",
    "pytest -q || true",
    "pytest -q | tee log",
    "pytest; echo done",
    "if pytest; then echo ok; else echo bad; fi",
    "pytest & sleep 0; echo started",
    "trap 'exit 0' EXIT; pytest",
    'echo "$(pytest -q)"',
    "bash -c 'cd app && pytest || true'",
    "touch out.txt && test -f out.txt",
    "! grep -rn old . || true",
    "grep -rn old . | cat",
    "grep -q TODO app.py; true",
    "mkdir out && ls out",
    "mkdir -p a/b && touch a/b/c && ls a",
    "echo hi > out.txt && grep -q hi out.txt",
    "pytest -q > log 2>&1; cat log",
    "git add -A; true",
    "test $(ls | wc -l) -ge 0",
    "cd src; pytest || exit 0",
    "for f in *.py; do python3 -m py_compile $f; done; echo checked",
]
HONEST = [
    "pytest -q",
    "test -s out.txt",
    "set -o pipefail; grep -c rows out.csv | tee log",
    "bash -ec 'test \"$(wc -l < out.csv)\" -eq 10; echo done'",
    'python -c \'import json; assert json.load(open("out.json"))["n"] == 3\'',
    "rc=0; test -f a.txt || rc=1; test -f b.txt || rc=1; exit $rc",
]
ABSENCES = [
    "! grep -rn fetch_all --include=*.py .",
    '! grep -rnE "sk-[A-Za-z0-9]{8}" --include=*.py .',
    "! grep -q TODO app.py",
    "! grep -rn '^import old' .",
    "grep -q new app.py; ! grep -rn 'eval(' .",
    "test ! -e old.txt",
    "[ ! -d build ]",
    'test -z "$(grep -rn TODO src)"',
    "! find . -name '*.tmp' | grep -q .",
    "test \"$(find . -name '*.orig' | wc -l)\" -eq 0",
    "python3 -c \"import pathlib; assert not any('old' in p.read_text() for p in pathlib.Path('.').rglob('*.py'))\"",
    'for f in *.json; do [ -e "$f" ] || continue; python3 -m json.tool "$f" > /dev/null || exit 1; done',
    "find . -name '*.py' -exec python3 -m py_compile {} +",
    "! git grep -n old_name",
    "git init -q . && git add -A && git diff --cached --check",
    "! ls *.bak 2>/dev/null",
]
"""Honest commands that succeed where there is nothing to find."""
KINDS: list[tuple[dict[str, Any], bool]] = [
    ({"kind": "json_schema", "schema": {}}, False),
    ({"kind": "json_schema", "schema": {"title": "Report", "properties": {"n": {"type": "integer"}}}}, False),
    ({"kind": "json_schema", "schema": {"type": "object", "required": ["n"]}}, True),
    ({"kind": "json_schema", "schema": {"type": ["object", "array"]}}, True),
    ({"kind": "probe", "tool": "look", "schema": {}}, False),
    ({"kind": "probe", "tool": "look", "expr": "ok === true"}, True),
    ({"kind": "json_predicate", "expr": "true"}, False),
    ({"kind": "json_predicate", "expr": "output !== 7"}, False),
    ({"kind": "json_predicate", "expr": "rows.length === total"}, True),
    ({"kind": "json_predicate", "expr": "!output.error"}, True),
    ({"kind": "regex", "pattern": ".*"}, False),
    ({"kind": "regex", "pattern": "(done)?"}, False),
    ({"kind": "regex", "pattern": r"[\s\S]+"}, False),
    ({"kind": "regex", "pattern": "(?i)done"}, True),
    ({"kind": "regex", "pattern": r"^\{.*\}$"}, True),
    ({"kind": "file", "path": "a.md"}, True),
    ({"kind": "file", "path": "a.md", "min_bytes": 0}, False),
    ({"kind": "file", "path": "a.md", "contains": ""}, False),
    ({"kind": "file", "path": "a.md", "contains": "", "min_bytes": 9}, True),
    ({"kind": "receipt", "calls": [{"tool": "send"}]}, True),
    ({"kind": "receipt", "mode": "none", "of": ["send"]}, True),
]


def lint(tmp_path: Path, criteria: list[Any], *arguments: str) -> list[dict[str, Any]]:
    """What `delegate lint` says of these criteria, in the order in which they are given."""
    file = tmp_path / "criteria.json"
    file.write_text(
        json.dumps([{"kind": "shell", "command": one} if isinstance(one, str) else one for one in criteria])
    )
    done = delegate("lint", "--criteria", str(file), "--json", *arguments)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["criteria"]
    assert done.returncode == any(row["can_fail"] is False for row in rows)
    return rows


def test_every_shape_that_cannot_fail_is_found_and_no_honest_command(tmp_path: Path) -> None:
    rows = lint(tmp_path, [*SHAPES, *HONEST])
    assert [row["text"] for row in rows if row["can_fail"] is not False] == [f"`{one}` exits with 0" for one in HONEST]
    assert {row["can_fail"] for row in rows[len(SHAPES) :]} == {True}


def test_what_fails_only_where_there_is_something_to_find_can_fail_and_proves_little_alone(tmp_path: Path) -> None:
    rows = lint(tmp_path, ABSENCES)
    assert [row["text"] for row in rows if row["can_fail"] is not True] == []
    for row in rows:
        assert "the files of the task aren't known here" in row["warnings"][0]
        assert row["findings"] == []


@pytest.mark.parametrize("command", ["! grep -rn old --include=*.py .", "pytest || true"])
async def test_a_verdict_calls_a_check_vacuous_only_if_nothing_that_it_names_makes_it_fail(command: str) -> None:
    task = Task.model_validate({"goal": "x", "acceptance_criteria": [{"kind": "shell", "command": command}]})
    async with Delegator(
        client=Scripted([Scripted.call("write_file", path="a.py", content="new"), "Done."])
    ) as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    assert verdict
    assert (verdict.verdict, verdict.level, verdict.criteria[0].held_before) == ("PASS", "said", True)
    assert ("vacuous_check" in {one.code for one in verdict.findings}) == ("true" in command)


def test_where_there_is_a_workspace_what_fails_in_it_can_fail(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "app.py").write_text("# TODO\n")
    commands = ["pytest || true", "! grep -q TODO app.py", "test -s app.py", "test -s out.txt", f"cat {work}/app.py"]
    rows = lint(tmp_path, [*commands, "rm -f app.py; true"], "--workspace", str(work))
    assert [row["can_fail"] for row in rows] == [False, True, True, True, True, False]
    assert [bool(row["warnings"]) for row in rows] == [False, False, True, False, True, False]
    assert [path.name for path in work.iterdir()] == ["app.py"], "commands run in copies"


@pytest.mark.parametrize(("criterion", "fails"), KINDS, ids=lambda one: str(one)[:60])
async def test_conditions_are_tried_on_what_says_nothing(criterion: dict[str, Any], fails: bool) -> None:
    task = Task.model_validate({"goal": "Write the numbers to a.md.", "acceptance_criteria": [criterion]})
    (trial,) = await can_fail.try_out(task, Commands(), author="model")
    assert (trial.can_fail, bool(trial.how)) == (fails, True)


async def test_of_a_command_that_cannot_run_nothing_is_known() -> None:
    task = Task.model_validate({"goal": "g", "acceptance_criteria": [{"kind": "shell", "command": "true"}, "a judge"]})
    trials = await can_fail.try_out(task, Commands(commands="deny"), author="model")
    assert [trial.can_fail for trial in trials] == [None, None]
    assert "couldn't be run" in trials[0].how


async def test_a_command_is_stopped_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(can_fail, "MAX_SECONDS", 0.2)
    criteria = [
        {"kind": "shell", "command": "sleep 60"},
        {"kind": "shell", "command": "sleep 60", "timeout_seconds": 0.1},
    ]
    task = Task.model_validate({"goal": "g", "acceptance_criteria": criteria})
    trials = await can_fail.try_out(task, Commands(commands="allow"), author="model")
    assert [trial.can_fail for trial in trials] == [None, True]


@pytest.mark.parametrize(
    "criterion",
    [
        {"kind": "regex", "pattern": "^[^,]*$"},
        {"kind": "regex", "pattern": r"^(?![\s\S]*\bmaybe\b)"},
        {"kind": "regex", "pattern": r"^[\s\S]{0,500}$"},
        {"kind": "json_predicate", "expr": "!error"},
        {"kind": "json_predicate", "expr": "response.errors === undefined || response.errors.length === 0"},
        {"kind": "json_schema", "schema": {"not": {"required": ["error"]}}},
    ],
    ids=str,
)
async def test_a_condition_that_forbids_something_can_fail(criterion: dict[str, Any]) -> None:
    task = Task.model_validate({"goal": "Answer", "acceptance_criteria": [criterion]})
    trials = await can_fail.try_out(task, Commands(), author="model")
    assert [trial.can_fail for trial in trials] == [True]


# -------------------------------------------------------------------------------------------------- before spending


@pytest.mark.parametrize(
    "criterion",
    [
        {"kind": "shell", "command": "pytest || true"},
        {"kind": "probe", "tool": "read_file", "schema": {}},
        {"kind": "regex", "pattern": ".*"},
        {"kind": "json_predicate", "expr": "true"},
        {"kind": "file", "path": "a.md", "contains": ""},
    ],
    ids=str,
)
async def test_strict_checks_refuse_what_cannot_fail_before_money_is_spent(criterion: dict[str, Any]) -> None:
    client = Scripted(lambda request: "never asked")
    tasks = [Task(goal="x"), Task.model_validate({"goal": "x", "acceptance_criteria": ["fine", criterion]})]
    is_strict = criterion["kind"] in ("shell", "probe")  # other conditions are refused without the setting
    async with Delegator(client=client, strict_checks=is_strict) as delegator:
        with pytest.raises(CallError) as refused:
            await delegator.run(*tasks)
    assert (refused.value.code, refused.value.field) == ("vacuous_check", "tasks[1].acceptance_criteria[1]")
    assert not client.requests


async def refused_tool(criterion: Any, **task: Any) -> tuple[str, str]:
    """The message and the hint with which a criterion is refused as one that names an unknown tool; else no texts."""
    client = Scripted(lambda request: "done")
    call = {"goal": "x", "acceptance_criteria": [criterion]}
    async with Delegator(client=client) as delegator:
        try:
            run = delegator.run(Task.model_validate({**call, **task})) if task else delegator.call(call)
            error: Any = (await run).error
        except CallError as refused:
            error = refused
    if error is None:
        return "", ""
    assert (error.code, error.field) == ("unknown_tool", "acceptance_criteria[0]")
    assert not client.requests
    return error.message, error.hint or ""


REFERRING = {"id": {"from": {"tool": "list_fils", "path": "[0]"}}}


@pytest.mark.parametrize(
    ("criterion", "task", "name", "meant"),
    [
        ("called: run_comand", {}, "run_comand", None),
        ("never called: rm", {}, "rm", None),
        ("never called: run_shel", {"max_steps": 3}, "run_shel", "run_shell"),
        ("never called: write_*", {}, "write_*", "write_file"),
        ({"kind": "receipt", "calls": [{"tool": "write_fil"}]}, {}, "write_fil", "write_file"),
        ({"kind": "receipt", "mode": "none", "of": ["fetch_url", "fetch"]}, {}, "fetch", "fetch_url"),
        ({"kind": "receipt", "mode": "exactly", "of": ["fetch_ulr"]}, {}, "fetch_ulr", "fetch_url"),
        ({"kind": "receipt", "mode": "none", "calls": [{"tool": "write_file", "args": REFERRING}]}, {}, "list_fils",
         "list_files"),
        ("never called: write_file", {"tools": ["read_file"]}, "write_file", "read_file"),
        ("never called: claim_complete", {}, "claim_complete", None),
        ("never called: declare_step", {}, "declare_step", None),
    ],
)  # fmt: skip
async def test_a_tool_that_the_child_does_not_have_is_refused_before_any_work(
    criterion: Any, task: dict[str, Any], name: str, meant: str | None
) -> None:
    message, hint = await refused_tool(criterion, **task)
    assert message == f"there is no tool {name!r} for the child"
    assert hint.startswith(f"did you mean `{meant}`? The tools are: read_file" if meant else "The tools are: read_file")


@pytest.mark.parametrize(
    ("criterion", "task"),
    [
        ("never called: run_shell", {}),
        ("never called: delegate_task", {}),
        ({"kind": "receipt", "mode": "none"}, {}),
        ("never called: write_file", {"tools": ["read_file", "write_file"]}),
        ("never called: declare_step", {"steps": True}),
    ],
)
async def test_a_tool_that_the_child_has_can_be_forbidden(criterion: Any, task: dict[str, Any]) -> None:
    assert await refused_tool(criterion, **task) == ("", "")


async def test_a_forbidden_tool_of_a_host_is_proven_not_to_be_called() -> None:
    def rm(path: str) -> str:
        """Remove a file."""
        return path

    task = Task.model_validate({"goal": "x", "acceptance_criteria": ["never called: rm"]})
    async with Delegator(client=Scripted(lambda request: "done"), tools=[rm]) as delegator:
        (result,) = (await delegator.run(task)).results
    assert result.verdict
    assert (result.verdict.verdict, result.verdict.level) == ("PASS", "proven")


@pytest.mark.parametrize("criterion", [{}, {"of": ["send"]}])
def test_a_receipt_that_expects_nothing_is_refused(criterion: dict[str, Any]) -> None:
    task = Task.model_validate({"goal": "g", "acceptance_criteria": [{"kind": "receipt", **criterion}]})
    with pytest.raises(CallError, match="nothing is expected"):
        refuse_undecidable(task)


# --------------------------------------------------------------------------------------------------------- keywords

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


UNKNOWN: list[tuple[dict[str, Any], str]] = [
    ({"requird": ["a"]}, "at $: `requird` is not a keyword of JSON Schema; did you mean `required`?"),
    ({"type": "object", "propertes": {}}, "at $: `propertes` is not a keyword of JSON Schema; did you mean `prop"),
    ({"properties": {"requird": {"maxLenght": 3}}}, "at $.properties.requird: `maxLenght`"),
    ({"$defs": {"a": {"anyOf": [{"itmes": {}}]}}}, "at $.$defs.a.anyOf[0]: `itmes`"),
    ({"not": {"must_have": ["a"]}}, "at $.not: `must_have` is not a keyword of JSON Schema"),
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"minimun": 1}}}, "at $.dependencies.c: `minimun`"),
    ({"$schema": DRAFT_7, "unevaluatedProperties": False}, "`unevaluatedProperties` is not a keyword"),
    ({"$schema": DRAFT_4, "items": [{"const": 1}]}, "at $.items[0]: `const`"),
]


@pytest.mark.parametrize(("schema", "complaint"), UNKNOWN)
def test_an_unknown_keyword_is_refused_with_the_likely_one(schema: dict[str, Any], complaint: str) -> None:
    assert complaint in (unknown_keyword(schema) or "")
    for criterion in ({"kind": "json_schema", "schema": schema}, {"kind": "file", "path": "a", "json_schema": schema}):
        with pytest.raises(CallError) as caught:
            refuse_undecidable(Task.model_validate({"goal": "g", "acceptance_criteria": [criterion]}))
        assert (caught.value.code, caught.value.field) == ("invalid_criterion", "acceptance_criteria[0]")


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"x-unit": "kg", "title": "T", "description": "D", "examples": [{"requird": 1}], "default": {"requird": 1}},
        {"properties": {"requird": True, "x": {"enum": [{"requird": 1}], "const": {"requird": 1}}}},
        {"oneOf": [{"$ref": "#/$defs/a"}], "discriminator": {}, "$defs": {"a": {"deprecated": True}}},
        {"$schema": DRAFT_7, "$defs": {"a": {"if": {}}}, "items": [{"$ref": "#/$defs/a"}], "readOnly": True},
        {"$schema": DRAFT_2019, "$recursiveAnchor": True, "additionalItems": False, "dependentRequired": {"a": ["b"]}},
        {"$schema": DRAFT_4, "id": "urn:x", "exclusiveMinimum": True, "minimum": 0, "$ref": "#"},
        {"format": "date", "contentMediaType": "text/plain", "$comment": "c", "definitions": {}, "$vocabulary": {}},
    ],
)  # fmt: skip
def test_the_vocabulary_of_the_draft_and_annotations_are_allowed(schema: Any) -> None:
    assert unknown_keyword(schema) is None


def test_the_meta_schemas_use_only_their_own_keywords() -> None:
    from jsonschema_specifications import REGISTRY

    drafts: list[Any] = [REGISTRY.contents(id) for id in REGISTRY]
    assert len(drafts) > 15
    assert [(one.get("$id"), found) for one in drafts if (found := unknown_keyword(one))] == []
    assert {"required", "properties", "$ref", "prefixItems"} <= keywords("").keys()
