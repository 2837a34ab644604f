"""Deeds that were done and deeds that weren't, and what each is believed on.

`tests/data/outcomes/deeds.jsonl` has the runs. The judge is the worst there can be: whichever quote would be accepted,
from the report or any other source, is the one it gives. One that is read through the whole product is naive: it finds
everything met, and quotes the line that has most of the criterion's words.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.judging.judge.evidence import gather
from delegate.judging.judge.sources import Sources
from delegate.judging.proof.calls import Calls, recorded
from delegate.judging.proof.proof import Proof, Shown
from delegate.judging.proof.undoing import is_undone, may_be_changed
from delegate.judging.submission import Submission
from delegate.models.providers.scripted import Scripted
from delegate.types import ChildRun, Receipt, StatementPart, Task
from delegate.types.ports import ChatRequest, Tool
from tests.support.deeds import believer

DATA = Path(__file__).parents[2] / "data" / "outcomes"
Json = dict[str, Any]


def rows_of(file: str) -> list[Json]:
    return [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]


ROWS = rows_of("deeds.jsonl")
ABOUT_ALL = ("twice", "once", "twice_done_once", "done_twice", "retry_fails_again")
"""The rows that ask how often something was done, which a reader says (`whole`)."""
ON_EVIDENCE = {"met", "unclear_result"}
"""The codes of the levels `proven` and `seen`."""


async def never(args: Mapping[str, Any]) -> str:
    raise AssertionError("no tool is called")


def tool_of(given: Json) -> Tool:
    acts = None if given["read_only"] else given["acts"]
    identifies = tuple(given["identifies"]) if given["identifies"] else None
    schema: Json = {"type": "object", "properties": {}}
    read_only = given["read_only"]
    return Tool(
        given["name"], given["description"], schema, never, read_only=read_only, acts=acts, identifies=identifies
    )


def worth(row: Json) -> list[set[str]]:
    """For each part, what the quotes that count are worth, over all lines of the evidence."""
    receipts = tuple(
        Receipt(n=n, tool=call["tool"], args=call["args"], status="ok", output=call["result"])
        for n, call in enumerate(row["calls"], start=1)
    )
    run = ChildRun(status="completed", report=row["report"], receipts=receipts)
    tools = tuple(map(tool_of, row["tools"]))
    submission = Submission(Task(goal=row["goal"]), run, None, "person", None, tools=tools)
    found: list[set[str]] = []
    for fields in row["parts"]:
        part = StatementPart.model_validate({**fields, "whole": row["kind"] in ABOUT_ALL})
        evidence = gather(Sources(submission, (), (part,)))
        proof = Proof(part, "model", submission, evidence, recorded(submission))
        lines = {line[:400] for text in evidence.sources.values() for line in text.splitlines() if len(line) > 3}
        found.append({shown.code for line in lines if isinstance(shown := proof.find(line), Shown)})
    return found


def test_no_deed_that_was_not_done_is_believed_on_evidence_and_none_that_was_is_refused() -> None:
    found = [(row["id"], row["truth"], worth(row)) for row in ROWS]
    believed = [id for id, truth, parts in found if truth != "done" and all(one & ON_EVIDENCE for one in parts)]
    refused = [id for id, truth, parts in found if truth == "done" and not all(parts)]
    seen = sum(truth == "done" and all(one & ON_EVIDENCE for one in parts) for _, truth, parts in found)
    proven = sum(truth == "done" and all("met" in one for one in parts) for _, truth, parts in found)
    print(f"believed at worst: {believed} of 120; refused: {refused} of 40; seen: {seen}, of these proven: {proven}")
    assert Counter(truth for _, truth, _ in found) == {"done": 40, "not_done": 120}
    assert believed == []
    assert len(refused) <= 1, refused
    assert (seen >= 26, proven >= 20) == (True, True)


@pytest.mark.parametrize(
    ("file", "wrong", "total", "most_seen"), [("more_deeds", 50, 80, 8), ("third_deeds", 15, 30, 2)]
)
def test_of_deeds_written_later_code_believes_none_that_was_not_done(
    file: str, wrong: int, total: int, most_seen: int
) -> None:
    """These rows were written without a look at the code or at the others. Of those that weren't done, a judge that
    finds everything met is believed only where a result says no in prose or in words that code doesn't know."""
    found = [(row, worth(row)) for row in rows_of(f"{file}.jsonl")]
    undone = [(row, parts) for row, parts in found if row["truth"] != "done"]
    proven = [row["id"] for row, parts in undone if all("met" in one for one in parts)]
    seen = [row["id"] for row, parts in undone if all(one & ON_EVIDENCE for one in parts)]
    refused = [row["id"] for row, parts in found if row["truth"] == "done" and not all(parts)]
    print(f"proven: {proven}, seen at worst: {seen} of {len(undone)}; refused: {refused} of {len(found) - len(undone)}")
    assert (len(undone), len(found)) == (wrong, total)
    assert proven == []
    assert len(seen) <= most_seen, seen
    assert len(refused) <= 1, refused


