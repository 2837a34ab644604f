"""The scenarios, and what each run of a client gives."""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from delegate.cli.mcp_clients import CALL_SECONDS
from scripts.clients.driven import ROOT, Driven, Setup, cache, write_settings
from scripts.clients.facts import (
    Message,
    differences,
    handshake,
    in_flight,
    listed_schema,
    messages,
    of_client,
    reading,
    times_of_calls,
    traffic,
)
from scripts.clients.fakes import (
    ANSWER,
    CHILD,
    HANDLE,
    JUDGE,
    MESSAGE,
    QUESTION,
    READ,
    RUNNING,
    TOOL,
    Children,
    Parent,
    Plan,
    Turn,
    results,
    serving,
    verdicts_in,
)
from scripts.clients.wire import Listed, listed

Json = dict[str, Any]
PASSED = "yes"
_START_SECONDS = 120
"""How long a client may take for everything besides the call itself."""
_END_SECONDS = 15
"""How long the server and its processes may live after their client was killed."""
_EXIT_SECONDS = 2
"""How long the server may live after its client has ended by itself."""
_WAIT_SECONDS = 30
_MOST_READS = 60
_SERVER = b"-m\0delegate\0mcp"
"""What the server's command line contains."""
_CRITERIA = ["report: the answer is 42"]


@dataclass
class Run:
    """One run of a client, and what is known of it when it has ended."""

    client: Driven
    folder: Path
    parent: Parent
    children: Children
    seconds: float = 0
    exit_code: int | None = None
    """None if it had to be ended."""
    exit_seconds: float | None = None
    """How long the server lived on after the client's end. None if it had to be ended."""
    status: str = ""
    """What git says of the project before the client is started."""
    output: str = ""
    log: list[Message] = field(default_factory=list[Message])
    block: str = ""

    @property
    def read(self) -> list[str]:
        """The results of the tool that the model had read in the end."""
        return [one.text for one in results(self.parent.requests[-1])] if self.parent.requests else []

    @property
    def first_tools(self) -> dict[str, Listed]:
        return {tool.name: tool for tool in listed(self.parent.requests[0])} if self.parent.requests else {}

    def why_not(self) -> str:
        """Why no result was read, as far as it can be told."""
        if not self.parent.requests:
            return f"no request to the model; exit code {self.exit_code}: {self.output.strip()[-300:]}"
        if self.exit_code is None:
            return f"the client had not ended after {self.seconds:.0f} s"
        if not self.read:
            return f"the model never read a result; exit code {self.exit_code}: {self.output.strip()[-200:]}"
        return f"the model read: {self.read[-1][:300]}"


@dataclass(frozen=True)
class Scenario:
    """What is played, and how its run is judged."""

    name: str
    about: str
    plan: Plan
    judge: Callable[[Run], tuple[str, Json]]
    """`yes` or the reason why not, and what was seen."""
    children: Callable[[float], Children] = lambda long_seconds: Children()
    needs_seconds: Callable[[float], float] = lambda long_seconds: 0
    """How long the call itself may take."""
    call_seconds: int | None = CALL_SECONDS
    """The timeout of a call in the client's settings."""
    args: Sequence[str] = ("mcp",)
    """The server's arguments, where `PROGRAM` is the client's."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """More variables of the server."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of the project."""
    more_files: int = 0
    """How many files the repository has besides."""
    folder: str = "."
    """Where in the project the client is started."""
    at_once: int = 1
    """How many of the client are started, each with a home folder of its own, in the same project."""
    is_locked: bool = False
    """Whether another process, which is this one, keeps the store of records locked."""
    clients: Sequence[str] = ()
    """The clients that it is played in; empty for all."""
    only_if_named: bool = False
    then: Plan | None = None
    """The plan of a second start of the client, after the first has ended."""


def _once(*calls: Json) -> Plan:
    """The model calls the tool with each of these arguments at once, and waits for tasks that are still running."""

    def plan(read: Sequence[str], reader: Listed | None) -> Turn | None:
        return Turn(TOOL, calls) if not read else _waiting(read, reader, len(calls))

    return plan


