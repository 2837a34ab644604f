"""The README is short and true: its programs print what it shows, its commands pass, its links lead somewhere."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate._util import resources
from delegate.models.catalog import Catalog
from delegate.testing import judge_reply
from scripts.write_outputs import ROOT, WIDTH, blocks, printed, stable
from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM_OUTPUT, FLOW = blocks(README, "text")
(PROGRAM,) = blocks(README, "python")
COMMANDS = [line.removeprefix("$ ") for block in blocks(README, "console") for line in block.splitlines()]


def test_it_has_at_most_900_words() -> None:
    assert 300 < len(README.split()) <= 900


def test_its_sections_stand_in_their_order() -> None:
    assert re.findall(r"^## (.+)$", README, re.MULTILINE) == [
        "Install",
        "In Python",
        "How it works",
        "Limits",
        "Where to go on",
    ]


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
    assert max(map(len, (PROGRAM_OUTPUT + FLOW).splitlines())) <= WIDTH


def test_it_names_make_targets_and_installs_from_the_clone() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    setup = [command.partition("#")[0].strip() for command in COMMANDS[:3]]
    assert setup == ["make demo", "make test", "pip install ."]
    assert re.search(r"^demo: .*\n\t@\$\(BIN\)/delegate demo$", makefile, re.MULTILINE)
    assert "\ntest: " in makefile
    assert not re.search(r"pip install [\"']?delegate", README), "the distribution isn't published"


def clerk(call: Call) -> Reply:
    """A child that does what the command asks for, and a judge that quotes it."""
    if call.wants_json:
        (asked,) = re.findall(r"exactly once: (\S+)$", call.last_text)
        return Reply(judge_reply(**{asked: ("met", "Old river, teach me")}))
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
    environment = {
        "PATH": os.pathsep.join([*warm.path(), os.environ["PATH"]]),
        "HOME": str(Path.cwd()),
        "OPENAI_BASE_URL": server.openai_url,
        "OPENAI_API_KEY": "sk-dummy-1234",
    }
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS")


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


def test_the_start_page_links_to_every_page_of_the_documentation() -> None:
    assert re.search(r"\]\(\S*docs/index\.md\)", README)  # of a release, it is absolute
    linked = {link.partition("#")[0] for link in links(ROOT / "docs" / "index.md")}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - linked == {"index.md"}