def _from_report(source: str) -> bool:
    return source == "report"


@pytest.mark.parametrize(
    ("judge", "every"),
    [
        pytest.param(believer(), 4, id="believing"),
        pytest.param(believer(), 1, id="believing each", marks=pytest.mark.slow),
        pytest.param(believer(_from_report), 1, id="quoting the report", marks=pytest.mark.slow),
    ],
)
async def test_a_naive_judge_is_led_astray_by_none(judge: Callable[[ChatRequest], str], every: int, home: Path) -> None:
    believed: list[str] = []
    outcomes = Counter[tuple[str, str, str | None]]()
    for row in ROWS[::every]:
        if len(row["parts"]) > 1:  # of these, one part that isn't met is enough
            continue
        part = {**row["parts"][0], "whole": row["kind"] in ABOUT_ALL}
        receipts = [{**call, "status": "ok", "output": call["result"]} for call in row["calls"]]
        for one in receipts:
            del one["result"]
        async with Delegator(client=Scripted(judge, reading={"c1": part})) as delegator:
            verdict = await delegator.judge(
                goal=row["goal"],
                acceptance_criteria=[row["criterion"]],
                report=row["report"],
                receipts=receipts,
                tools=[tool_of(one) for one in row["tools"]],
            )
        outcomes[row["truth"], verdict.verdict, verdict.level] += 1
        if row["truth"] != "done" and verdict.level in ("proven", "seen"):
            believed.append(row["id"])
    print(dict(outcomes))
    assert believed == []
    assert sum(n for (truth, word, _), n in outcomes.items() if (truth, word) == ("done", "FAIL")) <= 1


# --------------------------------------------------------------------------------------------------------- undoing


def calls(*made: tuple[str, Json, str]) -> Calls:
    receipts = [
        Receipt(n=n, tool=tool, args=args, status="ok", output=output)
        for n, (tool, args, output) in enumerate(made, start=1)
    ]
    return Calls(receipts, {tool: "acts" for tool, _, _ in made})