def _waiting(read: Sequence[str], reader: Listed | None, first: int) -> Turn | None:
    """Read the reports of the tasks that the last results call running, until there are none."""
    last = read[-first:] if len(read) == first else read[-1:]
    handles = list(dict.fromkeys(handle for text in last if RUNNING.search(text) for handle in HANDLE.findall(text)))
    if not handles or len(read) > first + _MOST_READS:
        return None
    wait = reader is not None and (not reader.schema or "wait_seconds" in reader.schema.get("properties", {}))
    more: Json = {"wait_seconds": _WAIT_SECONDS} if wait else {}
    return Turn(READ, [{"handle": handle, **more} for handle in handles])


def _bad(read: Sequence[str], reader: Listed | None) -> Turn | None:
    if not read:
        return Turn(TOOL, [{"goal": ""}])
    return Turn(TOOL, [{"tasks": [{"goal": f"Task {n}."} for n in range(4)]}]) if len(read) == 1 else None


def _from_record(read: Sequence[str], reader: Listed | None) -> Turn | None:
    """Read what is on record, and then the newest report by its handle."""
    if not read:
        return Turn(READ, [{}])
    handles = HANDLE.findall(read[0])
    return Turn(READ, [{"handle": handles[0]}]) if handles and len(read) == 1 else None


def _answering(read: Sequence[str], reader: Listed | None) -> Turn | None:
    """Delegate, answer what the child asks if the client's user wasn't asked, and read the report."""
    if not read:
        return Turn(TOOL, [_task()])
    if "needs_input" in read[-1] and (handles := HANDLE.findall(read[-1])):
        return Turn(MESSAGE, [{"handle": handles[0], "text": ANSWER}])
    if "answered: the child goes on" in read[-1]:
        handles = HANDLE.findall("\n".join(read))
        return Turn(READ, [{"handle": handles[0]}]) if handles else None
    return _waiting(read, reader, 1)


def _question(run: Run) -> tuple[str, Json]:
    """Whether the child got the answer, and from whom."""
    whole = "\n".join(run.read)
    of_server = [one for one in run.log if one.sender == "server"]
    forms = [one for one in of_server if one.method == "elicitation/create" or "inputRequests" in str(one.body)]
    shown: Json = {"forms": len(forms), "answered_by": "user" if forms else "model", "excerpt": whole[:300]}
    if forms and "needs_input" in whole:
        shown["answered_by"] = "model, after the client had declined the form"
    passed = "It is blue" in whole and verdicts_in(whole) and run.exit_code == 0
    if run.client.one_server_per_call and "Nobody told me" in whole and verdicts_in(whole):
        shown["answered_by"] = "nobody"
        return "no: its children can't ask, since it has no forms and ends the server with each call", shown
    return (PASSED if passed else f"no: {run.why_not()}"), shown


def _first_request(run: Run) -> tuple[str, Json]:
    tools = run.first_tools
    mine = next((tool for tool in tools.values() if tool.name.endswith(TOOL)), None)
    shown: Json = {"tools_listed": len(tools), **handshake(run.log)}
    if run.parent.requests:
        shown["named_in_request"] = TOOL.encode() in run.parent.requests[0].raw
    if mine is None:
        found = next((t for c in run.parent.requests for t in listed(c) if t.name.endswith(TOOL)), None)
        search = [name for name in tools if name in {"tool_search", "ToolSearch", "exec"}]
        later = f"; the model gets it through `{search[0]}`" if search else ""
        if not run.parent.requests:
            return f"no: {run.why_not()}", shown
        mine, outcome = found, f"no: the tool is missing in the first request{later}"
    else:
        outcome = PASSED
    if mine is not None:
        shown["name"] = f"{mine.namespace}.{mine.name}".strip(".")
        shown["description_chars"] = len(mine.description)
        if schema := listed_schema(run.log, TOOL):
            shown["schema_changes"] = sorted(differences(schema, mine.schema))
    return outcome, shown


def _reads(verdicts: int) -> Callable[[Run], tuple[str, Json]]:
    def judge(run: Run) -> tuple[str, Json]:
        whole = "\n".join(run.read)
        stopped = "cancelled" in whole
        shown: Json = {
            "seconds": round(run.seconds, 1),
            **traffic(run.log),
            **(reading(run.read[0]) if run.read else {}),
        }
        shown["excerpt"] = whole[:300]
        shown["key_passed_on"] = run.children.keys == {"Bearer test-key"}
        if verdicts_in(whole) >= verdicts and run.exit_code == 0 and not stopped:
            return PASSED, shown
        return f"no: {run.why_not()}", shown

    return judge


