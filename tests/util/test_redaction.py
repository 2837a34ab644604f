"""No secret is recorded: keys of known formats and this process's own keys are redacted in all output."""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import ChildRun, Delegator, Event, Job, Receipt, Task, Tool
from delegate._util.redaction import MARK, Redactor
from delegate._util.redaction import redactor as of_process
from delegate.contract import render
from delegate.models.providers import KeyCommand
from delegate.models.providers.scripted import Scripted
from delegate.types import Usage
from delegate.types.events import ChildToolStarted
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.words import asked_ids, is_judge, verdicts

R = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3kL5mN7pQ9rS1tU3vW5"
"""Random letters and digits, enough for any key."""
PEM = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{}\n-----END RSA PRIVATE KEY-----"
KEYS = {
    "openai": f"sk-{R[:48]}",
    "openai project": f"sk-proj-{R[:40]}_{R[:20]}-x",
    "anthropic": f"sk-ant-api03-{R}",
    "openrouter": "sk-or-v1-" + "0a1b2c3d" * 8,
    "deepseek": "sk-" + "0a1b2c3d" * 4,
    "google": f"AIza{R[:35]}",
    "google, new": f"AQ.{R[:50]}",
    "google oauth": f"ya29.{R[:60]}",
    "xai": f"xai-{R}",
    "groq": f"gsk_{R[:52]}",
    "hugging face": f"hf_{R[:34]}",
    "github": f"ghp_{R[:36]}",
    "github app": f"ghs_{R[:36]}",
    "github, fine-grained": f"github_pat_{R[:22]}_{R[:59]}",
    "gitlab": f"glpat-{R[:20]}",
    "npm": f"npm_{R[:36]}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{R}",
    "slack": f"xoxb-123456789012-{R[:24]}",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws session": "ASIAIOSFODNN7EXAMPLE",
    "stripe": f"sk_live_{R[:24]}",
    "sendgrid": f"SG.{R[:22]}.{R[:43]}",
    "json web token": f"eyJ{R[:30]}.eyJ{R[:40]}.{R[:43]}",
    "private key": PEM.format("\n".join([R[:64]] * 12)),
}
OWN = {"OPENAI_API_KEY": "dummy-of-mine-1234", "TEAM_PASSWORD_2": 'p"ss w\\rd ✓ 77', "GATE": "vllm:over.there"}
"""Values of no known format, secret because of their variables' names. The last name is declared in the settings."""


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(OWN, secret_variables=["GATE"])


# -------------------------------------------------------------------------------------------------------- what is found


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_a_key_of_a_known_format_is_redacted_and_its_surroundings_stay(redactor: Redactor, key: str) -> None:
    for around in ("{}", "KEY={}", "key: '{}',", "a\n{}\nb", "https://x.y/?k={}&z=1", "(see {}.)"):
        assert redactor.text(around.format(key)) == around.format(MARK)
        in_json = json.dumps({"text": around.format(key)})
        assert json.loads(redactor.json(in_json)) == {"text": around.format(MARK)}


@pytest.mark.parametrize("key", OWN.values())
def test_this_processs_own_keys_are_redacted_by_value(redactor: Redactor, key: str) -> None:
    assert redactor.text(f"it is {key}!") == f"it is {MARK}!"
    for in_json in (json.dumps({"it": [f"is {key}"]}), json.dumps({"it": [f"is {key}"]}, ensure_ascii=False)):
        assert json.loads(redactor.json(in_json)) == {"it": [f"is {MARK}"]}


SHORTEST = [
    "sk-1" + "a" * 19, "AIza" + "a" * 35, "AQ." + "a" * 40, "ya29." + "a" * 20, "xai-" + "a" * 40, "gsk_" + "a" * 40,
    "hf_" + "a" * 30, *(f"gh{kind}_" + "a" * 36 for kind in "opsur"), "github_pat_" + "a" * 40, "glpat-" + "a" * 20,
    "npm_" + "a" * 36, "pypi-" + "a" * 50, *(f"xox{kind}-" + "a" * 10 for kind in "abeprs"), "AKIA" + "A" * 16,
    "ASIA" + "A" * 16, "sk_live_" + "a" * 20, "rk_live_" + "a" * 20, "SG." + "a" * 16 + "." + "a" * 16,
    "eyJ" + "a" * 10 + ".eyJ" + "a" * 10 + "." + "a" * 10, "-----BEGIN PRIVATE KEY-----",
]  # fmt: skip


