"""A FAIL's reason stands once in whatever is printed or written of it."""

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.testing import ChatReply, Scripted, judge_reply
from tests.cli.command import delegate, openai_at
from tests.support.model_server import Call, Fault, ModelServer, Reply

REASON = "It greets a reader, but it names no river."
CRITERION = "report: it names a river"


def judged(call: Call) -> Reply:
    if not call.wants_json:
        return Reply("It greets you, reader.")
    answer = {"id": "c1", "source": "report", "evidence": "reader", "reason": REASON, "verdict": "not_met"}
    return Reply(json.dumps({"answers": [answer]}))


class _Shown(HTMLParser):
    """The texts of a page, without what its style hides in a task that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden or dict(attrs).get("class") == "why below":
            self._hidden += tag not in ("br", "img", "meta", "link", "input")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= bool(self._hidden)

    def handle_data(self, data: str) -> None:
        self.texts.append("" if self._hidden else data)


def times(text: str, reason: str = REASON) -> int:
    return " ".join(text.split()).count(reason)


def row_of(name: str) -> str:
    (row,) = csv.DictReader(Path(name).read_text().splitlines())
    return "\n".join(row.values())


def test_what_a_judge_says_stands_once() -> None:
    Path("t.csv").write_text("name\nAda\n")
    with ModelServer(judged) as server:
        environment = openai_at(server) | {"COLUMNS": "300"}
        ran = delegate("run", "Name a river.", "-c", CRITERION, **environment)
        shown = delegate("show", "last", **environment)
        delegate("page", "last", "-o", "page.html", **environment)
        delegate("batch", "t.csv", "-o", "r.csv", "--goal", "Name a river for {name}.", "-c", CRITERION, **environment)
        failed = delegate("show", "last", "--failed", **environment)
    page = _Shown()
    page.feed(Path("page.html").read_text())
    whole, _, copied = "".join(page.texts).partition("Copy as text")
    assert [times(text) for text in (ran.stdout, shown.stdout, whole, copied, failed.stdout)] == [1] * 5
    assert times(row_of("r.csv")) == 1


CASES: dict[str, tuple[list[ChatReply | str], str]] = {
    "decided by a judge": (["Done.", judge_reply(c1=("not_met", ""))], "The judge says not_met."),
    "no report": (["", ""], "the child ended without a report"),
    "a failed run": ([], "replies are used up"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answer_to_a_parent_gives_the_reason_once(case: str) -> None:
    replies, reason = CASES[case]
    with Delegator(client=Scripted(replies)) as delegator:
        answer = delegator.answer_sync({"goal": "Name a river.", "acceptance_criteria": [CRITERION]})
    assert times(answer, reason) == 1, answer


def test_what_ended_a_run_stands_once_in_a_csv() -> None:
    Path("t.csv").write_text("name\nAda\n")
    with ModelServer(lambda _: Fault(401)) as server:
        delegate("batch", "t.csv", "-o", "r.csv", "--goal", "Greet {name}.", "-c", "regex: hi", **openai_at(server))
    assert times(row_of("r.csv"), "scripted fault 401") == 1