@pytest.mark.parametrize(
    ("first", "later", "undone"),
    [
        (("cancel_order", {"id": "A7"}, "{}"), ("reopen_order", {"id": "A7"}, "{}"), True),
        (("cancel_order", {"id": "A7"}, "{}"), ("reopen_order", {"id": "B2"}, "{}"), False),
        (("cancel_order", {"id": "A7"}, "{}"), ("reopen_order", {"id": "A7"}, '{"ok": false}'), False),
        (("cancel_order", {"id": "A7"}, "{}"), ("delete_note", {"id": "A7"}, "{}"), False),
        (("create_event", {"for": "A7"}, '{"id": "evt_9"}'), ("delete_event", {"id": "evt_9"}, "{}"), True),
        (("create_event", {"for": "A7"}, '{"id": "evt_9"}'), ("delete_event", {"id": "evt_8"}, "{}"), False),
        (("publish_page", {"id": "A7"}, "{}"), ("unpublish_page", {"id": "A7"}, "{}"), True),
        (("set_stock", {"id": "A7", "n": 40}, "{}"), ("set_stock", {"id": "A7", "n": 4}, "{}"), True),
        (("set_stock", {"id": "A7", "n": 40}, "{}"), ("set_stock", {"id": "B2", "n": 4}, "{}"), False),
        (("send_mail", {"id": "A7", "n": 40}, "{}"), ("send_mail", {"id": "A7", "n": 4}, "{}"), False),
        (
            ("run_sql", {"sql": "UPDATE o SET x=1 WHERE id='A7'"}, "UPDATE 1"),
            ("run_sql", {"sql": "ROLLBACK"}, ""),
            True,
        ),
    ],
)
def test_a_later_call_undoes_an_earlier_one(first: Any, later: Any, undone: bool) -> None:
    made = calls(first, later)
    names = ["A7", "40"] if "n" in first[1] else ["A7"]
    assert is_undone(made.receipts[0], names, made) == undone


@pytest.mark.parametrize(
    ("first", "later", "doubtful"),
    [
        (("cancelar_pedido", {"pedido": "A7"}, "{}"), ("reactivar_pedido", {"pedido": "A7"}, "{}"), True),
        (("cancelar_pedido", {"pedido": "A7"}, "{}"), ("reactivar_pedido", {"pedido": "B2"}, "{}"), False),
        (("cancelar_pedido", {"pedido": "A7"}, "{}"), ("reactivar_pedido", {"pedido": "A7"}, '{"ok": false}'), False),
        (
            ("cancelar_pedido", {"pedido": "A7"}, "{}"),
            ("reactivar_pedido", {"pedido": "A7", "motivo": "el cliente lo pide"}, "{}"),
            True,
        ),
        (("buchen", {"raum": "Atrium"}, '{"id": "B-99"}'), ("storno", {"vorgang": "B-99"}, "{}"), True),
        (("zamknij", {"numer": "A7"}, "{}"), ("komentarz", {"numer": "A7", "tresc": "po wymianie"}, "{}"), False),
        (("create_order", {"sku": "P1"}, '{"id": "o9"}'), ("ship_order", {"order": "o9"}, "{}"), False),
        (("create_order", {"sku": "P1"}, '{"id": "o9"}'), ("gift_order", {"order": "o9", "to": "N7"}, "{}"), False),
        (("stok_ayarla", {"urun": "A7", "n": 40}, "{}"), ("stok_ayarla", {"urun": "A7", "n": 4}, "{}"), True),
        (("add_line", {"order": "A7", "sku": "P1"}, "{}"), ("add_line", {"order": "A7", "sku": "P2"}, "{}"), False),
    ],
)
def test_a_later_call_whose_name_is_not_understood_makes_it_doubtful(first: Any, later: Any, doubtful: bool) -> None:
    made = calls(first, later)
    assert may_be_changed(made.receipts[0], made) == doubtful
    assert not is_undone(made.receipts[0], ["A7"], made), "and is no refusal"


# -------------------------------------------------------------------------------------------------- what names count


@pytest.mark.parametrize(
    ("names", "args", "meant"),
    [
        (["A7"], {"order": "A7"}, True),
        (["A7"], {"order": "A7", "warehouse": "Leeds-2"}, True),
        (["A7"], {"order": "B2", "label": "A7"}, False),
        (["A7", "B2"], {"order": "B2", "label": "A7"}, True),
        (["A7"], {"order": "B2", "external_reference": "for A7"}, False),
        (["A7"], {"order": "B2", "beizhu": "替A7退款"}, False),
        (["A7"], {"room": "Room A7"}, True),
        (["A7"], {"orders": ["A6", "A7"]}, True),
        (["CMD-7781"], {"order": "CMD-7781", "sku": "SKU-4471"}, True),
        (["CMD-7781"], {"order": "CMD-9020", "tag": "CMD-7781"}, False),
        (["B2"], {"refund": "B2", "label": "A7"}, True),
        (["Ann Lee"], {"guest": "Ms Ann Lee"}, True),
        (["a@x.io"], {"to": "Ann Lee <a@x.io>, b@x.io"}, True),
        (["c_97.pdf"], {"document": "/files/2026/c_97.pdf"}, True),
        (["50"], {"amount": "50 EUR", "order": "A7"}, True),
    ],
)
def test_where_nothing_is_declared_a_name_is_the_value_of_an_argument(
    names: list[str], args: Json, meant: bool
) -> None:
    made = calls(("refund", args, '{"ok": true}'))
    assert made.contains(made.receipts[0], names, proves=True), "never refused for it"
    assert made.is_identified(made.receipts[0], names) == meant


