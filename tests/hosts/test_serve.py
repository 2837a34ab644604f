"""`delegate serve` and `delegate rpc`: programs in any language make calls, follow, stop, approve and judge."""

import asyncio
import json
import math
import os
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

pytest.importorskip("starlette")

from delegate import Delegator
from delegate.hosts.serve import http, openapi
from delegate.hosts.serve.operations import OPERATIONS
from delegate.policy.rules import Policy, Rule
from delegate.testing import Scripted
from delegate.types.ports import ChatRequest
from tests.support import warm
from tests.support.gate import Gate

TOKEN = "a" * 32
TASK = {"goal": "Write a.txt.", "acceptance_criteria": ["file: a.txt"]}


@dataclass
class Served:
    """A server, and a client of it."""

    url: str
    web: aiohttp.ClientSession
    delegator: Delegator

    async def ask(self, path: str, body: Any = None, *, token: str = TOKEN, status: int = 200, **headers: str) -> Any:
        """The JSON of an answer that has this status, and the form that the document says."""
        sent = {"Authorization": f"Bearer {token}", **headers}
        method = "GET" if body is None else "POST"
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with self.web.request(method, f"{self.url}{path}", data=data, headers=sent) as answer:
            text = await answer.text()
            assert answer.status == status, text
            assert answer.status < 500
            return json.loads(text) if text else None


def writes(request: ChatRequest) -> Any:
    """A child that writes the file, and says so."""
    wrote = any(message.role == "tool" for message in request.messages)
    return "I wrote it." if wrote else Scripted.call("write_file", path="a.txt", content="x")


@asynccontextmanager
async def serving(
    script: Callable[[ChatRequest], Any] = writes, tokens: dict[str, str] | None = None, **options: Any
) -> AsyncGenerator[Served]:
    limits = {key: options.pop(key) for key in ("max_open",) if key in options}
    async with Delegator(client=Scripted(script), **options) as delegator, aiohttp.ClientSession() as web:
        listener = http.listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        running = asyncio.create_task(http.serve(delegator, listener, tokens=tokens or {"client": TOKEN}, **limits))
        try:
            yield Served(url, web, delegator)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_a_call_is_answered_with_its_verdict_and_can_be_read_again() -> None:
    async with serving() as served:
        done = await served.ask("/v1/calls", {"call": TASK, "wait_seconds": 60})
        assert (done["state"], done["result"]["results"][0]["verdict"]["verdict"]) == ("done", "PASS")
        assert done["text"].startswith("1 of 1 PASS")
        read = await served.ask(f"/v1/tasks/{done['handles'][0]}")
        assert read["state"] == "done"
        assert read["result"]["verdict"]["level"] == "proven"


async def test_a_call_that_takes_longer_is_followed_waited_for_and_read() -> None:
    gate = Gate()
    async with serving(gate) as served:
        running = await served.ask("/v1/calls", {"call": {"goal": "Wait."}}, status=202)
        (handle,) = running["handles"]
        assert running["result"] is None
        assert (await served.ask(f"/v1/tasks/{handle}"))["state"] == "running"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with served.web.get(f"{served.url}/v1/tasks/{handle}/events", headers=headers) as stream:
            kinds: list[str] = []
            async for line in stream.content:
                if line.startswith(b"event: "):
                    kinds.append(line.split()[1].decode())
                    if kinds[-1] == "child.started":
                        gate.open.set()
        assert kinds[0] == "run.started"
        assert kinds[-2:] == ["run.done", "end"]
        assert (await served.ask(f"/v1/tasks/{handle}?wait_seconds=60"))["state"] == "done"


async def test_a_task_is_stopped() -> None:
    gate = Gate()
    async with serving(gate) as served:
        (handle,) = (await served.ask("/v1/calls", {"call": {"goal": "Wait."}}, status=202))["handles"]
        await gate.waiting.wait()
        stopped = await served.ask(f"/v1/tasks/{handle}/stop", {})
        assert stopped["result"]["status"] == "cancelled"


