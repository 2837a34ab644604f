"""A report as a file: it loads and runs nothing, whatever children wrote, and stays small."""

import base64
import hashlib
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from delegate.pages.page import run_page, run_text
from delegate.testing import judge_reply
from delegate.types.ports import ChatReply, ChatRequest
from tests.pages import recorded
from tests.pages.recorded import OWN
from tests.support.web import serving
from tests.support.words import is_judge, met_by, words

_TAGS = {
    "html", "head", "meta", "title", "link", "style", "body", "script", "header", "p", "h1", "h2", "h3", "div",
    "strong", "span", "svg", "rect", "path", "main", "section", "button", "label", "select", "option", "input",
    "details", "summary", "ul", "ol", "li", "q", "code", "mark", "table", "thead", "tbody", "tr", "th", "td", "dl",
    "dt", "dd", "a", "textarea", "footer",
}  # fmt: skip


class Parsed(HTMLParser):
    """Collects the tags and attributes of a page, and its texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.raw: dict[str, str] = {}
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag

    def handle_data(self, data: str) -> None:
        if self._in in ("style", "script"):
            self.raw[self._in] = self.raw.get(self._in, "") + data
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._in = ""


async def test_hostile_texts_make_no_markup(home: Path) -> None:
    page = Parsed(await recorded.html(home, await recorded.hostile_run()))
    assert {tag for tag, _ in page.tags} <= _TAGS
    assert [tag for tag, _ in page.tags].count("script") == 1
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcdoc")]
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), attributes
    assert "onerror=" in page.text  # it is shown, as text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b]", page.text)
    assert "{{7*7}}" in page.text


async def test_sources_that_were_opened_can_be_clicked(home: Path) -> None:
    async with serving() as web:
        web.shows({"/mill": "<html><body><p>The mill made 84,600 tonnes of flour.</p></body></html>"})
        said = f"It made 84,600 tonnes ({web.address}/mill). Old (https://evil.test/?q=1). [Bad](javascript:{OWN})."

        def answer(request: ChatRequest) -> ChatReply | str:
            if is_judge(request):
                return judge_reply(**{"c1.1": ("met", "The mill made 84,600 tonnes of flour.")})
            return said if len(request.messages) > 1 else Scripted.call("fetch_url", url=f"{web.address}/mill")

        async with Delegator(client=Scripted(answer), fetch_hosts=web.hosts) as delegator:
            result = await delegator.run(Task(goal="Look it up", acceptance_criteria=[{"kind": "citations"}]))
    page = Parsed(await recorded.html(home, result.run_id))
    links = {at["href"]: at.get("rel") for tag, at in page.tags if tag == "a" and "http" in (at.get("href") or "")}
    assert links == {f"{web.address}/mill": "noopener noreferrer nofollow"}
    assert "not opened" in page.text
    assert "https://evil.test/?q=1" in page.text


async def test_the_policy_allows_only_the_pages_own_style_and_script(home: Path) -> None:
    html = await recorded.html(home, await recorded.hostile_run())
    page = Parsed(html)
    policy = next(at["content"] for _, at in page.tags if at.get("http-equiv") == "Content-Security-Policy") or ""
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.raw[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert "http" not in page.raw["style"]


async def test_a_long_output_is_cut_with_a_command_for_the_rest(home: Path) -> None:
    text = "<&\"'>" * 99_000  # every character of it gets longer
    result = await recorded.run(words(recorded.child(text, **{"a.txt": text}), "{}"), {"goal": "Write a lot"})
    html = await recorded.html(home, result.run_id)
    assert len(html) < 1_000_000
    assert re.search(r"\[… [\d,]+ more characters …\]", html)
    assert f"delegate page {result.results[0].handle}" in html


@pytest.mark.slow
async def test_a_thousand_tasks_take_forty_times_as_long_as_their_json_and_three_megabytes(home: Path) -> None:
    run_id = await recorded.thousand(home)
    started = time.process_time()
    for _ in range(10):
        recorded.parse_all(home)
    parsed = time.process_time()
    html = await recorded.html(home, run_id)
    assert time.process_time() - parsed < 4 * (parsed - started)
    assert len(html.encode()) < 3_000_000
    assert html.count('<details class="task ') == 1_000
    assert html.count('class="chip fail"') == 250


async def test_the_text_has_the_headline_and_why_tasks_failed(home: Path) -> None:
    criteria = ["the report names a river", {"kind": "regex", "pattern": "Loire"}]
    result = await recorded.run(
        words(recorded.child("It is the Rhine."), met_by("It is the Rhine.")),
        {"goal": "Name a river", "acceptance_criteria": criteria[:1]},
        {"goal": "Name another", "acceptance_criteria": criteria},
    )
    text = run_text(await recorded.view(home, result.run_id))
    assert text.startswith("1 of 2 PASS, $")
    assert "\nPASS  1. Name a river  ($" in text
    assert "\nFAIL  2. Name another  ($" in text
    assert "  ✗ check: report matches /Loire/ — " in text


@pytest.mark.parametrize("served", [True, False])
async def test_only_a_served_page_of_a_running_run_loads_itself_again(home: Path, served: bool) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "Go on"})
    recorded.reopen(home, result.results[0].handle)
    page = run_page(await recorded.view(home, result.run_id), served=served)
    assert ('http-equiv="refresh"' in page.html) == served
    assert ("connect-src 'self'" in page.policy) == served
