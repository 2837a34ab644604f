import time

import pytest

from delegate.child import page
from delegate.child.page import MAX_LINKS, readable
from tests.support.pace import pace
from tests.support.samples import sampled

URL = "https://site.test/docs/index.html?q=1"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<a href='/a'>A</a>", "[A](https://site.test/a)"),
        ("see <a href='b.html#x'> the\n page </a>.", "see [the page](https://site.test/docs/b.html#x) ."),
        ("<a href='//other.test/'>B</a>", "[B](https://other.test/)"),
        ("<a href='mailto:a@b.test'>mail</a>", "[mail](mailto:a@b.test)"),
        ("<a href='a b(c).html'>odd</a>", "[odd](https://site.test/docs/a%20b%28c%29.html)"),
        ("<base href='/base/'><a href='x'>X</a>", "[X](https://site.test/base/x)"),
        ("<a href='/a'><img alt='Logo'></a>", "[Logo](https://site.test/a)"),
        ("<a href='/a'><h3>Title</h3></a><p>text", "### [Title](https://site.test/a)\ntext"),
        ("<h3><a href='/a'>Title</a></h3>", "### [Title](https://site.test/a)"),
        ("<a href='/a'><h3>Title</h3><p>Body</p></a><p>text", "### Title\nBody (https://site.test/a)\ntext"),
        ("<a href='/a'>one<a href='/b'>two", "[one](https://site.test/a)[two](https://site.test/b)"),
    ],
)
def test_a_link_keeps_its_absolute_url(html: str, text: str) -> None:
    assert readable(html + "<p>", URL) == text


@pytest.mark.parametrize(
    "href",
    ["", "#top", "javascript:alert(1)", "data:text/plain,x", "ftp://x.test/", "http://[", "/" + "x" * 2_000],
)
def test_what_leads_to_no_other_page_is_only_text(href: str) -> None:
    assert readable(f"<a href='{href}'>here</a><p>", URL) == "here"


@pytest.mark.parametrize(
    ("html", "lines"),
    [
        ("<h1>A</h1><h2><span>B</span></h2>c", ["# A", "## B", "c"]),
        ("<ul><li>a<li><p>b</p><p>c</p></ul>d", ["- a", "- b", "c", "d"]),
        ("<ol><li>a</li><li>b<ul><li>c</ul></li><li>d</ol>", ["1. a", "2. b", "  - c", "3. d"]),
        ("<ul><li></li><li>a</ul><h2></h2>b", ["- a", "b"]),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", ["a | b", "1 | 2"]),
        ("<pre><code>if x:\n    y  = 1\n\n\tz</code></pre>", ["```", "if x:", "    y  = 1", "", "    z", "```"]),
        ("a\n   b <b>c</b>\td<br>e", ["a b c d", "e"]),
    ],
)
def test_the_structure_of_a_page_is_kept(html: str, lines: list[str]) -> None:
    assert readable(html + "<p>", URL).splitlines() == lines


PARTS = [
    "<", "<!--", "<a ", "<a x='", "</a", "<![CDATA[", "<?", "&", "<script>", "<div>", "<a href=x>", "<a href=x>y",
    "<ul>", "<ul><li>", "<ol><li>x", "<li>", "<pre>", "<pre> \n", "<td>", "<h1>", "<h1><a href=x>y", "<base href=x>",
    "<a href=x>y</a>", "<a href=x>]</a><p>", "</ul>", " \n",
]  # fmt: skip


@pytest.mark.parametrize("part", sampled(PARTS, 4))
def test_a_hostile_page_is_read_in_time_and_length_like_its_own(part: str) -> None:
    url = "https://site.test/" + "a/" * 400
    started = time.thread_time()
    text = readable(part * (100_000 // len(part)), url)
    assert len(text) < 2_000_000
    assert time.thread_time() - started < pace()  # 0.2 s at most; what grows with the square takes minutes


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("1,245<sup>1</sup> members", "1,245^1 members"),
        ("3.4<sup><a href='#n'>2</a></sup>", "3.4^2"),
        ("1<sup>er</sup> mai, 12 km<sup>2</sup>", "1er mai, 12 km2"),
    ],
)
def test_the_number_of_a_note_is_not_part_of_the_number_before_it(html: str, text: str) -> None:
    assert readable(f"<p>{html}</p>", URL).strip() == text


def test_a_page_cannot_fake_white_space_that_is_kept() -> None:
    assert readable("<p>a\x01\x01\x02b</p>\x02<p>c", URL) == "ab\nc"


def test_links_after_the_first_thousands_are_only_text() -> None:
    text = readable("<a href=x>y</a> " * (MAX_LINKS + 5) + "<p>", URL)
    assert text.count("](") == MAX_LINKS
    assert text.endswith(") y y y y y")


def test_where_a_page_is_cut_into_pieces_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    html = '<h1>One &amp; two</h1><!-- <b>no</b> --><p class="x">a < b <a href="/c">see c</a><ul><li>1<li>2</ul><p tail'
    whole = readable(html, "https://example.org/")
    assert "a < b [see c](https://example.org/c)" in whole
    for chars in range(1, len(html)):
        monkeypatch.setattr(page, "PIECE_CHARS", chars)
        assert readable(html, "https://example.org/") == whole, chars
