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
from delegate.judging.judge.decide import calls_of
from delegate.judging.judge.evidence import gather
from delegate.judging.judge.sources import Sources
from delegate.judging.proof.calls import Calls
from delegate.judging.proof.proof import Proof, Shown
from delegate.judging.proof.undoing import is_undone
from delegate.judging.reading.statements import TaskReading
from delegate.judging.submission import Submission
from delegate.models.providers.scripted import Scripted
from delegate.ports import ChatRequest, Tool
from delegate.types import ChildRun, Receipt, StatementPart, Task
from tests.support.deeds import believer

DATA = Path(__file__).parents[2] / "data" / "outcomes"
Json = dict[str, Any]


def rows_of(file: str) -> list[Json]:
    return [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]


ROWS, MORE_ROWS = rows_of("deeds.jsonl"), rows_of("more_deeds.jsonl")
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
    run = ChildRun(status="completed", output=row["report"], receipts=receipts)
    tools = tuple(map(tool_of, row["tools"]))
    submission = Submission(Task(goal=row["goal"]), run, None, "person", None, tools=tools)
    found: list[set[str]] = []
    for fields in row["parts"]:
        part = StatementPart.model_validate({**fields, "whole": row["kind"] in ABOUT_ALL})
        evidence = gather(Sources(submission, (), (part,)))
        proof = Proof(part, "model", submission, evidence, calls_of(submission, TaskReading()))
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


def test_of_deeds_seen_for_the_first_time_code_believes_none_that_was_not_done() -> None:
    """These rows were written later, without a look at the code or at the others. Of those that weren't done, a judge
    that finds everything met is believed only where a result in prose says no, which code doesn't read."""
    found = [(row, worth(row)) for row in MORE_ROWS]
    undone = [(row, parts) for row, parts in found if row["truth"] != "done"]
    proven = [row["id"] for row, parts in undone if all("met" in one for one in parts)]
    seen = [row["id"] for row, parts in undone if all(one & ON_EVIDENCE for one in parts)]
    refused = [row["id"] for row, parts in found if row["truth"] == "done" and not all(parts)]
    print(f"proven: {proven}, seen at worst: {seen} of {len(undone)}; refused: {refused} of {len(found) - len(undone)}")
    assert (len(undone), len(found)) == (50, 80)
    assert proven == []
    assert len(seen) <= 8, seen
    assert len(refused) <= 1, refused


def _from_report(source: str) -> bool:
    return source == "output"


@pytest.mark.parametrize("judge", [believer(), believer(_from_report)], ids=["believing", "quoting the report"])
async def test_a_naive_judge_is_led_astray_by_none(judge: Callable[[ChatRequest], str], home: Path) -> None:
    believed: list[str] = []
    outcomes = Counter[tuple[str, str, str | None]]()
    for row in ROWS:
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
                output=row["report"],
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


# -------------------------------------------------------------------------------------------------- what names count


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
