"""The README is short and true: its programs print what it shows, its commands pass, its links lead somewhere."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from delegate._util import resources
from delegate.models.catalog import Catalog
from delegate.testing import judge_reply
from delegate.types import AnyCriterion, Task
from scripts.write_outputs import ROOT, WIDTH, blocks, printed, stable
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO_OUTPUT, PROGRAM_OUTPUT = blocks(README, "text")
(PROGRAM,) = blocks(README, "python")
COMMANDS = [line.removeprefix("$ ") for block in blocks(README, "console") for line in block.splitlines()]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_it_has_fewer_than_900_words() -> None:
    text = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    words = [word for line in text.splitlines() if not line.startswith("|") for word in line.split()]
    assert 300 < len(words) < 900


def test_its_sections_stand_in_their_order() -> None:
    assert re.findall(r"^## (.+)$", README, re.MULTILINE) == [
        "Try it",
        "In Python",
        "Why",
        "Acceptance criteria",
        "Use it in your framework",
        "On the command line",
        "Limits",
        "More",
    ]


def test_the_demo_prints_what_it_shows() -> None:
    assert stable(printed(None, warm.python())) == stable(DEMO_OUTPUT)


def test_the_program_prints_what_it_shows() -> None:
    assert stable(printed(PROGRAM, warm.python())) == stable(PROGRAM_OUTPUT)
    assert PROGRAM_OUTPUT.startswith("1 of 1 PASS\ntask 1: PASS (seen)\n")


def test_the_program_has_about_twelve_lines() -> None:
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 13


def test_a_difference_that_matters_is_not_taken_for_noise() -> None:
    assert stable("task 0: PASS; $0.0012, run 0123456789ab") == stable("task 0:  PASS; $0.34, run ba9876543210")
    assert stable("- judge: gpt-6-luna") == stable("- judge: claude-haiku-5-5")
    assert stable("task 0: PASS") != stable("task 0: FAIL")
    assert stable("- met: c1, c2") != stable("- met: c1")


def test_no_line_of_output_is_wider_than_a_page() -> None:
    assert max(map(len, (DEMO_OUTPUT + PROGRAM_OUTPUT).splitlines())) <= WIDTH


def test_it_names_make_targets_and_installs_from_the_clone() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    setup = [command.partition("#")[0].strip() for command in COMMANDS[:3]]
    assert setup == ["make demo", "make test", "pip install ."]
    assert re.search(r"^demo: .*\n\t@\$\(BIN\)/delegate demo$", makefile, re.MULTILINE)
    assert "\ntest: " in makefile
    assert not re.search(r"pip install [\"']?delegate", README), "the distribution isn't published"


def clerk(call: Call) -> Reply:
    """A child that does what the commands ask for, and a judge that quotes it."""
    if call.wants_json:
        (asked,) = re.findall(r"exactly once: (\S+)$", call.last_text)
        quote = "Old river, teach me" if "haiku" in call.last_text else "The CEO is Ada Acme"
        return Reply(judge_reply(**{asked: ("met", quote)}))
    if "CEO of" in call.last_text:
        return Reply("The CEO is Ada Acme.")
    if not call.tool_results:
        return Reply(tool_calls=(("write_file", {"path": "haiku.txt", "content": "Old river, teach me\n"}),))
    return Reply("I wrote the haiku.")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    served = tuple(model.id for model in Catalog.shipped().models if model.provider == "openai")
    with ModelServer(clerk, models=served) as running:
        yield running


@pytest.mark.parametrize("command", COMMANDS[3:], ids=lambda command: " ".join(command.split()[:2]))
def test_its_commands_pass(command: str, server: ModelServer) -> None:
    """In a folder that has what they name: a report, a project with tests, and a table of two companies."""
    Path("report.md").write_text("I fixed the bug.\n")
    Path("test_it.py").write_text("import unittest\n\nclass Test(unittest.TestCase):\n    def test(self): pass\n")
    Path("companies.csv").write_text("company\nAcme\nBolt\n")
    environment = {
        "PATH": os.pathsep.join([*warm.path(), os.environ["PATH"]]),
        "HOME": str(Path.cwd()),
        "OPENAI_BASE_URL": server.openai_url,
        "OPENAI_API_KEY": "sk-dummy-1234",
    }
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    if "batch" in command:
        lines = [json.loads(line) for line in Path("found.jsonl").read_text().splitlines()]
        assert [line["verdict"] for line in lines] == ["PASS", "PASS"]
    else:
        assert done.stdout.startswith("PASS")


def test_its_criteria_are_criteria_and_name_every_kind() -> None:
    cells = [row[0] for row in rows("Acceptance criteria")]
    assert len(cells) == 6
    given = [json.loads(code) for cell in cells for code in re.findall(r'`([{"].*?)`(?=;|$)', cell)]
    kinds = {criterion.kind for criterion in Task.model_validate({"goal": "g", "acceptance_criteria": given}).criteria}
    assert kinds == {"shell", "file", "receipt", "probe", "text"}
    named = {*re.findall(r"`([a-z_]+)`", README), *kinds}
    assert {str(get_args(kind.model_fields["kind"].annotation)[0]) for kind in get_args(AnyCriterion)} <= named


def test_its_table_of_frameworks_has_every_host() -> None:
    imported = {
        name for row in rows("Use it in your framework") for name in re.findall(r"delegate.hosts import (\w+)", row[1])
    }
    hosts = {path.stem for path in (ROOT / "tests" / "hosts" / "drivers").glob("[a-z]*.py")}
    assert imported | {"mcp", "hermes"} == {host.removesuffix("_sync") for host in hosts} - {"raw"}


def links(path: Path) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")) if "://" not in link]


@pytest.mark.parametrize("name", ["README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"])
def test_links_lead_somewhere(name: str) -> None:
    targets = {link: Path(os.path.normpath((ROOT / name).parent / link)) for link in links(ROOT / name)}
    assert [link for link, path in targets.items() if not (path.exists() or packaged(path))] == []


def packaged(path: Path) -> bool:
    """Whether the file is part of the package, which lies elsewhere where delegate is installed from a wheel."""
    folder, *rest = path.relative_to(ROOT).parts
    return folder in ("judges", "schemas") and resources.folder(folder).joinpath(*rest).is_file()


def test_it_links_to_every_main_page_of_the_documentation() -> None:
    linked = {Path(link).name for link in links(ROOT / "README.md") if link.startswith("docs/")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages - linked == {
        "approvals.md",
        "children.md",
        "command-line.md",
        "events.md",
        "mcp.md",
        "telemetry.md",
        "trajectories.md",
        "worker.md",
    }  # docs/index.md lists these
