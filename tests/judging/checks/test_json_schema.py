import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delegate.judging.checks.json_schema import SchemaProblem, check_schema, validate
from delegate.judging.checks.worker import close_workers
from tests.support.pace import watched_loop
from tests.support.samples import sampled

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
    "additionalProperties": False,
}
LINKED: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["v"]}},
}


@pytest.fixture
def no_worker_yet() -> Iterator[None]:
    """For tests that look at worker processes; the others may use the one that is there."""
    close_workers()
    yield
    close_workers()


def workers() -> list[int]:
    """The worker processes that this process has started and that still run."""
    listed = subprocess.run(["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(maxsplit=2) for line in listed.splitlines())
    return sorted({int(row[0]) for row in rows if int(row[1]) == os.getpid() and "schema_worker" in row[2]})


def nested(levels: int) -> Any:
    value: Any = {"v": 1}
    for _ in range(levels):
        value = {"v": 1, "next": value}
    return value


# --------------------------------------------------------------------------------------------------- validating


@pytest.mark.parametrize(
    ("instance", "problem"),
    [
        ({"name": "x", "tags": [1, 2]}, None),
        ({"name": "x", "tags": [1, 2, "x"]}, "at $.tags[2]: 'x' is not of type 'integer'"),
        ({}, "at $: 'name' is a required property"),
        ([], "at $: [] is not of type 'object'"),
    ],
)
async def test_what_is_wrong_is_said_with_its_place(instance: Any, problem: str | None) -> None:
    assert await validate(instance, PERSON) == problem


async def test_a_schema_with_references_is_validated_with_the_same_words() -> None:
    assert await validate({"v": 1, "next": {"v": 2}}, LINKED) is None
    assert await validate({"v": 1, "next": {}}, LINKED) == "at $.next: 'v' is a required property"


async def test_true_and_false_are_schemas() -> None:
    assert await validate(1, True) is None
    assert await validate(1, False) == "at $: False schema does not allow 1"


async def test_the_schema_says_which_draft_it_is() -> None:
    schema = {"items": [{"type": "integer"}], "additionalItems": False}
    draft7 = schema | {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert "Additional items" in str(await validate([1, 2], draft7))
    with pytest.raises(SchemaProblem):  # an array of items is no longer a schema in 2020-12
        await validate([1, 2], schema)


async def test_what_is_wrong_is_one_bounded_line() -> None:
    for schema in (PERSON, LINKED):
        problem = await validate({"a\nb" * 50: "x\n" * 5_000}, schema)
        assert problem is not None
        assert "\n" not in problem
        assert len(problem) < 800


async def test_a_large_value_is_validated_and_its_fault_is_found() -> None:
    value = {"name": "x", "tags": [*range(50_000), "x"]}
    assert await validate(value, PERSON, timeout_seconds=20) == "at $.tags[50000]: 'x' is not of type 'integer'"


async def test_plain_schemas_need_no_worker_and_one_worker_serves_the_rest(no_worker_yet: None) -> None:
    await validate({}, PERSON)
    assert workers() == []
    await asyncio.gather(*(validate({"v": n}, LINKED) for n in range(5)))
    first = workers()
    await validate({}, LINKED)
    assert (len(first), workers()) == (1, first)
    close_workers()
    assert workers() == []


def test_a_worker_outlives_the_event_loop_it_was_started_in(no_worker_yet: None) -> None:
    asyncio.run(validate({}, LINKED))
    first = workers()
    asyncio.run(validate({}, LINKED))
    assert (len(first), workers()) == (1, first)


async def test_a_worker_that_died_is_replaced(no_worker_yet: None) -> None:
    await validate({}, LINKED)
    (pid,) = workers()
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert await validate({"v": 1}, LINKED) is None


async def test_a_key_of_this_process_does_not_reach_the_worker(
    no_worker_yet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-test")
    await validate({}, LINKED)
    (pid,) = workers()
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PYTHONPATH=" in environ
    assert b"canary" not in environ


# ------------------------------------------------------------------------------------------------------ attacks


def doubling(levels: int) -> dict[str, Any]:
    """A small schema that takes 2 to the power of `levels` steps."""
    defs: dict[str, Any] = {
        f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}, {"$ref": f"#/$defs/n{n + 1}"}]} for n in range(levels)
    }
    return {"$ref": "#/$defs/n0", "$defs": {**defs, f"n{levels}": True}}


ATTACKS: dict[str, tuple[Any, Any]] = {
    "pattern": ("a" * 60 + "!", {"pattern": "^(a+)+$"}),
    "patternProperties": ({"a" * 60 + "!": 1}, {"patternProperties": {"^(a+)+$": {}}}),
    "nested pattern": ({"x": ["a" * 60 + "!"]}, {"properties": {"x": {"items": {"pattern": "^(a|a)+$"}}}}),
    "doubling allOf": (1, doubling(30)),
    "endless reference": (1, {"$ref": "#"}),
    "mutual references": (1, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    "dynamic reference": (1, {"$dynamicRef": "#x", "$dynamicAnchor": "x"}),
    "deep value": (nested(5_000), LINKED),
    "compile bomb": ("a", {"pattern": "(?i)" + "[a-\U0010ffff]" * 190}),
    "remote reference": (1, {"$ref": "http://127.0.0.1:1/schema.json"}),
    "file reference": (1, {"$ref": "file:///etc/passwd"}),
    "missing reference": (1, {"$ref": "#/$defs/gone"}),
    "deep schema": (1, {"not": nested(500)}),
    "wide schema": (1, {"enum": list(range(100_000))}),
    "not a schema": (1, {"type": "strng"}),
    "not an object": (1, "string"),
    "odd $schema": (1, {"$schema": ["x"]}),
    "odd $id": (1, {"$id": "http://[", "$ref": "#/x"}),
    "broken pattern": ("a", {"pattern": "("}),
    "huge repeat": ("a", {"pattern": "a{99999999999}"}),
}


@pytest.mark.parametrize("name", sampled(ATTACKS, 4, attacks=True))
async def test_a_hostile_schema_is_a_problem_in_time_and_the_loop_goes_on(name: str) -> None:
    instance, schema = ATTACKS[name]
    await validate({}, LINKED)  # a running worker, whose start isn't measured
    started = time.monotonic()
    async with watched_loop() as held:
        with pytest.raises(SchemaProblem):
            await validate(instance, schema, timeout_seconds=0.1)
    assert time.monotonic() - started < 15
    assert held.seconds < 1
    assert await validate({"v": 1}, LINKED) is None


async def test_a_reference_to_the_network_is_never_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/s.json"
        schemas: list[dict[str, Any]] = [
            {"$ref": url},
            {"$id": url, "$ref": "other.json"},
            {"$dynamicRef": url},
            {"$schema": url},
            {"$ref": url, "examples": [{"$id": url}]},  # looks like its own id, but is only data
        ]
        for schema in schemas:
            with contextlib.suppress(SchemaProblem):
                await validate(1, schema)
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_cancelled_validation_leaves_no_answer_for_the_next() -> None:
    await validate({}, LINKED)
    slow = asyncio.create_task(validate(*ATTACKS["pattern"], timeout_seconds=30))
    await asyncio.sleep(0)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert await validate({"next": 1}, LINKED) == "at $: 'v' is a required property"


# ----------------------------------------------------------------------------------------------------- checking


@pytest.mark.parametrize(
    "schema",
    [PERSON, LINKED, True, {}, {"pattern": "^a"}, {"$ref": "https://json-schema.org/draft/2020-12/schema"},
     {"$defs": {"a": {"$id": "https://example.com/a.json"}}, "$ref": "https://example.com/a.json"},
     {"properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}}],
)  # fmt: skip
def test_a_good_schema_has_no_problem(schema: Any) -> None:
    assert check_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "strng"}, "at $.type: 'strng'"),
        ({"properties": {"a": {"items": 3}}}, "at $.properties.a.items: 3"),
        ({"required": "name"}, "at $.required"),
        ({"pattern": "("}, "not a regular expression"),
        ({"patternProperties": {"[": {}}}, "not a regular expression"),
        ({"$ref": "http://example.com/x.json"}, "leads outside"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "leads outside"),
        ("string", "an object, not str"),
        (["a"], "an object, not list"),
        ({"$schema": 1}, "$.$schema"),
        ({"const": {1, 2}}, "JSON"),
    ],
)
def test_a_bad_schema_is_described_in_one_line(schema: Any, words: str) -> None:
    problem = check_schema(schema)
    assert problem is not None
    assert words in problem
    assert "\n" not in problem


@pytest.mark.parametrize("name", ["deep schema", "wide schema", "compile bomb", "doubling allOf"])
def test_looking_at_a_hostile_schema_is_quick(name: str) -> None:
    started = time.thread_time()
    check_schema(ATTACKS[name][1])
    assert time.thread_time() - started < 5