def _refused(run: Run) -> tuple[str, Json]:
    shown: Json = {"read": [text[:300] for text in run.read], "children": run.children.started}
    if len(run.read) < 2:
        return f"no: {run.why_not()}", shown
    # Qwen Code says the second in its own words, from the schema.
    told = "empty" in run.read[0] and ("at most 3" in run.read[1] or "more than 3" in run.read[1])
    if told and not run.children.started:
        return PASSED, shown
    return f"no: the model read: {' / '.join(text[:150] for text in run.read)}", shown


def _four(run: Run) -> tuple[str, Json]:
    whole = "\n".join(run.read)
    reports = len(set(_ANSWER.findall(whole)))
    shown: Json = {"seconds": round(run.seconds, 1), "calls_at_once": in_flight(run.log), "reports": reports}
    shown["runs"] = len(set(_RUN.findall(whole)))
    shown |= traffic(run.log)
    return (PASSED if reports == 4 else f"no: {reports} of 4 reports; {run.why_not()}"), shown


def _timed(run: Run) -> tuple[str, Json]:
    (asked, answered), *_ = times_of_calls(run.log) or [(0.0, None)]
    gave_up = [one for one in of_client(run.log, "notifications/cancelled") if one.at >= asked]
    shown: Json = {**traffic(run.log), "read": run.read[0][:300] if run.read else ""}
    if run.read and verdicts_in(run.read[0]):
        shown["answered_after_seconds"] = round(answered - asked, 1) if answered else None
        return "waited for the answer", shown
    if run.read or gave_up:
        ended = gave_up[0].at if gave_up else None
        shown["gave_up_after_seconds"] = round(ended - asked, 1) if ended else None
        shown["told_the_server"] = bool(gave_up)
        return "gave up", shown
    return f"no: {run.why_not()}", shown


def _asked(run: Run) -> tuple[str, Json]:
    """What a call costs that takes long."""
    outcome, shown = _reads(1)(run)
    sizes = [len(call.raw) for call in run.parent.requests]
    return outcome, {**shown, "requests": len(sizes), "tokens": round(sum(sizes) / 4.2)}


def _says(*texts: str) -> Callable[[Run], tuple[str, Json]]:
    """Whether one of the results has all of these texts."""

    def judge(run: Run) -> tuple[str, Json]:
        read = [one.text for call in run.parent.requests for one in results(call)]
        passed = any(all(text in one.replace("\\", "") for text in texts) for one in read)
        return PASSED if passed else f"no: {run.why_not()}", {"excerpt": "\n".join(run.read)[:300]}

    return judge


def _restarted(run: Run) -> tuple[str, Json]:
    """Whether the second start, with a server of its own, read what the first had done, and ran nothing."""
    listed_first, *reports = run.read or [""]
    servers = {one.server for one in of_client(run.log, "tools/call")}
    shown: Json = {"servers": len(servers), "children": run.children.started, "excerpt": "\n".join(run.read)[:300]}
    found = bool(HANDLE.search(listed_first)) and any("The answer is 42" in one for one in reports)
    passed = found and len(servers) > 1 and run.children.started == 1 and run.exit_code == 0
    return (PASSED if passed else f"no: {run.why_not()}"), shown


def _one_run(run: Run) -> tuple[str, Json]:
    """Whether servers below children joined the run of the first, until the depth was refused."""
    outcome, shown = _says("can't delegate: the setting max_depth")(run)
    with contextlib.closing(sqlite3.connect(run.folder / "delegate" / "records.sqlite3")) as records:
        found = records.execute("SELECT COUNT(DISTINCT run_id), MAX(depth), COUNT(*) FROM tasks").fetchone()
    shown |= dict(zip(("runs", "deepest", "tasks"), found, strict=True))
    return (outcome if found == (1, 2, 3) else f"no: {shown}"), shown


