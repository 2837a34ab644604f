"""docs/cookbook.md: of each job's criteria, work that does it passes, and work that only claims to fails."""

import asyncio
import re
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from delegate.testing import ChatRequest, judge_reply
from tests.support.pages import DOCS
from tests.support.words import asked_ids

PAGE = (DOCS / "cookbook.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### ([^\n]+)\n\n```(?:yaml|json)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@dataclass(frozen=True)
class Work:
    """What a child left. `quote` is what a judge quotes for criteria in words, where there are any."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    report: str = "I did it."
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    quote: str = ""


TEST = """\
import unittest
from calc import half
class T(unittest.TestCase):
    def test(self):
        self.assertEqual(half(3), 1.5)
"""
ROWS = "name,email\nAda,ada@example.com\nBob,\n"
CITIES = "city,country\nOslo,\nRome,\n"
SCHEMA = "create table users (name text);\n"
REFUND, ARCHIVED = ("refund", {"order": "A-17"}), ("archive_ticket", {"id": 1})
PRICES = "https://example.com/prices"

# What does the job, and what only claims to.
TRIED: dict[str, tuple[Work, Work]] = {
    "Fix a bug": (
        Work({"calc.py": "def half(n): return n / 2\n", "test_calc.py": TEST}),
        Work({"calc.py": "def half(n): return n // 2\n", "test_calc.py": TEST}),
    ),
    "Write a function": (
        Work({"slug.py": "def slug(text): return '-'.join(text.lower().split())\n"}),
        Work({"slug.py": "def slug(text): return text.lower().replace(' ', '-')\n"}),
    ),
    "Rename something everywhere": (
        Work({"a.py": "def load_all(): ...\n", "b.py": "import a\na.load_all()\n"}),
        Work({"a.py": "def load_all(): ...\n", "b.py": "import a\na.fetch_all()\n"}),
    ),
    "Add an option to a command": (
        Work({"tool.py": "import sys\nif '--version' in sys.argv: print('1.2')\n"}),
        Work({"tool.py": "print('usage: tool')\n"}),
    ),
    "Change a configuration file": (
        Work({"config.toml": 'host = "localhost"\nport = 8080\n'}),
        Work({"config.toml": "port = 8080\n"}),
    ),
    "Migrate a database": (
        Work({"schema.sql": SCHEMA, "migrate.sql": "alter table users add column email text;\n"}),
        Work({"schema.sql": SCHEMA, "migrate.sql": "alter table users add column mail text;\n"}),
    ),
    "Keep secrets out": (
        Work({"app.py": "import os\nkey = os.environ['API_KEY']\n"}),
        Work({"app.py": "API_KEY = 'sk-" + "12345678'\n"}),
    ),
    "Review code": (
        Work(report="calc.py:3 divides by zero when the list is empty.", quote="divides by zero when the list"),
        Work(report="The code has problems, such as an empty list.", quote="an empty list"),
    ),
    "Extract values as JSON": (
        Work(report='{"items": [2, 3], "total": 5}'),
        Work(report='{"items": [2, 3], "total": 6}'),
    ),
    "Fill in a form": (
        Work(report='{"name": "Ada", "email": "ada@example.com"}'),
        Work(report='{"name": "Ada", "email": "unknown"}'),
    ),
    "Clean a table": (
        Work({"in.csv": ROWS, "out.csv": "name,email\nAda,ada@example.com\n"}),
        Work({"in.csv": ROWS, "out.csv": "name,email\n"}),
    ),
    "Fill in a column": (
        Work({"in.csv": CITIES, "out.csv": "city,country\nOslo,Norway\nRome,Italy\n"}),
        Work({"in.csv": CITIES, "out.csv": "city,country\nOslo,Norway\n"}),
    ),
    "Sort into classes": (Work(report="bug"), Work(report="It is a bug, or a feature.")),
    "Rename files": (Work({"2026-notes.txt": "tide\n"}), Work({"2026-notes.txt": "tide\n", "notes.txt": "tide\n"})),
    "Write a document": (
        Work({"report.md": "## Summary\n\nThe disk was full for two hours.\n\n## Timeline\n\n- 10:00 full\n"}),
        Work({"report.md": "## Summary\n\nThe disk was full for two hours, and then it wasn't any more.\n"}),
    ),
    "Summarize": (
        Work(report="The office moves, and the landlord pays for the move.", quote="the landlord pays for the move"),
        Work(report="The office moves in May, and all are glad.", quote="the landlord pays for the move"),
    ),
    "Translate an interface": (
        Work({"en.json": '{"ok": "Yes", "no": "No"}', "de.json": '{"ok": "Ja", "no": "Nein"}'}),
        Work({"en.json": '{"ok": "Yes", "no": "No"}', "de.json": '{"ok": "Ja"}'}),
    ),
    "Do something exactly once": (Work(calls=(REFUND,)), Work(calls=(REFUND, REFUND))),
    "Look before answering": (
        Work(report=f"It costs $3: {PRICES}", calls=(("fetch_url", {"url": PRICES}),)),
        Work(report=f"It costs $3: {PRICES}"),
    ),
    "Leave something alone": (Work(calls=(ARCHIVED,)), Work(calls=(ARCHIVED, ("delete_ticket", {"id": 2})))),
}


def test_the_page_has_the_jobs_that_are_tried() -> None:
    assert (len(RECIPES), set(RECIPES)) == (20, set(TRIED))


@pytest.mark.parametrize("part", PAGE.split("\n## ")[1:], ids=lambda part: part.partition("\n")[0])
async def test_the_criteria_of_each_job_tell_work_from_claims(part: str, tmp_path: Path) -> None:
    judge = Scripted(answer, reading={})
    async with Delegator(client=judge) as delegator:

        async def judged(job: str, does_it: bool) -> None:
            work, folder = TRIED[job][not does_it], tmp_path / f"{job}, {does_it}"
            folder.mkdir()
            for name, text in work.files.items():
                (folder / name).write_text(text, encoding="utf-8")
            verdict = await delegator.judge(
                **recipe_of(job),
                report=work.report,
                workspace=folder,
                receipts=[{"tool": tool, "args": args, "status": "ok", "output": "done"} for tool, args in work.calls],
            )
            assert verdict.verdict == ("PASS" if does_it else "FAIL"), (job, verdict.reasoning)
            # Of existing work, it isn't known here which tools there were.
            codes = ("met", "not_met", "evidence_not_found", "own_tests_only", "unknown_tool")
            assert verdict.code in codes, (job, verdict.reasoning)

        async with asyncio.TaskGroup() as group:
            for job, does_it in product(re.findall(r"^### (.+)$", part, re.MULTILINE), (True, False)):
                group.create_task(judged(job, does_it))


def recipe_of(job: str) -> dict[str, Any]:
    """The task of a recipe, which is YAML in a list of one, or JSON."""
    loaded: Any = yaml.safe_load(RECIPES[job])
    return loaded if "goal" in loaded else loaded[0]


def answer(request: ChatRequest) -> str:
    """The reply of a judge that finds everything met, by the quote of the work that it sees."""
    seen = str(request.messages)
    (quote,) = {work.quote for works in TRIED.values() for work in works if work.quote and work.report in seen}
    return judge_reply(**dict.fromkeys(asked_ids(request), ("met", quote)))