async def test_a_call_goes_on_when_its_connection_is_cut() -> None:
    gate = Gate()
    async with serving(gate) as served:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await served.ask("/v1/calls", {"call": {"goal": "Wait."}, "wait_seconds": 60})
        await gate.waiting.wait()
        gate.open.set()
        await served.delegator.background.join()
        (run,) = await served.delegator.records.runs(10)
        (task,) = await served.delegator.records.tasks(run.run_id)
        assert (await served.ask(f"/v1/tasks/{task.handle}?wait_seconds=60"))["result"]["status"] == "completed"


async def test_a_stream_of_events_that_is_cut_stops_nothing_and_another_goes_on_to_the_end() -> None:
    gate, headers = Gate(), {"Authorization": f"Bearer {TOKEN}"}
    async with serving(gate) as served:
        (handle,) = (await served.ask("/v1/calls", {"call": {"goal": "Wait."}}, status=202))["handles"]
        url = f"{served.url}/v1/tasks/{handle}/events"
        cut = await served.web.get(url, headers=headers)
        assert await cut.content.readline() == b"id: 0\n"
        cut.close()
        assert (await served.ask(f"/v1/tasks/{handle}"))["state"] == "running"
        assert (await served.ask("/v1/tasks/x/events", status=404))["error"]["code"] == "unknown_handle"
        open_until_the_end = await served.web.get(url, headers=headers)
        gate.open.set()
        assert (await open_until_the_end.text()).endswith("event: end\ndata: {}\n\n")


async def test_without_the_token_nothing_is_answered_but_what_the_server_is() -> None:
    async with serving() as served:
        for token in ("", "b" * 32, TOKEN + "a", TOKEN[:-1], "ä" * 32):
            error = await served.ask("/v1/version", token=token, status=401)
            assert error["error"]["code"] == "unauthorized"
            assert "Authorization: Bearer TOKEN" in error["error"]["hint"]
        assert (await served.ask("/healthz", token="")) == {"status": "ok"}
        assert (await served.ask("/openapi.json", token=""))["openapi"] == "3.1.0"
        assert (await served.ask("/v1/version"))["wireVersion"] == "1.0.0"
        error = await served.ask("/v1/version", status=421, Host="evil.example")
        assert (error["error"]["code"], "127.0.0.1" in error["error"]["hint"]) == ("wrong_host", True)


async def test_a_running_child_is_sent_messages() -> None:
    gate = Gate()
    async with serving(gate, max_steps=1) as served:
        (handle,) = (await served.ask("/v1/calls", {"call": TASK}, status=202))["handles"]
        await gate.waiting.wait()
        path = f"/v1/tasks/{handle}/messages"
        sent = await served.ask(path, {"text": "Name the color."})
        assert (sent["handle"], sent["state"], sent["text"]) == (handle, "queued", "Name the color.")
        wrong = await served.ask(path, {"text": " "}, status=422)
        assert (wrong["error"]["code"], wrong["error"]["field"]) == ("empty", "text")
        gate.open.set()
        await served.ask(f"/v1/tasks/{handle}?wait_seconds=60")
        (read,) = await served.ask(path)
        assert (read["id"], read["state"]) == (sent["id"], "never_read")
        late = await served.ask(path, {"text": "Name the size.", "acceptance_criteria": ["file: b.txt"]})
        assert late["handle"] == f"{handle[:-1]}00"
        result = (await served.ask(f"/v1/tasks/{late['handle']}?wait_seconds=60"))["result"]
        assert (result["handle"], result["verdict"]["verdict"]) == (late["handle"], "FAIL")
        assert result["verdict"]["criteria"][0]["text"] == "file b.txt exists"
        again = await served.ask(path, {"text": "Name the size."}, status=422)
        assert again["error"]["code"] == "cannot_message"


async def test_a_child_asks_and_a_message_answers() -> None:
    def script(request: ChatRequest) -> Any:
        question = {"question": "Which color?", "options": ["red", "blue"]}
        return request.messages[-1].text if request.messages[1:] else Scripted.call("ask_parent", **question)

    async with serving(script) as served:
        call = {"call": {"goal": "Paint it."}, "wait_seconds": 60, "asks": True}
        asked = await served.ask("/v1/calls", call, status=202)
        (handle,) = asked["handles"]
        (question,) = asked["questions"]
        assert (asked["state"], question["handle"], question["options"]) == ("needs_input", handle, ["red", "blue"])
        task = await served.ask(f"/v1/tasks/{handle}?wait_seconds=60")
        assert (task["state"], task["question"]) == ("needs_input", question)
        sent = await served.ask(f"/v1/tasks/{handle}/messages", {"text": "2"})
        assert (sent["is_answer"], sent["state"]) == (True, "queued")
        done = await served.ask(f"/v1/tasks/{handle}?wait_seconds=60")
        assert (done["state"], done["question"]) == ("done", None)
    assert "Option 2: blue" in done["result"]["report"]