@pytest.mark.parametrize("key", SHORTEST, ids=lambda key: key[:12])
def test_the_shortest_key_of_each_format_is_redacted_in_any_text(redactor: Redactor, key: str) -> None:
    assert redactor.text(key) == MARK
    around = "a_b-J G.9 B_b A-" * 1_000 + "\n"
    assert redactor.text(f"{around}{key}\n{around}") == f"{around}{MARK}\n{around}"


@pytest.mark.parametrize("before", "\n\t\f\x01\x1b")
def test_a_key_after_a_json_escape_is_redacted(redactor: Redactor, before: str) -> None:
    in_json = json.dumps({"text": f"{before}{KEYS['openai']}"}, ensure_ascii=False)
    assert json.loads(redactor.json(in_json)) == {"text": f"{before}{MARK}"}


def test_a_bearer_token_of_any_format_is_redacted(redactor: Redactor) -> None:
    assert redactor.text("Authorization: Bearer abcdefghij/klmnopqrstuvwxyz==") == f"Authorization: Bearer {MARK}"


def test_a_private_key_is_redacted_even_if_its_end_is_cut_off(redactor: Redactor) -> None:
    cut = PEM.format("\n".join([R[:64]] * 12))[:-200].replace("Proc-Type: 4,ENCRYPTED\n\n", "")
    assert redactor.text(f"{cut}\nand so on") == f"{MARK}\nand so on"