def _taken_over(run: Run) -> tuple[str, Json]:
    """Whether children worked in worktrees, and the command in the result brings what they did."""
    outcome, shown = _says("to take the changes over")(run)
    command = re.search(r"over: (.* take-over [\da-f]+-\d+)", "\n".join(run.read))
    if outcome != PASSED or command is None:
        return outcome, shown
    env = {"PATH": f"{run.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(run.folder / "home")}
    env["DELEGATE_HOME"] = str(run.folder / "delegate")
    done = subprocess.run(
        ["sh", "-c", command[1]], cwd=run.folder / "project", env=env, capture_output=True, text=True, check=False
    )
    shown["taken_over"] = sorted(str(path.relative_to(run.folder)) for path in run.folder.glob("project/**/made.txt"))
    brought = shown["taken_over"] == ["project/made.txt"]
    return (PASSED if brought else f"no: `{command[1]}` brought {shown['taken_over']}: {done.stderr[-300:]}"), shown


def _monorepo(run: Run) -> tuple[str, Json]:
    """As `_taken_over`, and whether the server has ended soon and left the repository as it was."""
    kept = _git(run, "worktree", "list", "--porcelain").count("worktree ")
    changed = _git(run, "status", "--porcelain") != run.status
    left: Json = {"exit_seconds": run.exit_seconds, "worktrees": kept, "status_changed": changed}
    ends = {one.sender: one.at for one in run.log}
    if {"client closed", "end"} <= ends.keys():  # some clients wait for their server before they end
        left["end_after_close_seconds"] = round(ends["end"] - ends["client closed"], 1)
    outcome, shown = _taken_over(run)
    soon = run.exit_seconds is not None and run.exit_seconds <= _EXIT_SECONDS
    clean = soon and kept == 1 and not changed
    return (outcome if clean or outcome != PASSED else f"no: {left}"), {**shown, **left}


def _git(run: Run, *arguments: str) -> str:
    command = ["git", "-C", str(run.folder / "project"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _apart(run: Run) -> tuple[str, Json]:
    """Whether each client read the verdict of a run of its own."""
    read = {one.text for call in run.parent.requests for one in results(call) if verdicts_in(one.text)}
    shown: Json = {
        "seconds": round(run.seconds, 1),
        "runs": len({found for text in read for found in _RUN.findall(text)}),
    }
    shown["with_changes"] = sum("to take the changes over" in text for text in read)
    return (PASSED if shown["runs"] == 2 and run.exit_code == 0 else f"no: {run.why_not()}"), shown


def _unrecorded(run: Run) -> tuple[str, Json]:
    """Whether a verdict was read that says that it isn't on record, and how long the call took."""
    outcome, shown = _says("not on record")(run)
    asked, answered = (times_of_calls(run.log) or [(0.0, None)])[0]
    shown["answered_after_seconds"] = round(answered - asked, 1) if answered else None
    return outcome, shown


_RUN = re.compile(r"(?:\b|\\n)run ([0-9a-f]{12,})")
"""Calls of one run share its limits, such as how many children run at once."""
_ANSWER = re.compile(r"The answer to \d is 42")
_FOUR_SECONDS = 4.0


def _task(criteria: Sequence[str] = _CRITERIA, goal: str = "Say what the answer is.") -> Json:
    return {"goal": goal, "acceptance_criteria": list(criteria)}


_BATCH = [_task(), _task(["report: the answer is 43"], "Say what the other answer is."), _task()]

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("first request", "The first request to the model lists the tool.", _once(_task()), _first_request),
    Scenario("single", "The model reads the result of one task, with its verdict.", _once(_task()), _reads(1)),
    Scenario(
        "batch",
        "The model reads three verdicts of one call, one of which is FAIL.",
        _once({"tasks": _BATCH}),
        _reads(3),
    ),
    Scenario(
        "bad call",
        "The model reads what is wrong with an empty goal, and with four tasks; nothing is run.",
        _bad,
        _refused,
    ),
    Scenario(
        "long call",
        "The model reads the verdict of a child that works for long, at once or by its handle.",
        _once(_task()),
        _reads(1),
        lambda long_seconds: Children(seconds=long_seconds),
        lambda long_seconds: long_seconds,
    ),
    Scenario(
        "four calls at once",
        "The model reads all results of four calls in one turn.",
        _once(*({"goal": f"Say what answer number {n} is."} for n in range(4))),
        _four,
        lambda long_seconds: Children(seconds=_FOUR_SECONDS),
        lambda long_seconds: 60,
    ),
    Scenario(
        "200 s",
        "The model reads the verdict of a child that works for 200 s.",
        _once(_task()),
        _asked,
        lambda long_seconds: Children(seconds=200),
        lambda long_seconds: 200,
    ),
    Scenario(
        "question",
        "A child asks. The client's user answers a form, or else its model reads `needs_input` and sends a message: it "
        "reads the verdict of a child that was told.",
        _answering,
        _question,
        lambda long_seconds: Children(question=QUESTION),
    ),
    Scenario(
        "untrusted config",
        "Where `delegate.toml` isn't trusted, the tool is there, and a call is answered with the command that helps.",
        _once(_task()),
        _says("delegate isn't set up", "delegate trust "),
        files={"delegate.toml": "max_children = 99\n"},
    ),
    Scenario(
        "bad option",
        "Where a setting is invalid, the tool is there, and a call is answered with its name and what it takes.",
        _once(_task()),
        _says("delegate isn't set up", "DELEGATE_MAX_DEPTH"),
        env={"DELEGATE_MAX_DEPTH": "many"},
    ),
    Scenario(
        "restart",
        "Started anew after it has ended, the client reads what is on record, without a handle and by it.",
        _once(_task()),
        _restarted,
        then=_from_record,
    ),
    Scenario(
        "subfolder",
        "Started in a subfolder of a repository, children work in a worktree of it. The command in the result brings "
        "what they changed.",
        _once(_task()),
        _taken_over,
        lambda long_seconds: Children(command="cp packages/one/readme.md made.txt"),
        files={"packages/one/readme.md": "One.\n"},
        folder="packages/one",
    ),
    Scenario(
        "big monorepo",
        "As subfolder, with 30,000 files more. The server ends within 2 s of its client; `git worktree list` and "
        "`git status` say what they said before.",
        _once(_task()),
        _monorepo,
        lambda long_seconds: Children(command="cp packages/one/readme.md made.txt"),
        lambda long_seconds: 60,
        files={"packages/one/readme.md": "One.\n"},
        more_files=30_000,
        folder="packages/one",
    ),
    Scenario(
        "two clients",
        "Two of the client at once in one project: each reads the verdict of a run of its own.",
        _once(_task()),
        _apart,
        lambda long_seconds: Children(seconds=_FOUR_SECONDS, command="echo done > made.txt"),
        lambda long_seconds: 60,
        at_once=2,
    ),
    Scenario(
        "locked store",
        "While another process keeps the records locked, the model reads the verdict, and that it isn't on record.",
        _once(_task()),
        _unrecorded,
        needs_seconds=lambda long_seconds: 60,
        is_locked=True,
    ),
    Scenario(
        "nested server",
        "The client is its own runner: two levels below, its server joins the run, and the third is refused.",
        _once(_task()),
        _one_run,
        needs_seconds=lambda long_seconds: 120,
        args=(
            *("mcp", "--runner", "PROGRAM -p --allowedTools mcp__delegate"),
            *("--runner-env", "ANTHROPIC_BASE_URL", "--runner-env", "ANTHROPIC_API_KEY"),
        ),
        env={"DELEGATE_MAX_DEPTH": "3"},
        clients=("claude", "claude-functions"),
    ),
    Scenario(
        "short timeout",
        "What a client does whose settings have a timeout of 10 s, with a call of 30 s that reports progress.",
        _once(_task()),
        _timed,
        lambda long_seconds: Children(seconds=30),
        lambda long_seconds: 60,
        call_seconds=10,
        args=("mcp", "--answer-within", "100000"),
    ),
    Scenario(
        "default timeout",
        "What a client does whose settings have no timeout, with a long call that reports progress.",
        _once(_task()),
        _timed,
        lambda long_seconds: Children(seconds=long_seconds),
        lambda long_seconds: long_seconds,
        call_seconds=None,
        args=("mcp", "--answer-within", "100000"),
        only_if_named=True,
    ),
)
"""All scenarios but `kill`, which ends the client before it has read anything."""


def play(client: Driven, program: str, scenario: Scenario, long_seconds: float) -> Run:
    """Play one scenario in a client."""
    run = _new_run(client, scenario.name, scenario.plan, scenario.children(long_seconds))
    _play_once(run, program, scenario, long_seconds)
    if scenario.then:
        run.parent.plan = scenario.then
        _play_once(run, program, scenario, long_seconds)
    _finish(run)
    return run


def _play_once(run: Run, program: str, scenario: Scenario, long_seconds: float) -> None:
    run.exit_code = None
    with _started(run, program, scenario, tapped=True, child_seconds=long_seconds) as processes:
        started = time.monotonic()
        end = started + _START_SECONDS + scenario.needs_seconds(long_seconds) * 1.5
        with contextlib.suppress(subprocess.TimeoutExpired):
            codes = [process.wait(max(0, end - time.monotonic())) for process in processes]
            run.exit_code = max(codes, key=abs)
        ended = time.monotonic()
        run.seconds = ended - started
        if run.exit_code is not None:
            run.exit_seconds = _until_gone(_servers(run), ended)


def kill(client: Driven, program: str) -> dict[str, tuple[str, Json]]:
    """Kill a client in the middle of a call. All that the server has started must end, and the record say so."""
    mark = str(time.time_ns() % 1_000_000_000)
    children = Children(command=f"sleep {mark}")
    run = _new_run(client, "kill", _once(_task()), children)
    with _started(run, program, tapped=False, child_seconds=300) as (process,):
        deadline = time.monotonic() + _START_SECONDS
        while not (begun := _with_word(mark.encode())) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        server = _servers(run)
        if not begun:
            run.exit_code = process.poll()
            _finish(run)
            return {"kill": (f"no: the child's command never ran; {run.why_not()}", {})}
        for pid in _descendants_named(process.pid, client):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        took = _until_gone(server | begun, killed)
        shown: Json = {"processes": len(server | begun), "ended_after_seconds": took}
        ended = PASSED if took is not None else f"no: processes lived on for {_END_SECONDS} s"
        return {"kill": (ended, shown), "record of a killed client": _recorded(run.folder, killed)}


def _recorded(folder: Path, killed: float) -> tuple[str, Json]:
    """Whether the record says that the only task has ended without a verdict, and how long that took."""
    with contextlib.closing(sqlite3.connect(folder / "delegate" / "records.sqlite3")) as records:
        while True:
            tasks = records.execute("SELECT status, verdict, ended_at IS NOT NULL FROM tasks").fetchall()
            took = time.monotonic() - killed
            if all(ended for *_, ended in tasks) or took > _END_SECONDS:
                break
            time.sleep(0.05)
    shown: Json = {"tasks": tasks, "after_seconds": round(took, 1)}
    passed = len(tasks) == 1 and tasks[0][0] in {"cancelled", "stopped"} and tasks[0][2]
    return (PASSED if passed else f"no: on record is {tasks}"), shown


def _servers(run: Run) -> set[int]:
    return _with_word(_SERVER) & _with_environment(f"DELEGATE_HOME={run.folder / 'delegate'}")


def _until_gone(pids: set[int], since: float) -> float | None:
    """How long after `since` these processes had all ended. None if they had to be killed."""
    while (left := _alive(pids)) and time.monotonic() < since + _END_SECONDS:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None if left else round(time.monotonic() - since, 1)


def _new_run(client: Driven, name: str, plan: Plan, children: Children) -> Run:
    folder = cache() / "runs" / client.name / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("home", "project", "bin"):
        (folder / part).mkdir(parents=True)
    return Run(client, folder, Parent(plan, client.how), children)


@contextlib.contextmanager
def _started(run: Run, program: str, scenario: Scenario | None = None, *, tapped: bool, child_seconds: float) -> Any:
    """The client's processes, with its models. Whatever they leave behind is ended."""
    client, folder = run.client, run.folder
    _write_shim(folder, tapped=tapped)
    mark = uuid.uuid4().hex
    with serving(run.children) as children, serving(run.parent) as parent:
        server_env = {
            "OPENAI_BASE_URL": children.openai_url,
            "DELEGATE_HOME": str(folder / "delegate"),
            "DELEGATE_MODEL": CHILD,
            "DELEGATE_JUDGE_MODEL": JUDGE,
            "DELEGATE_COMMANDS": "allow",
            "DELEGATE_TIMEOUT_SECONDS": str(max(600, round(child_seconds * 2))),
        }
        setup = Setup(folder / "home", folder / "project", parent.url, program, server_env)
        if scenario:
            args = [argument.replace("PROGRAM", program) for argument in scenario.args]
            env = {**server_env, **scenario.env}
            setup = replace(setup, call_seconds=scenario.call_seconds, args=args, server_env=env)
        _make_project(setup.project, scenario)
        run.block = write_settings(client, setup)
        run.status = _git(run, "status", "--porcelain")
        env = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "CI": "1",
            "NO_COLOR": "1",
            "CLIENTS_RUN": mark,
            "OPENAI_API_KEY": "test-key",
        }
        setups = [setup, *(_with_own_home(setup, n) for n in range(1, scenario.at_once if scenario else 1))]
        with (folder / "output.txt").open("ab") as output, _locked(folder, scenario):
            processes = [
                subprocess.Popen(
                    client.argv(one),
                    cwd=one.project / (scenario.folder if scenario else "."),
                    env={**env, "HOME": str(one.home), **client.env(one)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                for one in setups
            ]
            try:
                yield processes
            finally:
                for pid in {*(process.pid for process in processes), *_with_environment(f"CLIENTS_RUN={mark}")}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                for process in processes:
                    process.wait()


def _with_own_home(setup: Setup, number: int) -> Setup:
    """The same settings in another home folder: some clients can't be started twice in a new one."""
    home = setup.home.with_name(f"home-{number}")
    shutil.copytree(setup.home, home, symlinks=True)
    return replace(setup, home=home)


@contextlib.contextmanager
def _locked(folder: Path, scenario: Scenario | None) -> Any:
    if scenario is None or not scenario.is_locked:
        yield
        return
    (folder / "delegate").mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(folder / "delegate" / "records.sqlite3")) as store:
        store.execute("BEGIN EXCLUSIVE")
        yield


def _make_project(project: Path, scenario: Scenario | None) -> None:
    """A repository with one commit, unless it is there."""
    if (project / ".git").exists():
        return
    for name, text in {"readme.md": "A project.\n", **(scenario.files if scenario else {})}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    for n in range(scenario.more_files if scenario else 0):
        (project / "packages" / f"more-{n // 100}").mkdir(exist_ok=True)
        (project / "packages" / f"more-{n // 100}" / f"{n}.txt").write_text(f"{n}\n", encoding="utf-8")
    git = ["git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Begin"]):
        subprocess.run([*git, *command], check=True)


def _write_shim(folder: Path, *, tapped: bool) -> None:
    """The command `delegate` in the client's PATH: this clone's, with the tap before it."""
    tap = f"{sys.executable} {Path(__file__).parent / 'tap.py'} {folder / 'mcp.jsonl'} " if tapped else ""
    shim = folder / "bin" / "delegate"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {tap}{sys.executable} -m delegate "$@"\n', encoding="utf-8")
    shim.chmod(0o755)


def _finish(run: Run) -> None:
    run.output = (run.folder / "output.txt").read_text(encoding="utf-8", errors="replace")
    run.log = messages(run.folder / "mcp.jsonl")
    for n, call in enumerate(run.parent.requests):
        (run.folder / f"request-{n}.json").write_bytes(call.raw)


def _processes() -> Mapping[int, Path]:
    return {int(path.name): path for path in Path("/proc").iterdir() if path.name.isdigit()}


def _with_environment(text: str) -> set[int]:
    """The processes that have this text in their environment."""
    return {pid for pid, path in _processes().items() if text.encode() in _bytes(path / "environ")}


def _with_word(words: bytes) -> set[int]:
    """The processes that have these words in their command line, which separates them by zeros."""
    return {pid for pid, path in _processes().items() if words in _bytes(path / "cmdline")}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _alive(pids: set[int]) -> set[int]:
    """Those that are neither gone nor zombies."""
    return {
        pid
        for pid in pids
        if (stat := _bytes(Path(f"/proc/{pid}/stat"))) and stat.rpartition(b")")[2].split()[0] != b"Z"
    }


def _descendants_named(pid: int, client: Driven) -> list[int]:
    """The client's own processes: all below its first one that aren't the server or of its making."""
    children: dict[int, list[int]] = {}
    for one, path in _processes().items():
        stat = _bytes(path / "stat").rpartition(b")")[2].split()
        if len(stat) > 1:
            children.setdefault(int(stat[1]), []).append(one)
    found: list[int] = []
    left = [pid]
    while left:
        one = left.pop()
        if _SERVER in _bytes(Path(f"/proc/{one}/cmdline")):
            continue
        found.append(one)
        left += children.get(one, [])
    return found
