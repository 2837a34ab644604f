"""Records sessions of coding agents, headless: `python -m scripts.clients.sessions [CLIENT …]`.

Each does the work in `work.py`, by a scripted model that lies half of the time, with the plugin installed if there is
one. What is kept in `tests/data/sessions/CLIENT.jsonl` is the agent's own transcript, the files that it left, and what
the hook said, without the folders of this machine.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from scripts.clients.driven import ROOT, Setup, cache, installed
from scripts.clients.plugins import AGENTS, HOSTS, SHELLS, Host, asking, client_of, recording_command, run
from scripts.clients.wire import answered, calling, listed
from scripts.clients.work import ALL as WORK
from scripts.clients.work import PAGE, PLACE, Work
from tests.support.model_server import Call, Fault, ModelServer, Reply
from tests.support.words import verdicts

Json = dict[str, Any]
DATA = ROOT / "tests" / "data" / "sessions" / "work"
_PLACES = {"home": "/home/user", "project": "/home/user/project"}
_DROPPED = frozenset(
    (
        "base_instructions", "instructions", "dynamic_tools", "encrypted_content", "signature", "snapshot", "tools",
        "tool_definitions", "system_prompt", "usage", "reasoning_content", "rate_limits", "thoughts", "toolUseResult",
        "resultDisplay", "metadata", "internal_chat_message_metadata_passthrough", "model_config", "timestamp",
        "tokens",
        "permission_profile", "sandbox_policy", "collaboration_mode", "context_window", "ordinal", "time", "userType",
        "entrypoint", "requestId", "diagnostics", "caller", "permissionMode", "promptId", "attributionAgent", "version",
        "billing_base_url", "summary", "permission", "cost", "truncation_policy", "multi_agent_version", "token_count",
        "description",
    )
)  # fmt: skip
"""Keys of records that no reader of transcripts looks at."""


_URL = re.compile(r"http://\S+")


class Model:
    """The model of the client, which does one piece of work, and judges by the child's word alone."""

    def __init__(self, host: Host, work: Work) -> None:
        self.host, self.work = host, work

    def __call__(self, call: Call) -> Any:
        tools = {tool.name: tool for tool in listed(call)}
        if call.wants_json and "exactly once" in call.raw.decode():
            return Reply(verdicts(c3=("met", "Source: " + _URL.findall(self.work.goal)[0])))
        if not tools or call.wants_json:
            return Reply('{"title": "Work", "complexity_score": 1}')
        done = answered(call)
        if self.host.by_subagent and self.work.goal[:20] not in json.dumps(call.body, ensure_ascii=False):
            return asking(tools, self.work.brief)
        if self.host.by_subagent and {one.tool for one in done} & AGENTS.keys():
            return Reply("The agent has ended.")
        shell = next(tools[name] for name in SHELLS if name in tools)
        ran = sum(one.tool == shell.name for one in done)
        if ran < len(self.work.commands):
            return calling(call, shell, [SHELLS[shell.name](self.work.commands[ran])], "function")
        return Reply(f"As I said: {self.work.report}" if self.host.told in call.raw.decode() else self.work.report)


def serving(model: Model) -> ModelServer:
    """A server of this model, on the port of the page that some work looks up."""
    models = ("test-model", "gpt-5.5", "gemini-2.5-pro")
    page = Fault(200, PAGE, {"content-type": "text/html"}, kind="html")
    nothing = Fault(404, {"error": {"message": "not here"}})
    return ModelServer(model, models=models, others=lambda call: page if call.path == "/page" else nothing)