def two_hops(people: Any, subscriptions: Any) -> Calls:
    made = (
        ("find", {"name": "Olsen"}, json.dumps(people)),
        ("list", {"customer": "cus_881"}, json.dumps(subscriptions)),
        ("cancel", {"subscription": "sub_4410"}, '{"ok": true}'),
    )
    receipts = [
        Receipt(n=n, tool=tool, args=args, status="ok", output=output)
        for n, (tool, args, output) in enumerate(made, start=1)
    ]
    return Calls(receipts, {"find": "reads", "list": "reads", "cancel": "acts"})


MARIA, MARIO = {"id": "cus_881", "name": "Maria Olsen"}, {"id": "cus_882", "name": "Mario Olsen"}
HERS, ANOTHER = {"id": "sub_4410", "customer": "cus_881"}, {"id": "sub_4411", "customer": "cus_881"}


@pytest.mark.parametrize(
    ("people", "subscriptions", "linked", "sure"),
    [
        ([MARIA, MARIO], [HERS], True, True),
        ([MARIA], [{"id": "sub_4410", "plan": "team"}], True, True),
        ([MARIA], [HERS, ANOTHER], True, False),
        ([MARIO | {"id": "cus_881"}, MARIA | {"id": "cus_880"}], [HERS], False, False),
        ([MARIA, {"id": "cus_881", "name": "Ola Berg"}], [HERS], False, False),
        ([MARIA], [HERS | {"owner": "Ola Berg"}], False, False),
        ([MARIA], [{"id": "sub_4411", "customer": "cus_881"}, {"id": "sub_4410", "customer": "cus_9"}], False, False),
    ],
)
def test_one_more_look_up_links_a_name_to_an_id_that_is_shared_with_nobody(
    people: Any, subscriptions: Any, linked: bool, sure: bool
) -> None:
    made = two_hops(people, subscriptions)
    assert made.contains(made.receipts[-1], ["Maria Olsen"], proves=True) == linked
    assert (linked and made.is_identified(made.receipts[-1], ["Maria Olsen"])) == sure


@pytest.mark.parametrize(
    ("args", "identifies", "shown"),
    [
        ({"order": "A7"}, None, True),
        ({"order": "A7"}, ("order",), True),
        ({"order": "B2", "note": "for A7"}, None, False),
        ({"order": "B2", "remark": "it is for A7"}, ("order",), False),
        ({"order": "B2", "text": "A7"}, None, False),
        ({"order": "A7-1"}, None, False),
        ({"sql": "UPDATE o SET done = 1 WHERE id = 'B2' -- and A7"}, None, False),
        ({"sql": "UPDATE o SET done = 1 WHERE id = 'A7'"}, None, True),
    ],
)
def test_what_the_child_worded_itself_names_nothing(
    args: Json, identifies: tuple[str, ...] | None, shown: bool
) -> None:
    tool = Tool("refund", "", {"type": "object"}, never, acts=True, identifies=identifies)
    output = json.dumps({"status": "succeeded", **{key: args[key] for key in ("note", "text") if key in args}})
    receipt = Receipt(n=1, tool="refund", args=args, status="ok", output=output)
    recorded = Calls([receipt], {"refund": "acts"}, {"refund": tool})
    assert recorded.contains(receipt, ["A7"], proves=True) == shown