async def test_each_client_reads_and_stops_only_its_own_tasks() -> None:
    gate = Gate()
    async with serving(gate, {"one": TOKEN, "two": "b" * 32}) as served:
        (handle,) = (await served.ask("/v1/calls", {"call": {"goal": "Wait."}}, status=202))["handles"]
        paths: dict[str, Any] = {"": None, "/stop": {}, "/events": None, "/messages": {"text": "Hello."}}
        for path, body in paths.items():
            path = f"/v1/tasks/{handle}{path}"
            assert (await served.ask(path, body, token="b" * 32, status=404))["error"]["code"] == "unknown_handle"
        assert (await served.ask(f"/v1/tasks/{handle}"))["state"] == "running"
        gate.open.set()


async def test_a_client_has_only_so_many_calls_running() -> None:
    gate = Gate()
    async with serving(gate, {"one": TOKEN, "two": "b" * 32}, max_open=2) as served:
        call = {"call": {"goal": "Wait."}}
        for _ in range(2):
            await served.ask("/v1/calls", call, status=202)
        refused = await served.ask("/v1/calls", call, status=429)
        assert (refused["error"]["code"], "2 calls" in refused["error"]["message"]) == ("too_many_calls", True)
        await served.ask("/v1/calls", call, token="b" * 32, status=202)
        gate.open.set()
        await served.delegator.background.join()
        await served.ask("/v1/calls", {**call, "wait_seconds": 60})


async def test_an_approval_is_listed_and_given() -> None:
    policy = Policy(rules=(Rule(decision="ask", tools=("write_file",), reason="writes"),))
    async with serving(policy=policy) as served:
        running = await served.ask("/v1/calls", {"call": TASK}, status=202)
        asked: list[Any] = []
        async with asyncio.timeout(10):
            while not asked:
                asked = await served.ask("/v1/approvals")
        (one,) = asked
        assert (one["tool"], one["handle"], one["arguments"]["path"]) == ("write_file", running["handles"][0], "a.txt")
        unknown = await served.ask(f"/v1/approvals/{'0' * 64}", {"approved": True}, status=404)
        assert unknown["error"]["code"] == "unknown_approval"
        await served.ask(f"/v1/approvals/{one['sha256']}", {"approved": True, "by": "Ann"}, status=204)
        read = await served.ask(f"/v1/tasks/{running['handles'][0]}?wait_seconds=60")
        assert read["result"]["verdict"]["verdict"] == "PASS"
        assert await served.ask("/v1/approvals") == []


