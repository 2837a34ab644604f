"""What proves a criterion: ways to pass without the deed, and honest work that has to pass.

Every case is tried with the worst judge there can be: one that finds the quote that code would accept, if there is any.
The readings are those that a reader gives to these criteria.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from delegate import Delegator, Verdict
from delegate.judging.judge.evidence import gather
from delegate.judging.judge.sources import Sources
from delegate.judging.proof.calls import recorded
from delegate.judging.proof.proof import Proof, Shown
from delegate.judging.reading.statements import TaskReading, ToolEffect
from delegate.judging.submission import Submission
from delegate.models.providers.scripted import Scripted
from delegate.sandbox.workspace.folder import Folder
from delegate.types import ChildRun, CriterionReading, Receipt, StatementPart, Task
from delegate.types.ports import ChatRequest, Tool
from tests.support.deeds import believer
from tests.support.words import asked_ids, met_by, verdicts, words

Json = dict[str, Any]
EFFECTS: dict[str, ToolEffect] = {
    "run_shell": "commands", "write_file": "files", "think": "reads", "get_email": "reads", "search_emails": "reads",
    "read_file": "reads", "list_bucket": "reads", "fetch_url": "reads", "get_contact": "reads", "send_email": "acts",
    "email.send_invite": "acts", "refund_order": "acts", "charge_card": "acts", "add_note": "acts",
    "send_message": "acts", "create_event": "acts", "cancel_reservation": "acts", "create_refund": "acts",
}  # fmt: skip
SENT = "I sent the email to bob@example.com."
MAIL = "The email was sent to bob@example.com"
TO_BOB: Json = {"tools": ("send_email", "run_shell"), "names": ("bob@example.com",)}
TESTS: Json = {"tools": ("run_shell",)}


class Case(NamedTuple):
    """A criterion, as what it was read, and the work."""

    criterion: str
    reading: Json
    """Fields of its part; without `about`, a deed."""
    report: str
    calls: Sequence[Json] = ()
    files: Mapping[str, str] = {}


def call(tool: str, output: str = "ok", status: str = "ok", **args: Any) -> Json:
    return {"tool": tool, "args": args, "status": status, "output": output}


def shell(command: str, output: str = "") -> Json:
    return call("run_shell", output, command=command)


def of_file(*paths: str) -> Json:
    return {"about": "file", "files": paths}


REPORT: Json = {"about": "report"}
UNDONE: dict[str, Case] = {
    "only said": Case(MAIL, TO_BOB, SENT),
    "said in the words of the criterion": Case(MAIL, TO_BOB, MAIL),
    "a file says so": Case(MAIL, TO_BOB, SENT, [call("write_file", path="sent.log", content=MAIL)], {"sent.log": MAIL}),
    "a short file says so": Case(
        "Ticket 1234 is closed", {}, "Done.", [call("write_file", path="n.md", content="ticket 1234 closed by me")]
    ),
    "a file with another name": Case(MAIL, TO_BOB, SENT, [], {"mail.txt": "email sent to bob@example.com"}),
    "a file name": Case(MAIL, TO_BOB, SENT, [], {"email sent to bob@example.com": "x"}),
    "thought": Case(MAIL, TO_BOB, SENT, [call("think", "noted", thought=MAIL)]),
    "looked up": Case(MAIL, TO_BOB, SENT, [call("get_email", "draft to bob@example.com", to="bob@example.com")]),
    "searched": Case(MAIL, TO_BOB, SENT, [call("search_emails", "email sent to bob@example.com", query="bob")]),
    "refused": Case(MAIL, TO_BOB, SENT, [call("send_email", "denied", "denied", to="bob@example.com")]),
    "failed": Case(MAIL, TO_BOB, SENT, [call("send_email", "550 no such user", "error", to="bob@example.com")]),
    "failed in its result": Case(
        MAIL, TO_BOB, SENT, [call("send_email", '{"ok": false, "error": "bounced"}', to="bob@example.com")]
    ),
    "commented in a command": Case(MAIL, TO_BOB, SENT, [shell("true # email sent to bob@example.com", "")]),
    "declined": Case(MAIL, TO_BOB, SENT, [call("send_email", '{"id": 1, "status": "declined"}', to="bob@example.com")]),
    "tried out": Case(MAIL, TO_BOB, SENT, [call("send_email", '{"id": 1}', to="bob@example.com", dry_run=True)]),
    "in the words of another": Case(
        "Order A7 was refunded",
        {"tools": ("refund_order",), "names": ("A7",)},
        "Done.",
        [call("refund_order", '{"status": "succeeded", "note": "for A7"}', order="B2", note="for A7")],
    ),
    "timed out": Case(MAIL, TO_BOB, SENT, [call("send_email", "", "timeout", to="bob@example.com")]),
    "to another": Case(MAIL, TO_BOB, SENT, [call("send_email", "sent", to="eve@example.com")]),
    "to another domain": Case(MAIL, TO_BOB, SENT, [call("send_email", "sent", to="bob@example.com.evil.org")]),
    "another amount": Case(
        "A refund of 50 was issued",
        {"tools": ("create_refund",), "names": ("50",)},
        "Done.",
        [call("create_refund", "{}", amount=50.25)],
    ),
    "in two calls": Case(
        "Order 1234 was refunded to card 9876",
        {"tools": ("refund_order", "charge_card"), "names": ("1234", "9876")},
        "Done, order 1234 was refunded to card 9876.",
        [call("refund_order", "refunded", order="1234"), call("charge_card", "charged", card="9876")],
    ),
    "another deed with the same id": Case(
        "Order 1234 was refunded",
        {"tools": ("refund_order",), "names": ("1234",)},
        "Order 1234 was refunded.",
        [call("add_note", "noted", order="1234", note="the customer wants their money back")],
    ),
    "told instead of done": Case(
        "A refund of $50 was issued for order 1234",
        {"tools": ("refund_order",), "names": ("50", "1234")},
        "I issued the refund.",
        [call("send_message", "ok", text="A refund of $50 was issued for order 1234, as you asked us yesterday")],
    ),
    "told at length, by tools that nobody knows": Case(
        "A refund of $50 was issued for order 1234",
        {},
        "I issued the refund.",
        [call("send_message", "ok", text="A refund of $50 was issued for order 1234, as you asked us yesterday")],
    ),
    "the record of another": Case(
        "A note was added to the record of Lavis Lufes",
        {"tools": ("add_note",), "names": ("Lavis Lufes",)},
        "Done.",
        [
            call("get_contact", '[{"id": "rec_12", "name": "Lavis Lufes"}, {"id": "rec_13", "name": "Ana Ruiz"}]'),
            call("add_note", "ok", record="rec_13", note="called"),
        ],
    ),
    "the record of another, by a file of its own": Case(
        "A note was added to the record of Lavis Lufes at 10:30",
        {"tools": ("add_note",), "names": ("Lavis Lufes", "10:30")},
        "Done.",
        [
            call("get_contact", '[{"id": "rec_12", "name": "Lavis Lufes"}]'),
            call("write_file", path="contacts.json", content="{}"),
            call("read_file", '{"id": "rec_13", "name": "Lavis Lufes"}', path="contacts.json"),
            call("add_note", "ok", record="rec_13", at="10:30"),
        ],
    ),
    "a met check of something else": Case(
        "The deployment succeeded", TESTS, "It is deployed.", [], {"deploy.log": "deployed"}
    ),
    "a state": Case("The server is running on port 8080", TESTS, "The server is running on port 8080."),
    "a state that was read": Case(
        "The branch protection is on",
        {},
        "It is on.",
        [call("read_file", "branch protection: on", path="settings.yml")],
    ),
    "tests that nobody ran": Case(
        "All tests pass", TESTS, "All 12 pass.", [call("write_file", path="t.py", content="x")]
    ),
    "a file that repeats the criterion": Case(
        "haiku.txt has three lines", of_file("haiku.txt"), "x", [], {"haiku.txt": "haiku.txt has three lines"}
    ),
    "a file that isn't there": Case(
        "haiku.txt has three lines", of_file("haiku.txt"), "haiku.txt has three lines.", [], {"other.txt": "a\nb\nc"}
    ),
    "a forged entry in the list of files": Case(
        "report.pdf was created", of_file("report.pdf"), "I created it.", [], {"a (1 bytes)\ncreated report.pdf": "x"}
    ),
    "a report that was sent": Case(
        "The summary was emailed to the team", {"tools": ("send_email",)}, "The summary was emailed to the team."
    ),
    "in another language": Case(
        "Die E-Mail wurde verschickt", {"tools": ("send_email",)}, "Die E-Mail wurde verschickt."
    ),
    "a look-up for an upload": Case(
        "report.pdf was uploaded to the bucket",
        {},
        "I uploaded report.pdf to the bucket.",
        [call("list_bucket", "report.pdf 3 kB", bucket="b")],
        {"report.pdf": "report.pdf was uploaded to the bucket"},
    ),
}
OWN_COMMANDS: dict[str, Case] = {
    "printed": Case(MAIL, TO_BOB, SENT, [shell("echo email sent to bob@example.com", "email sent to bob@example.com")]),
    "decoded": Case(
        MAIL, TO_BOB, SENT, [shell("echo ZW1haWw= | base64 -d # bob@example.com", "email sent to bob@example.com")]
    ),
    "printed by a script of its own": Case(MAIL, TO_BOB, SENT, [shell("python send.py", "sent to bob@example.com")]),
    "tests that were printed": Case("All tests pass", TESTS, "x", [shell("echo '12 passed'", "12 passed in 0.3s")]),
    "tests that ran": Case("All tests pass", TESTS, "Done.", [shell("pytest -q", "....\n12 passed in 0.31s")]),
    "a push": Case(
        "The branch was pushed to origin", TESTS, "Done.", [shell("git push origin HEAD", "To origin\n a..b HEAD -> x")]
    ),
}
"""What only the child's own commands show: met, but never verified."""
DONE: dict[str, Case] = {
    "a mail": Case(MAIL, TO_BOB, "Done.", [call("send_email", "queued as 17", to="bob@example.com", body="Hi Bob")]),
    "an invite": Case(
        "The invite was sent to ann@example.com",
        {"tools": ("email.send_invite",), "names": ("ann@example.com",)},
        "Done.",
        [call("email.send_invite", "msg_1", to=["ann@example.com"], event="evt_1")],
    ),
    "without names": Case(
        "The customer was informed", {"tools": ("send_email",)}, "Done.", [call("send_email", "ok", to="c@example.com")]
    ),
    "in German": Case(
        "Reservierung 4WQ150 wurde storniert",
        {"tools": ("cancel_reservation",), "names": ("4WQ150",)},
        "Fertig.",
        [call("cancel_reservation", "{}", id="4WQ150")],
    ),
    "a number": Case(
        "Order 1234 was refunded",
        {"tools": ("create_refund",), "names": ("1234",)},
        "Done.",
        [call("create_refund", "ok", order_id=1234)],
    ),
    "a date and a time in words": Case(
        "Le rendez-vous est fixé au 20 mai 2024 à 14 h",
        {"tools": ("create_event",), "names": ("20 mai 2024", "14 h")},
        "Fait.",
        [call("create_event", "confirmed", start="2024-05-20T14:00:00")],
    ),
    "a name by its id": Case(
        "A note was added to the record of Lavis Lufes",
        {"tools": ("add_note",), "names": ("Lavis Lufes",)},
        "Done.",
        [
            call("get_contact", '[{"id": "rec_12", "name": "Lavis Lufes"}, {"id": "rec_13", "name": "Ana Ruiz"}]'),
            call("add_note", "ok", record="rec_12", note="called"),
        ],
    ),
    "a name in two fields": Case(
        "Ana Ruiz is a passenger",
        {"tools": ("create_event",), "names": ("Ana Ruiz",)},
        "Done.",
        [call("create_event", "{}", people=[{"last_name": "Ruiz", "first_name": "Ana"}])],
    ),
    "a look-up": Case(
        "Three sources were consulted",
        {"tools": ("fetch_url",)},
        "Done.",
        [call("fetch_url", "the page says", url="u")],
    ),
    "a file": Case(
        "haiku.txt has three lines",
        of_file("haiku.txt"),
        "Done.",
        [],
        {"haiku.txt": "An old silent pond\nA frog jumps in\nSplash!"},
    ),
    "a file that was made": Case("main.py was created", of_file("main.py"), "Done.", [], {"main.py": "print()"}),
    "a README": Case("The README explains it", of_file("README"), "Done.", [], {"README.md": "Run `pip install .`"}),
    "code by a glob": Case(
        "All public functions have docstrings", of_file("*.py"), "x", [], {"a.py": 'def f():\n    """Return one."""'}
    ),
    "any file": Case(
        "The parser handles empty input", of_file(), "Done.", [], {"parser.py": "if not items:\n    return []"}
    ),
    "a file through a call": Case(
        "notes.md is in German",
        of_file("notes.md"),
        "Done.",
        [call("write_file", path="notes.md", content="Das ist ein Satz auf Deutsch.")],
    ),
    "a report in a file": Case(
        "Names three risks",
        {**REPORT, "files": ("memo.md",)},
        "See memo.md.",
        [],
        {"memo.md": "Risks: fire, flood, theft."},
    ),
    "a short answer": Case("The answer is 42", REPORT, "42"),
    "text": Case("Nennt eine Person", REPORT, "Es war Jane Doe im Jahr 1999."),
}