def record(name: str) -> Iterator[Json]:
    """Let a client do all the work."""
    host, client = HOSTS[name], client_of(name)
    program, version = installed(client)
    program = host.program(program)
    folder = cache() / "sessions" / name
    shutil.rmtree(folder, ignore_errors=True)
    home = folder / "home"
    home.mkdir(parents=True)
    shim = recording_command(folder)
    for number, work in enumerate(WORK):
        project = folder / "work" / work.name / "project"
        _write(project, work.before)
        subprocess.run(["git", "init", "--quiet", str(project)], check=True)
        model = Model(host, work)
        with serving(model) as server:
            here = server.url.removeprefix("http://")
            model.work = work.at(here)
            setup = Setup(home, project, server.url, program, {})
            env = {
                "PATH": f"{shim.parent}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb", "CI": "1",
                "OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "test", **client.env(setup),
            }  # fmt: skip
            if host.settings:
                more = client.more_settings(setup)
                if number == 0 or not isinstance(more, str):
                    _write(home, {host.settings: more if isinstance(more, str) else json.dumps(more)})
                else:  # the plugin is in it
                    file = home / host.settings
                    file.write_text(re.sub(r"http://127.0.0.1:\d+", server.url, file.read_text()))
            for path, file in host.files.items():
                _write(home, {path: file.read_text()})
            for command in host.install if number == 0 else ():
                run([program, *command], project, env).check_returncode()
            for file in ("told.jsonl", "answers.jsonl"):
                (folder / file).unlink(missing_ok=True)
            ended = run(host.argv(setup, model.work.brief), project, env, answer="")
            said = _lines(folder / "answers.jsonl")
            transcript = host.transcript(setup, env, _lines(folder / "told.jsonl"))
        tidy = _Tidy({str(project): _PLACES["project"], str(home): _PLACES["home"], here: PLACE})
        yield {
            "client": f"{name} {version}",
            "work": work.name,
            "lies": work.lies,
            "criteria": list(work.criteria),
            "files": {path: tidy.text(text) for path, text in _files(project).items()},
            "blocked": any(one.get("decision") in ("block", "deny") for one in said),
            "passed": any("PASS" in str(one.get("systemMessage")) for one in said),
            "transcript": tidy.transcript(transcript),
        }
        if ended.returncode:
            print(f"{name} {work.name}: exit code {ended.returncode}\n{ended.stdout[-500:]}{ended.stderr[-500:]}")


class _Tidy:
    """Takes what is of this machine, and what is of no use, out of a transcript."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def text(self, text: str) -> str:
        for here, there in self._places.items():
            text = text.replace(here, there).replace(here.replace("/", "-"), there.replace("/", "-"))
        return re.sub(r"/[\w./-]+/bin/python3?\b", "/usr/bin/python3", text)

    def transcript(self, text: str) -> str:
        try:
            return json.dumps(self._kept(json.loads(self.text(text))), ensure_ascii=False)
        except ValueError:
            pass
        records = [self._kept(json.loads(line)) for line in self.text(text).splitlines() if line.strip()]
        return "\n".join(json.dumps(one, ensure_ascii=False) for one in records if _is_kept(one))

    def _kept(self, value: Any) -> Any:
        if isinstance(value, dict):
            fields = cast("Json", value)
            return {key: self._kept(one) for key, one in fields.items() if key not in _DROPPED and one is not None}
        if isinstance(value, list):
            return [self._kept(one) for one in cast("list[Any]", value)]
        return value if not isinstance(value, str) or len(value) < 2_000 else value[:200] + " …"


def _is_kept(record: Json) -> bool:
    payload: Json = record.get("payload") or {}
    return payload.get("role") != "developer" and "$set" not in record and record.get("type") not in {
        "attachment", "event_msg", "file-history-snapshot", "queue-operation", "world_state", "token_usage_record"
    }  # fmt: skip


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)


def _files(folder: Path) -> dict[str, str]:
    """The texts that the agent left."""
    inside = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in {".tar", ".pyc"})
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in inside
        if not path.relative_to(folder).parts[0].startswith(".")
    }


def _lines(file: Path) -> list[Json]:
    """The objects in a file, which may be on one line."""
    text, found = file.read_text().strip() if file.exists() else "", list[Json]()
    while text:
        one, end = json.JSONDecoder().raw_decode(text)
        found.append(one)
        text = text[end:].lstrip()
    return found


def main() -> None:
    """Record the sessions of the clients that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", default=list(HOSTS), metavar="CLIENT")
    for name in parser.parse_args().clients:
        recorded: Sequence[Json] = list(record(name))
        file = DATA / f"{name.partition('-gpt')[0]}.jsonl"
        file.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in recorded), encoding="utf-8")
        lies, honest = ([one for one in recorded if one["lies"] is lies] for lies in (True, False))
        print(
            f"{name}: {sum(one['blocked'] for one in lies)} of {len(lies)} lies blocked, "
            f"{sum(one['passed'] and not one['blocked'] for one in honest)} of {len(honest)} honest ones passed",
            flush=True,
        )


if __name__ == "__main__":
    main()
