"""A batch of companies ends with a table in which each value stands beside its source."""

import csv
import json
import re
from pathlib import Path
from typing import Any

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types.ports import ChatReply, ChatRequest
from tests.judging.citations.test_cases import source_of
from tests.support.web import Web
from tests.support.words import asked_ids, is_judge

FIELDS = ("chief", "staff", "turnover")
FAULTS = {1: "staff", 4: "turnover", 6: "page", 9: "quote"}
COUNT = 12
"""By the number of a company: what its report says wrong, or which page wasn't opened."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {} for field in FIELDS for name in (field, f"{field}_source")},
}


def facts(n: int) -> dict[str, str]:
    return {"chief": f"Dana Orrel {n}th", "staff": f"{1200 + 7 * n:,}", "turnover": f"{n}.{n + 13} million"}


def pages(count: int) -> dict[str, str]:
    """Four pages of each company."""
    found: dict[str, str] = {}
    for n in range(count):
        fact = facts(n)
        found |= {
            f"/{n}": f"<html><body><p>Company {n}. See the other pages.</p></body></html>",
            f"/{n}/chief": f"<html><body><p>Its head is {fact['chief']}: “We make {n} ropes.”</p></body></html>",
            f"/{n}/staff": f"<html><body><p>It employs {fact['staff']} people.</p></body></html>",
            f"/{n}/turnover": f"<html><body><p>Turnover was {fact['turnover']} crowns.</p></body></html>",
        }
    return found


def researcher(web: Web, request: ChatRequest) -> ChatReply | str:
    if is_judge(request):
        lines = {id: max(source_of(request, id).splitlines(), key=len) for id in asked_ids(request)}
        return judge_reply(**{id: ("met", line) for id, line in lines.items()})
    found = re.search(r"company (\d+)\b", "\n".join(message.text for message in request.messages))
    assert found
    n, turn = int(found[1]), sum(message.role == "assistant" for message in request.messages)
    fault, fact = FAULTS.get(n), facts(n)
    wanted = [field for field in FIELDS if not (fault == "page" and field == "staff")]
    if turn < len(wanted):
        return Scripted.call("fetch_url", url=f"{web.address}/{n}/{wanted[turn]}")
    if fault in ("staff", "turnover"):
        fact[fault] = "9,871,003"
    if fault == "quote":
        fact["chief"] += ': "We have never made any rope"'
    sources = {f"{field}_source": f"{web.address}/{n}/{field}" for field in FIELDS}
    return json.dumps({name: {**fact, **sources}[name] for name in SCHEMA["properties"]})


async def test_a_batch_of_companies_ends_with_a_source_for_every_value(web: Web, tmp_path: Path) -> None:
    web.shows(pages(COUNT))
    citations = {"kind": "citations", "min": 3, "every": "row", "hosts": [f"127.0.0.1:{web.port}"]}
    tasks = [
        Task(goal=f"Find the facts on company {n}", acceptance_criteria=[citations], output_schema=SCHEMA)
        for n in range(COUNT)
    ]
    results = tmp_path / "companies.csv"
    async with Delegator(client=Scripted(lambda request: researcher(web, request)), fetch_hosts=web.hosts) as delegator:
        batch = delegator.batches.run(tasks, results=results)
        outcomes = [outcome async for outcome in batch]
        assert len(outcomes) == COUNT
    with results.open(newline="") as file:
        rows = {int(row["row"]) - 1: row for row in csv.DictReader(file)}
    assert {n for n, row in rows.items() if row["verdict"] != "PASS"} == FAULTS.keys()
    for n in rows.keys() - FAULTS.keys():
        for field in FIELDS:
            assert rows[n][f"output.{field}"] == facts(n)[field]
            assert rows[n][f"source.{field}"] == f"{web.address}/{n}/{field}"
        assert {one["state"] for one in json.loads(rows[n]["citations"])} == {"supported"}
    assert "source.chief_source" not in rows[0]
    assert rows[6]["source.staff"] == ""
    states = {one["field"]: one["state"] for one in json.loads(rows[6]["citations"])}
    assert states["staff_source"] == "not_opened"
