"""`delegate message`: an instruction reaches a child that works in another process."""

import json
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cli.command import delegate, openai_at
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply


def test_a_message_reaches_the_child_of_another_process(tmp_path: Path) -> None:
    home = {"DELEGATE_HOME": str(tmp_path / "home")}
    shown, json_shown = list[str](), list[str]()

    def worker(call: Call) -> Reply:
        if not call.tool_results:
            sent = delegate("message", "last", "Name the color.", **home)
            shown.append(sent.stdout + sent.stderr)
            json_shown.append(delegate("message", "last", "Name the shape.", "--json", **home).stdout)
            return Reply(tool_calls=(("list_files", {}),))
        return Reply("It is blue." if "Name the color." in json.dumps(call.body) else "It is done.")

    with ModelServer(worker) as server:
        done = delegate("run", "Describe it.", "--format", "json", **openai_at(server), **home)
    (result,) = json.loads(done.stdout)["results"]
    said = f"queued: the child reads it before its next turn; `delegate show {result['handle']}` says whether it did\n"
    assert shown == [said]
    assert result["report"] == "It is blue."
    (sent,) = map(json.loads, json_shown)
    assert (sent["handle"], sent["state"], sent["text"]) == (result["handle"], "queued", "Name the shape.")
    read = delegate("show", "last", "--transcript", **home).stdout
    assert "message delivered: Name the color." in read
    assert "its parent says" in read


def test_of_two_processes_at_once_one_answers_a_question(tmp_path: Path) -> None:
    home, both_sent = {"DELEGATE_HOME": str(tmp_path / "home")}, threading.Event()

    def worker(call: Call) -> Reply:
        said = str(call.body)
        if not call.tool_results:
            return Reply(tool_calls=(("ask_parent", {"question": "Which color?", "options": ["red", "blue"]}),))
        assert both_sent.wait(100)
        return Reply(f"{'Option 1: red' in said or 'Option 2: blue' in said}")

    with ModelServer(worker) as server:
        command = [*warm.delegate(), "rpc"]
        environment = {**os.environ, **openai_at(server), **home}
        with subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin
            assert process.stdout
            call = {
                "id": 1,
                "method": "call",
                "params": {"call": {"goal": "Paint it."}, "asks": True, "wait_seconds": 60},
            }
            print(json.dumps(call), file=process.stdin, flush=True)
            asked = json.loads(process.stdout.readline())["result"]
            (handle,) = asked["handles"]
            with ThreadPoolExecutor() as pool:
                answers = [pool.submit(delegate, "message", handle, str(n), "--json", **home) for n in (1, 2)]
            sent = [json.loads(answer.result().stdout) for answer in answers]
            both_sent.set()
            read = {"id": 2, "method": "read", "params": {"handle": handle, "wait_seconds": 60}}
            done: dict[str, Any] = {"state": "needs_input"}
            while done["state"] != "done":
                print(json.dumps(read), file=process.stdin, flush=True)
                done = json.loads(process.stdout.readline())["result"]
            process.stdin.close()
    assert (asked["state"], asked["questions"][0]["text"]) == ("needs_input", "Which color?")
    assert done["result"]["report"] == "True"
    assert sorted(one["is_answer"] for one in sent) == [False, True]


def test_a_task_that_has_ended_continues_and_its_report_is_printed(tmp_path: Path) -> None:
    home = {"DELEGATE_HOME": str(tmp_path / "home"), "COLUMNS": "100"}

    def worker(call: Call) -> Reply:
        more = "Also b.md." in json.dumps(call.body)
        if not call.tool_results:
            return Reply(tool_calls=(("write_file", {"path": "b.md" if more else "a.md", "content": "x"}),))
        return Reply("I wrote b.md too." if more else "I wrote a.md.")

    with ModelServer(worker) as server:
        environment = {**openai_at(server), **home}
        delegate("run", "Write a.md.", "-c", "file: a.md", **environment)
        done = delegate("message", "last", "Also b.md.", "--json", **environment)
        again = delegate("message", "last", "Also c.md.", **environment)
        handle = json.loads(done.stdout)["results"][0]["handle"]
        failed = delegate("message", handle, "Say it again.", "-c", "file: c.md", **environment)
        shown = delegate("show", "last", **home)
    (result,) = json.loads(done.stdout)["results"]
    assert done.returncode == 0
    assert (result["report"], result["verdict"]["verdict"]) == ("I wrote b.md too.", "PASS")
    assert [artifact["path"] for artifact in result["artifacts"]] == ["a.md", "b.md"]
    assert again.returncode == 2, "a run of two tasks is no task"
    assert failed.returncode == 1
    assert "FAIL" in failed.stdout
    assert "c.md" in failed.stdout
    assert f"{result['handle'][20:]} completed" in " ".join(shown.stdout.split())