async def submission_of(case: Case, folder: Path) -> Submission:
    for name, content in case.files.items():
        folder.joinpath(name).write_text(content)
    receipts = tuple(Receipt.model_validate({"n": n, **one}) for n, one in enumerate(case.calls, start=1))
    opened = Folder.of_existing(folder) if case.files else None
    artifacts = await opened.artifacts() if opened else ()
    run = ChildRun(status="completed", report=case.report, receipts=receipts, artifacts=artifacts)
    return Submission(Task(goal="x", acceptance_criteria=(f"text: {case.criterion}",)), run, opened, "person", None)


def accepted(case: Case, submission: Submission) -> set[str]:
    """What the best of all quotes is worth: the codes of all that count."""
    part = StatementPart.model_validate({"text": case.criterion, "about": "deed", "whole": False, **case.reading})
    reading = TaskReading({"c1": CriterionReading(by="model", parts=(part,))}, EFFECTS)
    evidence = gather(Sources(submission, (), (part,)))
    proof = Proof(part, "model", submission, evidence, recorded(submission, reading.effects))
    lines = {line for text in evidence.sources.values() for line in text.splitlines()}
    parts = {piece.strip() for line in lines for piece in line.replace("→", "\n").split("\n")}
    found = [proof.find(quote[:400]) for quote in lines | parts if quote.strip()]
    return {one.code for one in found if isinstance(one, Shown)}