async def test_existing_work_is_judged(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    work = {"goal": "x", "acceptance_criteria": ["file: a.txt"], "workspace": str(tmp_path)}
    async with serving() as served:
        assert (await served.ask("/v1/judge", work))["verdict"] == "PASS"
        refused = await served.ask("/v1/judge", {**work, "acceptance_criteria": [{"kind": "file"}]}, status=422)
        assert "path" in refused["error"]["message"]


WRONG: dict[str, tuple[str, Any, int, str, str]] = {
    "no JSON": ("/v1/calls", b"{", 400, "invalid_json", "not valid JSON"),
    "no UTF-8": ("/v1/calls", b"\xff\xfe", 400, "invalid_json", "not valid JSON"),
    "deep": ("/v1/calls", b"[" * 100_000, 400, "invalid_json", "not valid JSON"),
    "another form": ("/v1/calls", [], 422, "wrong_type", "the body should be an object, got []"),
    "no call": ("/v1/calls", {}, 422, "wrong_type", "`call` is missing"),
    "a call of another form": ("/v1/calls", {"call": 3}, 422, "wrong_type", "`call` should be an object, got 3"),
    "a field too many": ("/v1/calls", {"call": TASK, "x": 1}, 422, "unknown_field", "`x` is not an allowed field"),
    "a field that is mistyped": ("/v1/calls", {"call": TASK, "ask": 1}, 422, "unknown_field", "mean `asks`?"),
    "a receipt of another form": (
        "/v1/judge",
        {"goal": "x", "acceptance_criteria": ["x"], "receipts": [3]},
        422,
        "wrong_type",
        "`receipts[0]` should be an object, got 3",
    ),
    "a long wait": ("/v1/calls", {"call": TASK, "wait_seconds": 1e9}, 422, "wrong_type", "`wait_seconds`"),
    "no wait": ("/v1/tasks/x?wait_seconds=nan", None, 422, "wrong_type", "`wait_seconds`"),
    "an unknown query": ("/v1/tasks/x?wait_secs=1", None, 422, "unknown_field", "did you mean `wait_seconds`?"),
    "no task": ("/v1/tasks/x", None, 404, "unknown_handle", "no record"),
    "no task with messages": ("/v1/tasks/x/messages", None, 404, "unknown_handle", "no record"),
    "no task to send to": ("/v1/tasks/x/messages", {"text": "x"}, 404, "unknown_handle", "no record"),
    "no path": ("/v1/x", None, 404, "unknown_path", "Not Found"),
    "no method": ("/v1/judge", None, 405, "wrong_method", "Method Not Allowed"),
    "too long": ("/v1/judge", b" " * (http.MAX_BODY_BYTES + 1), 413, "too_large", "bytes"),
}


async def test_what_is_wrong_is_one_error_that_says_so() -> None:
    async with serving() as served:
        for name, (path, body, status, code, said) in WRONG.items():
            answer = await served.ask(path, body, status=status)
            assert answer.keys() == {"error"}, name
            assert (answer["error"]["code"], said in answer["error"]["message"]) == (code, True), (name, answer)
            assert answer["error"]["hint"], name
            assert "delegation" not in answer["error"]["hint"], name  # a tool that HTTP doesn't have


async def test_a_refused_call_says_why_to_program_and_model() -> None:
    async with serving() as served:
        refused = await served.ask("/v1/calls", {"call": {"goal": ""}}, status=422)
        assert refused == json.loads(await served.delegator.answer({"goal": ""}))
        assert (refused["error"]["code"], refused["error"]["field"]) == ("empty", "goal")


async def test_the_document_says_what_is_sent_and_answered() -> None:
    document = openapi.document()
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]
    paths = {one.path.split()[1] for one in OPERATIONS} | {"/openapi.json", "/healthz"}
    assert paths == set(document["paths"])

    def check(name: str, value: Any) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.validate(value, schema)

    async with serving() as served:
        call = {"call": TASK, "wait_seconds": 60}
        done = await served.ask("/v1/calls", call)
        check("CallRequest", call)
        check("CallState", done)
        check("TaskState", await served.ask(f"/v1/tasks/{done['handles'][0]}"))
        check("Error", await served.ask("/v1/tasks/x", status=404))
        check("Error", await served.ask("/v1/calls", {"call": {"goal": ""}}, status=422))
        check("Version", await served.ask("/v1/version"))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with served.web.get(f"{served.url}/v1/tasks/{done['handles'][0]}/events", headers=headers) as stream:
            lines = [line[6:] for line in (await stream.text()).splitlines() if line.startswith("data: ")]
        for line in lines[:-1]:
            check("Event", json.loads(line))
        assert len(lines) > 5


async def test_values_of_any_form_are_answered_and_never_with_a_failure() -> None:
    values: list[Any] = [None, 0, -1, math.pi, "", "x" * 10_000, [], {}, [[]], {"goal": 1}, True, "\ud800", 2**70]
    async with serving() as served:
        for path, fields in (
            ("/v1/calls", ("call", "parent", "wait_seconds")),
            ("/v1/judge", ("goal", "acceptance_criteria", "report", "workspace", "receipts", "status", "conversation")),
            ("/v1/approvals/x", ("approved", "by")),
        ):
            for field in fields:
                for value in values:
                    body = {"call": TASK} if path == "/v1/calls" else {"goal": "x", "acceptance_criteria": ["file: a"]}
                    data = json.dumps({**body, field: value}).encode()
                    headers = {"Authorization": f"Bearer {TOKEN}"}
                    async with served.web.post(f"{served.url}{path}", data=data, headers=headers) as answer:
                        assert answer.status < 500, (path, field, value, await answer.text())
        await served.delegator.background.join()


