"""`delegate call`: the output for a host that runs the command instead of importing the package."""

import json

from tests.cli.command import delegate, openai_at, worker
from tests.support.model_server import ModelServer


def test_a_call_from_stdin_prints_its_report_and_nothing_else() -> None:
    tasks = [
        {"goal": "Write note.md", "acceptance_criteria": ["file note.md: the note greets the reader"]},
        {"goal": "Write note.md too", "acceptance_criteria": [{"kind": "file", "path": "note.md", "min_bytes": 5}]},
    ]
    with ModelServer(worker()) as server:
        done = delegate("call", "-", stdin=json.dumps({"tasks": tasks}), **openai_at(server))
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == ""
    assert [result["verdict"]["verdict"] for result in answer["results"]] == ["PASS", "PASS"]
    assert answer["results"][0]["verdict"]["decided_by"] == "judge"
    assert "error" not in answer


def test_a_refused_call_prints_exactly_one_error_object_and_exits_with_2() -> None:
    done = delegate("call", stdin='{"goal": "x", "acceptance_criteria": [""]}')
    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert done.stderr == ""
    assert list(document) == ["error"]
    assert set(document["error"]) == {"code", "message", "field", "hint"}
    assert document["error"]["field"] == "acceptance_criteria[0]"


def test_without_a_key_a_call_is_refused_with_the_variables_to_set() -> None:
    done = delegate("call", '{"goal": "x"}')
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2
    assert error["code"] == "no_api_key"
    assert "OPENAI_API_KEY" in error["hint"]