@pytest.mark.parametrize(
    "text",
    [
        "task-queue-worker-implementation-of-the-scheduler in risk-assessment-framework-2026-final-version.md",
        "sk-learn-style-names-without-digits stay, and sk-short1 too",
        "a commit 3f2504e04f8911d39a0c0305e82c3301, a uuid 3f2504e0-4f89-11d3-9a0c-0305e82c3301, 1f2e3d4c5b6a-0",
        "MANDAKIA0000 is no key, nor is ghp_short, nor the word bearer of a long sentence",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "```json\n" + json.dumps({"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}),
    ],
)
def test_text_that_only_resembles_a_key_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


def test_values_that_are_not_secrets_stay() -> None:
    environ = {
        "API_KEY": "short",
        "PASSWORD": "password",
        "SSH_KEY": "/home/me/.ssh/id_ed25519",
        "MODEL": "gpt-6-luna-1",
    }
    text = "short password /home/me/.ssh/id_ed25519 gpt-6-luna-1"
    assert Redactor(environ).text(text) == text


def test_a_secret_of_digits_keeps_numbers_and_json_intact() -> None:
    redactor = Redactor({"PIN_TOKEN": "12345678"})
    redacted = redactor.json('{"bytes": 12345678, "said": "12345678"}')
    assert json.loads(redacted) == {"bytes": 12345678, "said": MARK}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["sk-" * 30_000, "eyJ" * 30_000, "eyJaaaaaaaaaa." * 8_000, "-----BEGIN PRIVATE KEY-----" * 4_000,
     "-----BEGIN PRIVATE KEY-----" + "\n" * 90_000, "\\nsk-" * 20_000, "sk-" + "a" * 90_000, "Bearer " * 15_000,
     "SG." * 30_000, "SG.aaaaaaaaaaaaaaaaaaaa" * 4_000, "ghp_" * 25_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_no_text_makes_the_search_slow(redactor: Redactor, text: str) -> None:
    began = time.process_time()
    redactor.text(text * 3)
    assert time.process_time() - began < 2  # 0.05 s; a search that restarts at each character takes 20 s


def test_the_beginning_of_a_text_is_redacted_before_it_is_cut(redactor: Redactor) -> None:
    text = f"path/{KEYS['openai']}/{OWN['OPENAI_API_KEY']}/{'x' * 300}"
    assert redactor.beginning(text, 20) == "path/[redacted]/[red"
    assert redactor.beginning(text[:10], 20) == text[:10]


# ------------------------------------------------------------------------------------------------ of a process, late


def test_a_variable_counts_from_when_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_process.text("the-value-of-1, the-value-of-2") == "the-value-of-1, the-value-of-2"
    monkeypatch.setenv("LATE_TOKEN", "the-value-of-1")
    assert of_process.text("the-value-of-1, the-value-of-2") == f"{MARK}, the-value-of-2"
    monkeypatch.setenv("LATE_TOKEN", "the-value-of-2")
    assert of_process.value(["the-value-of-1", "the-value-of-2"]) == ["the-value-of-1", MARK]


def test_a_declared_variable_counts_from_when_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATE_GATE", "the-value-of-3")
    assert of_process.text("the-value-of-3") == "the-value-of-3"
    of_process.add_variables(["LATE_GATE"])
    assert of_process.text("the-value-of-3") == MARK


def test_the_last_keys_that_were_sent_are_secret_and_their_number_is_bounded() -> None:
    keys = [f"issued-{n:03}-at-noon" for n in range(100)]
    for key in keys:
        of_process.add_key(key)
    redacted = of_process.text(" ".join(keys)).split()
    assert redacted == [*keys[:68], *[MARK] * 32]


async def test_a_key_that_a_program_prints_during_a_call_is_secret_at_every_exit(
    everything: "Everything", caplog: pytest.LogCaptureFixture
) -> None:
    key, printed = "printed-by-a-program-1", [sys.executable, "-c", "print('printed-by-a-program-1')"]

    def script(call: Call) -> Reply:
        assert call.headers["authorization"] == f"Bearer {key}"
        return Reply(f"I was called with {key}")

    with ModelServer(script) as server:
        models = [{"id": "m", "tier": "fast"}]
        late = {"name": "late", "base_url": server.openai_url, "key_command": printed, "models": models}
        await everything.run(Task(goal="say it", model="m"), caplog=caplog, endpoints=[late])
    (result,) = everything.result.results
    assert (result.status, result.report) == ("completed", f"I was called with {MARK}")
    assert [where for where, text in everything.texts.items() if key in text] == []


async def test_what_a_failing_key_program_says_is_redacted_before_it_is_cut() -> None:
    says = f"import sys; sys.exit('no: {KEYS['anthropic']}' + ' x' * 92)"
    with pytest.raises(ValueError, match="ended with status 1") as caught:
        KeyCommand((sys.executable, "-c", says))()
    assert R[-10:] not in str(caught.value)


# ----------------------------------------------------------------------------------------------------- from end to end

LEAK = "\n".join([*KEYS.values(), *OWN.values()])
LINES = [line for line in LEAK.splitlines() if line not in PEM.splitlines()]


def leaks(text: str) -> list[str]:
    """The lines of secrets that a text contains, verbatim or JSON-escaped."""
    return [line for line in LINES if line in text or json.dumps(line)[1:-1] in text]


class Everything:
    """Collects everything that a delegation outputs or leaves behind: report, texts, prompts, events, logs, files."""

    def __init__(self, home: Path) -> None:
        self.texts: dict[str, str] = {}
        self.requests: list[ChatRequest] = []
        self._home = home
        self._events: list[str] = []

    def event(self, event: Event) -> None:
        self._events.append(repr(event))

    async def run(self, *tasks: Task, caplog: pytest.LogCaptureFixture, **options: Any) -> None:
        with caplog.at_level(logging.DEBUG, "delegate"):
            async with Delegator(on_event=self.event, sandbox="off", commands="allow", **options) as delegator:
                self.result = await delegator.run(*tasks)
                self.texts["store, open"] = self._stored()
                records = [await delegator.records.read(result.handle or "") for result in self.result.results]
                runs = [await delegator.records.runs(), await delegator.records.tasks(self.result.run_id or "")]
        self.texts |= {
            "result": self.result.model_dump_json(),
            "text for the parent": render(self.result, limit=100_000),
            "records": json.dumps(records, ensure_ascii=False),
            "runs": repr(runs),
            "store, closed": self._stored(),
            "events": "\n".join(self._events),
            "logs": caplog.text,
            "prompts of judges": "\n".join(self._prompts()),
        }

    def _prompts(self) -> Iterator[str]:
        for request in self.requests:
            if is_judge(request):
                yield request.system
                yield from (message.text for message in request.messages)

    def _stored(self) -> str:
        files = [file for file in self._home.iterdir() if file.name.startswith("records.sqlite3")]
        return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in files)

    def leaked(self) -> dict[str, list[str]]:
        return {where: found for where, text in self.texts.items() if (found := leaks(text))}


@pytest.fixture
def everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> Everything:
    for name, value in OWN.items():
        monkeypatch.setenv(name, value)
    return Everything(home)


GATE = {"name": "gate", "base_url": "http://127.0.0.1:9/v1", "key_env": "GATE", "models": [{"id": "m", "tier": "fast"}]}


async def _print_keys(args: Mapping[str, Any]) -> str:
    return f"the keys are\n{LEAK}\nand that was all"


async def _fail(args: Mapping[str, Any]) -> str:
    raise RuntimeError(f"refused: {LEAK}")


async def test_no_key_written_by_a_child_or_tool_is_recorded_or_judged(
    everything: Everything, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    tools = [Tool(name, "x", {"type": "object"}, call) for name, call in (("keys", _print_keys), ("fail", _fail))]

    def answer(request: ChatRequest) -> ChatReply | str:
        everything.requests.append(request)
        if is_judge(request):
            quote = f"openai project is {MARK} here"
            return verdicts(**dict.fromkeys(asked_ids(request), ("met", quote)))
        turns = sum(message.role == "assistant" for message in request.messages)
        if turns == 0:
            (folder / f"{KEYS['npm']}.txt").write_text("x")
            (folder / "keys.txt").write_text(f"first {KEYS['openai']}\n{LEAK}\n")
            return Scripted.calls(("keys", {"why": LEAK}), ("fail", {LEAK: 1}), (f"no tool {LEAK}", {}), text=LEAK)
        return json.dumps({"said": f"openai project is {KEYS['openai project']} here\n{LEAK}"})

    task = Task.model_validate(
        {
            "goal": f"Use {KEYS['github']} to fetch it",
            "context": LEAK,
            "workspace": folder,
            "output_schema": {"type": "object"},
            "acceptance_criteria": [
                f"it says openai project, not {KEYS['slack']}",
                {"kind": "shell", "command": "cat keys.txt", "exit_code": 0},
                {"kind": "shell", "command": "cat keys.txt >&2; exit 1", "findings_only": True},
                {"kind": "regex", "pattern": "openai project is .*"},
                {"kind": "file", "path": "keys.txt", "contains": "first "},
            ],
        }
    )
    await everything.run(task, caplog=caplog, client=Scripted(answer), tools=tools, endpoints=[GATE])
    (result,) = everything.result.results
    assert everything.leaked() == {}
    assert result.verdict
    assert (result.status, result.verdict.verdict) == ("completed", "PASS"), result.verdict.reasoning
    assert [c.source for c in result.verdict.criteria if c.decided_by == "judge"] == ["report"], "the quote was found"
    assert result.structured_output["said"].startswith(f"openai project is {MARK} here")
    assert (result.receipts.ok, result.receipts.error) == (1, 2)
    child = [request for request in everything.requests if not is_judge(request)]
    assert KEYS["github"] in child[0].messages[0].text, "what its parent gave it, the child gets as it is"


async def test_no_key_in_an_error_or_in_a_custom_runners_result(
    everything: Everything, caplog: pytest.LogCaptureFixture
) -> None:
    class Runner:
        needs_model = False
        records_tools = True

        async def run(self, job: Job) -> ChildRun:
            if job.task.goal == "crash":
                raise RuntimeError(LEAK)
            if job.task.goal == "hang":
                job.recorder.report = job.recorder.report or "nothing yet"
                await asyncio.Event().wait()
            job.notify(ChildToolStarted, tool=LEAK, text=LEAK)
            job.record_tool(LEAK, {LEAK: [LEAK]}, LEAK)
            job.record_usage(Usage(), 0.0, model=LEAK, text=f"{'-' * 185}{OWN['OPENAI_API_KEY']}")
            receipt = Receipt(n=1, tool="x", status="ok", args={"a": [LEAK]}, output=LEAK)
            return ChildRun(status="completed", report=f"{LEAK}\ud800", receipts=(receipt,), observations=(LEAK,))

    tasks = [Task(goal="crash"), Task(goal="own"), Task(goal="hang", timeout_seconds=0.05)]
    await everything.run(*tasks, caplog=caplog, runner=Runner(), endpoints=[GATE])
    assert everything.leaked() == {}
    assert OWN["OPENAI_API_KEY"][:8] not in everything.texts["events"], (
        "a cut would leave a piece that nobody recognizes"
    )
    assert [result.status for result in everything.result.results] == ["failed", "completed", "timeout"]
    assert "crashed" in caplog.text


async def test_no_key_obscured_by_hidden_characters_reaches_a_judge(tmp_path: Path) -> None:
    prompts: list[str] = []

    def answer(request: ChatRequest) -> str:
        prompts.extend(message.text for message in request.messages)
        return verdicts(**dict.fromkeys(asked_ids(request), ("met", "this is it")))

    key = KEYS["github"]
    hidden, check = f"this is it: {key[:9]}\u200b{key[9:]}", {"kind": "regex", "pattern": f"it|{KEYS['gitlab']}"}
    (tmp_path / "note.txt").write_text(hidden)
    receipts = [{"tool": "x", "args": {"key": hidden}, "status": "ok", "output": hidden}]
    async with Delegator(client=Scripted(answer)) as delegator:
        await delegator.judge(
            goal="x", acceptance_criteria=[check, "it is"], report=hidden, receipts=receipts, workspace=tmp_path
        )
    (prompt,) = (text for text in prompts if "this is it" in text)
    assert key[9:] not in prompt
    assert prompt.count(f"this is it: {MARK}") == 4
    assert f"it|{MARK}" in "".join(prompts)
    assert leaks("".join(prompts)) == []


async def test_no_key_in_a_verdict_on_existing_work(everything: Everything, tmp_path: Path) -> None:
    def answer(request: ChatRequest) -> str:
        everything.requests.append(request)
        return verdicts(**dict.fromkeys(asked_ids(request), ("met", f"AWS: {MARK} in use")))

    (tmp_path / "keys.txt").write_text(LEAK)
    criteria = [
        f"it uses AWS, not {KEYS['npm']}",
        {"kind": "shell", "command": "cat keys.txt", "findings_only": True},
        {"kind": "regex", "pattern": "cut: .*"},
    ]
    async with Delegator(client=Scripted(answer), sandbox="off", commands="allow", endpoints=[GATE]) as delegator:
        verdict = await delegator.judge(
            goal="x",
            acceptance_criteria=criteria,
            report=f"AWS: {KEYS['aws']} in use\n{LEAK}\ncut: {'-' * 185}{OWN['OPENAI_API_KEY']}",
            receipts=[{"tool": "x", "args": {"key": LEAK}, "status": "ok", "output": LEAK}],
            workspace=tmp_path,
        )
    prompts = "\n".join(message.text for request in everything.requests for message in request.messages)
    written = verdict.model_dump_json()
    assert (verdict.verdict, leaks(written), leaks(prompts)) == ("PASS", [], [])
    assert OWN["OPENAI_API_KEY"][:8] not in written, "a cut would leave a piece that nobody recognizes"