@pytest.mark.slow
async def test_a_thousand_calls_of_fifty_clients_have_one_result_each() -> None:
    tokens = {f"client {n}": f"{n:032}" for n in range(50)}

    def script(request: ChatRequest) -> Any:
        return "Done."

    async with serving(script, tokens) as served:

        async def calls(token: str) -> list[str]:
            handles: list[str] = []
            for n in range(20):
                body = {"call": {"goal": f"Task {n}."}, "wait_seconds": 60 if n % 2 else 0}
                headers = {"Authorization": f"Bearer {token}"}
                async with served.web.post(f"{served.url}/v1/calls", json=body, headers=headers) as answer:
                    handles += (await answer.json())["handles"]
            return handles

        made = await asyncio.gather(*(calls(token) for token in tokens.values()))
        handles = [handle for of_client in made for handle in of_client]
        assert len(set(handles)) == len(handles) == 1_000
        for token, of_client in zip(tokens.values(), made, strict=True):
            for handle in of_client:
                read = await served.ask(f"/v1/tasks/{handle}?wait_seconds=60", token=token)
                assert read["result"]["status"] == "completed"


async def test_a_unix_socket_is_reached_by_its_user_alone_and_replaced_if_nobody_listens(tmp_path: Path) -> None:
    path = tmp_path / "s"
    http.listen_on_path(path).close()
    listener = http.listen_on_path(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(http.ConfigError, match="another server listens"):
        http.listen_on_path(path)
    (tmp_path / "file").touch()
    with pytest.raises(http.ConfigError, match="can't listen"):
        http.listen_on_path(tmp_path / "file")
    async with Delegator(client=Scripted(writes)) as delegator:
        running = asyncio.create_task(http.serve(delegator, listener, tokens={"client": TOKEN}))
        connector = aiohttp.UnixConnector(str(path))
        async with aiohttp.ClientSession(connector=connector) as web:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with web.get("http://anything/v1/version", headers=headers) as answer:
                assert answer.status == 200
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


# ---------------------------------------------------------------------------------------------------------- scores

STYLE: dict[str, Any] = {
    "name": "style", "description": "Whether it is well written.", "systemPrompt": "You review voices.",
    "dimensions": [{"id": "clear", "description": "It is clear.", "weight": 3, "max": 4},
                   {"id": "short", "description": "It is short."}],
    "failureModes": [{"id": "cadence", "description": "It has the cadence of a machine."}],
    "wins": [{"id": "joke", "description": "It has a joke."}],
}  # fmt: skip
TEXT = "A river walks into a bar."


def scores(request: ChatRequest) -> Any:
    """A judge that scores each dimension that it is asked for, with a quote if the text is there."""
    page = request.messages[0].text
    asked = [id for id in ("clear", "short", "complete", "readable", "tested") if f"{id} (from" in page]
    quote = "walks into a bar" if TEXT in page else "not there"
    answers = [{"id": id, "evidence": quote, "reason": "plain", "score": 1} for id in asked]
    wins = ["joke"] if "You review voices." in page else []
    return json.dumps({"scores": answers, "failure_modes": [], "wins": wins})


async def test_a_text_is_scored_on_a_rubric_of_ones_own_and_on_a_shipped_one() -> None:
    async with serving(scores) as served:
        scored = await served.ask("/v1/judge", {"content": TEXT, "rubric": STYLE, "context": {"reads": 7}})
        assert scored["composite"] == pytest.approx((3 * 0.25 + 1) / 4)
        assert (scored["dimensions"], scored["failureModes"]) == ({"clear": 1, "short": 1}, [])
        assert scored["wins"] == ["joke"]
        assert "walks into a bar" in scored["rationale"]
        (first, *_) = (await served.ask("/v1/rubrics"))["rubrics"]
        shipped = await served.ask("/v1/judge", {"content": TEXT, "rubricName": first["name"]})
        assert shipped["rubricVersion"] == first["rubricVersion"]
        lighter = {**STYLE, "dimensions": [{**STYLE["dimensions"][0], "weight": 1}, STYLE["dimensions"][1]]}
        again = await served.ask("/v1/judge", {"content": TEXT, "rubric": lighter})
        assert again["rubricVersion"] != scored["rubricVersion"]


async def test_what_cannot_be_scored_is_an_error_and_never_a_low_score() -> None:
    wrong: list[tuple[Any, int, str, str]] = [
        ({"content": TEXT}, 400, "validation_error", "exactly one"),
        ({"content": "", "rubric": STYLE}, 400, "validation_error", "content"),
        ({"content": TEXT, "rubric": STYLE, "model": "gpt-6"}, 400, "validation_error", "settings"),
        ({"content": TEXT, "rubric": {**STYLE, "dimensions": []}}, 400, "validation_error", "dimensions"),
        ({"content": TEXT, "rubric": {**STYLE, "name": " "}}, 400, "validation_error", "name"),
        ({"content": TEXT, "rubricName": "nope"}, 404, "rubric_not_found", "code_change"),
        ({"content": "Another text.", "rubric": STYLE}, 503, "judge_error", "quote"),
    ]
    async with serving(scores) as served:
        for body, status, code, said in wrong:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with served.web.post(f"{served.url}/v1/judge", json=body, headers=headers) as sent:
                error = (await sent.json())["error"]
            assert (sent.status, error["code"]) == (status, code)
            assert said in error["message"]


# -------------------------------------------------------------------------------------------------------- commands


def test_rpc_answers_each_line_and_names_what_is_wrong(home: Path) -> None:
    Path("a.txt").touch()
    judged = {"goal": "x", "acceptance_criteria": ["file: a.txt"], "workspace": "."}
    lines = [
        json.dumps({"id": 1, "method": "version"}),
        json.dumps({"id": "two", "method": "judge", "params": judged}),
        json.dumps({"id": 3, "method": "read", "params": {"handle": "x"}}),
        json.dumps({"id": 4, "method": "fly"}),
        json.dumps({"id": 5, "method": "stop", "params": {"handle": "x", "y": 1}}),
        json.dumps({"id": 6, "method": "call", "params": {"call": {"goal": ""}}}),
        "",
        "{",
        "[]",
    ]
    command = [*warm.delegate(), "rpc"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = {str(one["id"]): one for one in map(json.loads, done.stdout.splitlines()) if one["id"] is not None}
    assert answers["1"]["result"]["package"] == "delegate-task"
    assert answers["two"]["result"]["verdict"] == "PASS"
    assert answers["3"]["error"]["code"] == "unknown_handle"
    assert answers["4"]["error"]["code"] == "unknown_method"
    assert "no method 'fly'" in answers["4"]["error"]["message"]
    assert answers["5"]["error"]["field"] == "y"
    assert answers["6"]["error"]["code"] == "empty"
    assert [json.loads(line)["error"]["code"] for line in done.stdout.splitlines() if '"id": null' in line] == [
        "invalid_json", "wrong_type"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "use 127.0.0.1"),
        (("--token", "short"), "at least 16"),
        (("--tokens", "missing"), "can't be read"),
        (("--tokens", "open"), "chmod 600"),
        (("--tokens", "twice"), "line 2"),
        (("--token", "x" * 20, "--tokens", "twice"), "not both"),
    ],
)
def test_what_would_open_the_server_is_refused(home: Path, options: tuple[str, ...], said: str) -> None:
    Path("open").write_text(f"one={TOKEN}\n")
    Path("open").chmod(0o644)
    Path("twice").write_text(f"one={TOKEN}\none={TOKEN}\n")
    Path("twice").chmod(0o600)
    done = subprocess.run([*warm.delegate(), "serve", *options], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")


def test_the_command_serves_until_it_is_stopped(home: Path) -> None:
    command = [*warm.delegate(), "serve", "--port", "0"]
    env = {**os.environ, "DELEGATE_SERVE_TOKEN": TOKEN}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr
        port = int(process.stderr.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = f"GET /v1/version HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        process.terminate()
        process.wait(15)