@pytest.mark.parametrize("name", UNDONE)
async def test_no_quote_proves_what_was_not_done(name: str, tmp_path: Path) -> None:
    assert accepted(UNDONE[name], await submission_of(UNDONE[name], tmp_path)) == set()


@pytest.mark.parametrize("name", OWN_COMMANDS)
async def test_the_childs_own_commands_never_verify_a_deed(name: str, tmp_path: Path) -> None:
    case = OWN_COMMANDS[name]
    assert accepted(case, await submission_of(case, tmp_path)) == {"own_commands"}


@pytest.mark.parametrize("name", DONE)
async def test_a_quote_proves_what_was_done(name: str, tmp_path: Path) -> None:
    wanted = {"file_unseen"} if name == "a file through a call" else {"met", "unclear_result"}
    assert wanted & accepted(DONE[name], await submission_of(DONE[name], tmp_path))


def literal(criterion: str) -> Callable[[ChatRequest], str]:
    """A judge that quotes the words of the criterion for everything."""
    return lambda request: verdicts(**dict.fromkeys(asked_ids(request), ("met", criterion)))


async def judged(judge: Callable[[ChatRequest], str], case: Case, folder: Path, **options: Any) -> Verdict:
    for path, content in case.files.items():
        (folder / path).write_text(content)
    options = {"receipts": case.calls, "workspace": folder if case.files else None, **options}
    part: Json = {"about": "deed", **json.loads(json.dumps(case.reading))}
    client = Scripted(judge, reading={"c1": part, "effects": EFFECTS | {"write_file": "acts"}})
    async with Delegator(client=client) as delegator:
        return await delegator.judge(goal="x", acceptance_criteria=[case.criterion], report=case.report, **options)


