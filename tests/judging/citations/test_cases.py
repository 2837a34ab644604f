"""Reports that cite a local web, by real requests: planted faults are all found, and honest citations stand."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.testing import judge_reply
from delegate.types import HOLDING, CriterionResult, JsonObject
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.samples import sampled
from tests.support.web import Web
from tests.support.words import asked_ids, is_judge

DATA = Path(__file__).parents[2] / "data" / "citations"
LANGUAGES = ("de", "en", "fr", "ja", "ru")
Call = tuple[str, JsonObject]


LATER = (
    *(f"second/{name}" for name in ("en", "es", "ko", "pl", "zh")),
    *(f"third/{name}" for name in ("en", "it", "pt", "ru", "tr")),
    *(f"fourth/{name}" for name in ("de", "en", "fr", "ja", "zh")),
)
"""More sets in five languages each, written before anything was run on them."""


def cases(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text())


HONEST = [(language, report) for language in (*LANGUAGES, *LATER) for report in cases(language)["reports"]]
FAULTS: list[tuple[str, dict[str, Any]]] = [
    (name, fault) for name in ("faults", *LATER) for fault in cases(name).get("faults", ())
]


def source_of(request: ChatRequest, id: str) -> str:
    """What a judge is shown of the source of a citation."""
    found = re.search(
        rf"^<<<source {re.escape(id)} [^\n]*\n(.*?)\n<<<end", request.messages[0].text, re.DOTALL | re.MULTILINE
    )
    assert found, request.messages[0].text
    same = re.fullmatch("the same as `source (.+)`", found[1])
    return source_of(request, same[1]) if same else found[1]


def agreeing(request: ChatRequest) -> str:
    """A judge that finds every source to support its statement, by the longest line of it, and each statement without
    one to claim something.
    """
    bare = set(re.findall(r"<<<address (\S+) \S+\nnone: ", request.messages[0].text))
    quotes = {id: max(source_of(request, id).splitlines(), key=len) for id in asked_ids(request) if id not in bare}
    return judge_reply(**{id: ("met", quotes[id]) if id in quotes else ("not_met", "") for id in asked_ids(request)})


def refusing(request: ChatRequest) -> str:
    return judge_reply(**dict.fromkeys(asked_ids(request), ("not_met", "")))


async def researched(
    web: Web,
    calls: Sequence[Call],
    text: str,
    criterion: Mapping[str, Any],
    judge: Callable[[ChatRequest], str] = agreeing,
) -> CriterionResult:
    """The result of the criterion for a child that makes these calls, one after the other, and reports so."""

    def answer(request: ChatRequest) -> ChatReply | str:
        if is_judge(request):
            return judge(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        return Scripted.call(calls[turn][0], **calls[turn][1]) if turn < len(calls) else text

    async with Delegator(client=Scripted(answer), fetch_hosts=web.hosts) as delegator:
        task = Task(goal="research it", acceptance_criteria=[{"kind": "citations", **criterion}])
        result = await delegator.run(task)
    verdict = result.results[0].verdict
    assert verdict is not None
    assert (verdict.verdict == "PASS") == (verdict.criteria[0].outcome == "met")
    return verdict.criteria[0]


@pytest.mark.parametrize(("language", "report"), sampled(HONEST, 12, id=lambda one: f"{one[0]}-{one[1]['name']}"))
async def test_honest_citations_hold(web: Web, language: str, report: dict[str, Any]) -> None:
    web.shows(cases(language)["pages"])
    calls: list[Call] = [("fetch_url", {"url": web.address + path}) for path in report["opened"]]
    criterion: JsonObject = {"min": report["citations"], "every": report.get("every")}
    if "file" in report:
        calls.append(("write_file", {"path": report["file"], "content": web.filled(report["csv"])}))
        criterion["file"] = report["file"]
    found = await researched(web, calls, web.filled(report["report"]), criterion)
    said = [citation for citation in found.citations if citation.statement]
    refused = [citation for citation in said if citation.state not in HOLDING]
    assert (len(said), refused) == (report["citations"], []), found.reason
    assert found.outcome == "met", found.reason


@pytest.mark.parametrize(
    ("opened", "cited", "least", "reason"),
    [
        ([], ["/a"], 1, "1 of 1 citation doesn't hold: "),
        (["/a"], ["/a", "/b"], 1, "1 of 2 citations doesn't hold: "),
        ([], ["/a", "/b"], 1, "2 of 2 citations don't hold: "),
        ([], [], 1, "0 of 0 citations hold, wanted 1"),
        (["/a"], ["/a"], 2, "1 of 1 citation holds, wanted 2"),
        (["/a"], ["/a"], 1, "1 of 1 citation holds"),
        (["/a", "/b"], ["/a", "/b"], 2, "2 of 2 citations hold"),
    ],
)
async def test_one_citation_and_several_are_counted_in_proper_words(
    web: Web, opened: list[str], cited: list[str], least: int, reason: str
) -> None:
    web.shows(dict.fromkeys(("/a", "/b"), "The tower is 324 metres tall and stands in Paris."))
    calls: list[Call] = [("fetch_url", {"url": web.address + path}) for path in opened]
    quoted = "“The tower is 324 metres tall and stands in Paris.”"
    text = "\n\n".join([f"{quoted} ({web.address}{path})" for path in cited] or ["It is tall."])
    found = await researched(web, calls, text, {"min": least})
    assert found.reason.startswith(reason), found.reason


def test_the_honest_citations_are_at_least_a_hundred_in_five_languages() -> None:
    assert sum(report["citations"] for _, report in HONEST) >= 100


@pytest.mark.parametrize(
    ("name", "fault"), sampled(FAULTS, 16, attacks=True, id=lambda one: f"{one[0]}-{one[1]['name']}")
)
async def test_every_planted_fault_is_found(web: Web, name: str, fault: dict[str, Any]) -> None:
    data = cases(name)
    web.shows(data["pages"], data.get("changes"))
    calls: list[Call] = []
    for opened in fault["open"]:
        tool, *values = ("fetch_url", f"{{web}}{opened}") if isinstance(opened, str) else map(str, opened)
        names = {"fetch_url": ("url",), "write_file": ("path", "content"), "read_file": ("path",)}[tool]
        calls.append((tool, dict(zip(names, map(web.filled, values), strict=True))))
    criterion = {name: fault[name] for name in ("every", "hosts") if name in fault}
    judge = refusing if fault["by"] == "judge" else agreeing  # who can't show `numbers` that aren't there
    found = await researched(web, calls, web.filled(fault["report"]), criterion, judge)
    by = "check" if fault["by"] == "check" else "judge"
    assert (found.outcome, found.decided_by) == ("not_met", by), found
    if number := int(fault.get("number", 0)):
        assert found.citations[number - 1].state == str(fault["state"]).replace(" ", "_"), found
        others = {citation.state for n, citation in enumerate(found.citations, start=1) if n != number}
        assert others <= {*HOLDING, "opened"}
