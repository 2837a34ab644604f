"""The pages of docs/ in pieces: blocks of code with what is said about them, headings and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"

_FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n+)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block. `note` is the comment before it: `not run: …`, `exits with 1`, `output`."""

    page: str
    line: int
    language: str
    text: str
    title: str | None
    note: str

    @property
    def is_run(self) -> bool:
        return not self.note.startswith("not run: ")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


@cache
def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")),
            found["language"],
            found["text"],
            found["title"],
            found["note"] or "",
        )
        for found in _FENCE.finditer(text)
    ]


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of these languages on all pages."""
    found = (block for path in pages() for block in blocks(str(path.relative_to(DOCS))))
    return [block for block in found if block.language in languages]


def output_of(block: Block) -> str | None:
    """The block marked as the output of this one: the one after it."""
    here = blocks(block.page)
    after = here[here.index(block) + 1 :]
    return after[0].text if after and after[0].note == "output" else None


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows: its blocks with a title."""
    return {block.title: block.text for block in blocks(page) if block.title}


def links(path: Path) -> Iterator[str]:
    """The targets of all links outside of code."""
    yield from _LINK.findall(_CODE.sub("", path.read_text(encoding="utf-8")))


@cache
def anchors(path: Path) -> frozenset[str]:
    """What the headings of a page are reached by."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return frozenset(map(_slug, _HEADING.findall(text)))


def _slug(heading: str) -> str:
    """As Python-Markdown makes it."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)