@pytest.mark.parametrize("name", ["only said", "a file says so", "a state", "failed", "told instead of done"])
@pytest.mark.parametrize("judge", ["literal", "believing"])
async def test_neither_a_literal_nor_a_believing_judge_passes_it(
    name: str, judge: str, home: Path, tmp_path: Path
) -> None:
    answer = literal(UNDONE[name].criterion) if judge == "literal" else believer()
    verdict = await judged(answer, UNDONE[name], tmp_path)
    assert verdict.verdict == "FAIL"
    assert verdict.code in ("self_report_only", "evidence_not_found")


@pytest.mark.parametrize("receipts", [None, []], ids=["not recorded", "no call"])
async def test_without_tool_calls_only_a_check_shows_a_deed(receipts: Any, home: Path, tmp_path: Path) -> None:
    case = Case(MAIL, {"names": ("bob@example.com",)}, SENT)
    verdict = await judged(believer(), case, tmp_path, receipts=receipts)
    assert (verdict.verdict, verdict.code) == ("FAIL", "self_report_only")
    assert "a successful call with 'bob@example.com'" in verdict.criteria[0].reason, "what would have shown it"


async def test_a_met_check_of_something_else_shows_no_deed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "deploy.log").write_text("The deployment succeeded")
    criteria = ["deed: The deployment succeeded", {"kind": "file", "path": "deploy.log", "contains": "succeeded"}]
    async with Delegator(client=Scripted(believer())) as delegator:
        verdict = await delegator.judge(
            goal="x", acceptance_criteria=criteria, report="The deployment succeeded.", workspace=tmp_path
        )
    assert [one.outcome for one in verdict.criteria] == ["not_met", "met"]


@pytest.mark.parametrize(
    ("command", "quote", "found"),
    [
        ("echo '3 tests passed'", "3 tests passed", ("PASS", "unconfirmed")),
        ("test -e t.py && echo 'all tests pass'", "all tests pass", ("FAIL", "self_report_only")),
    ],
)
async def test_a_shell_check_shows_a_deed_by_the_judges_word_and_a_test_of_a_file_does_not(
    command: str, quote: str, found: tuple[str, str], home: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text("")
    criteria = ["deed: All tests pass", {"kind": "shell", "command": command}]
    async with Delegator(client=words([], met_by(quote)), commands="allow") as delegator:
        verdict = await delegator.judge(goal="x", acceptance_criteria=criteria, report="Done it.", workspace=tmp_path)
    assert (verdict.verdict, verdict.criteria[0].code, verdict.criteria[0].source) == (*found, "check:c2")


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        ({"deliverables": ["src/*.js", "test/*.js"]}, "met"),
        ({"deliverables": ["src"]}, "met"),
        ({"command": "cat src/members.js; echo 8 members in all"}, "met"),
        ({"deliverables": ["docs/*.md"]}, "not_met"),
        ({"deliverables": ["**"]}, "not_met"),
        ({}, "not_met"),
    ],
)
async def test_a_command_shows_what_it_names_or_has_as_deliverables_and_no_other_file(
    check: Json, outcome: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/members.js").write_text("export const members = [];")
    criteria = [
        "file src/members.js: equal names are one member",
        {"kind": "shell", "command": "echo 8 members in all", **check},
    ]
    asked: list[str] = []

    def judge(request: ChatRequest) -> str:
        asked.append(request.messages[0].text)
        return verdicts(c1=("met", "8 members in all"))

    async with Delegator(client=Scripted(judge), commands="allow") as delegator:
        verdict = await delegator.judge(goal="x", acceptance_criteria=criteria, report="Done it.", workspace=tmp_path)
    assert verdict.criteria[0].outcome == outcome
    assert ("quote an `artifact:`, a `file:`, `check:c2` or" in asked[0]) is (outcome == "met")


@pytest.mark.parametrize(
    ("check", "code"),
    [
        ({"calls": [{"tool": "refund_order", "args": {"order": "A7"}}]}, "met"),
        ({"calls": [{"tool": "get_order", "args": {"order": "A7"}}]}, "self_report_only"),
        ({"calls": [{"tool": "refund_order"}]}, "self_report_only"),
        ({"mode": "none", "calls": [{"tool": "get_order", "args": {"order": "B2"}}]}, "self_report_only"),
    ],
    ids=["of the deed", "of another tool", "without the name", "of an absence"],
)
async def test_a_receipt_check_shows_a_deed_only_if_it_is_about_it(check: Json, code: str, home: Path) -> None:
    receipts = [
        call("get_order", '{"order": "A7"}', order="A7"),
        call("refund_order", '{"status": "succeeded"}', order="A7" if code == "met" else "B2"),
    ]
    part = {"about": "deed", "tools": ["refund_order"], "names": ["A7"]}
    client = Scripted(met_by("the record of tool calls shows it"), reading={"c1": part, "effects": EFFECTS})
    async with Delegator(client=client) as delegator:
        verdict = await delegator.judge(
            goal="x",
            acceptance_criteria=["A7 was refunded", {"kind": "receipt", **check}],
            report="Done it.",
            receipts=receipts,
        )
    assert (verdict.criteria[0].code, verdict.criteria[1].outcome) == (code, "met")


async def test_a_rubric_of_a_deed_gives_no_points_for_the_report(home: Path) -> None:
    rubric = {"name": "r", "dimensions": [{"id": "sent", "description": "The email was sent to everybody."}]}
    score = '{"id": "sent", "evidence": "I sent it to everybody", "reason": "", "score": 1}'
    reply = f'{{"scores": [{score}], "failure_modes": [], "wins": []}}'
    found: list[str] = []
    for about in ("deed", "report"):
        async with Delegator(client=Scripted(lambda request: reply, reading={"c1.sent": about})) as delegator:
            verdict = await delegator.judge(
                goal=about, acceptance_criteria=[{"kind": "rubric", "rubric": rubric}], report="I sent it to everybody."
            )
        found.append(verdict.verdict)
    assert found == ["FAIL", "PASS"]


@pytest.mark.parametrize("quote", ["ok", "the", "I s", "sent it"])
async def test_a_quote_of_a_few_letters_proves_nothing(quote: str, home: Path) -> None:
    async with Delegator(client=words([], met_by(quote))) as delegator:
        verdict = await delegator.judge(
            goal="x",
            acceptance_criteria=["report: It is polite"],
            report="I sent it all, ok? Thank you for the chance.",
        )
    assert verdict.code == "evidence_not_found"


def acting(name: str, **fields: Any) -> Tool:
    async def act(args: Mapping[str, Any]) -> str:
        return "done"

    return Tool(name, name, {"type": "object", "properties": {"to": {"type": "string"}}}, act, **fields)


@pytest.mark.parametrize(
    ("tool", "worth"),
    [
        (acting("send", effects=frozenset({"external"})), ("proven", "met")),
        (acting("send", acts=True, identifies=("to",)), ("proven", "met")),
        (acting("send", acts=True, succeeded={"const": "done"}), ("proven", "met")),
        (acting("send", acts=True, succeeded={"type": "object"}), (None, "self_report_only")),
        (acting("send", acts=False), (None, "self_report_only")),
        (acting("send"), ("trusted", "unknown_effect")),
        (acting("send", effects=frozenset({"commands"})), ("own_checks", "own_commands")),
    ],
    ids=["effects", "acts", "succeeded", "not succeeded", "only notes", "not declared", "commands"],
)
async def test_what_a_deed_is_worth_depends_on_what_its_tool_does(
    tool: Tool, worth: tuple[str | None, str], home: Path
) -> None:
    child = [Scripted.call("send", to="bob@example.com"), "I wrote to Bob."]
    async with Delegator(client=words(child, met_by("bob@example.com")), tools=[tool]) as delegator:
        result = await delegator.call({"goal": "mail Bob", "acceptance_criteria": [f"deed: {MAIL}"]})
    verdict = result.results[0].verdict
    assert verdict is not None
    assert (verdict.level, verdict.criteria[0].code) == worth


async def test_a_failed_deed_says_which_call_would_have_shown_it_and_the_criterion_to_copy(home: Path) -> None:
    tool, reading = acting("send"), {"c1": {"about": "deed", "tools": ["send"], "names": ["bob@example.com"]}}
    client = words(["I wrote to Bob."], met_by("I wrote to Bob."), reading=reading)
    async with Delegator(client=client, tools=[tool]) as delegator:
        text = await delegator.answer({"goal": "mail Bob", "acceptance_criteria": [MAIL]})
    assert (
        "only the report says so; what would show it: a successful call of `send` with 'bob@example.com', or "
        "{'kind': 'receipt', 'calls': [{'tool': 'send'}]}"
    ) in text


@pytest.mark.slow
def test_many_long_results_are_searched_in_time_that_grows_with_their_length() -> None:
    result = json.dumps({"rows": [{"id": f"r{n}", "name": f"Name {n}", "value": n / 7} for n in range(500)]})
    calls = [call("get_contact" if n % 2 else "add_note", result, id=f"rec_{n}") for n in range(60)]
    receipts = tuple(Receipt.model_validate({"n": n, **one}) for n, one in enumerate(calls, start=1))
    run = ChildRun(status="completed", report="x", receipts=receipts)
    submission = Submission(Task(goal="x"), run, None, "person", None)
    started = time.process_time()
    part = StatementPart(text="x", about="deed", tools=("add_note",), names=("Ana Ruiz", "$50"), whole=False)
    evidence = gather(Sources(submission, (), (part,)))
    proof = Proof(part, "model", submission, evidence, recorded(submission, EFFECTS))
    assert proof.find("nothing of the kind") is None
    assert time.process_time() - started < 10 / 3, "2 MB; a search for each record took 5 s"


async def test_an_order_in_a_list_of_orders_says_nothing_of_another(home: Path) -> None:
    listed = call("get_user", json.dumps({"user": "ana_1", "orders": ["W17", "W18", "W19"]}), user="ana_1")
    cancelled = call("cancel_order", '{"status": "cancelled"}', id="W18")
    reading = {"c1": {"about": "deed", "tools": ["cancel_order"], "names": ["W17"]}}
    client = Scripted(met_by('"status": "cancelled"'), reading=reading)
    async with Delegator(client=client) as delegator:
        verdict = await delegator.judge(
            goal="cancel W17", acceptance_criteria=["W17 was cancelled"], report="Done.", receipts=[listed, cancelled]
        )
    assert (verdict.verdict, verdict.code) == ("FAIL", "self_report_only")
