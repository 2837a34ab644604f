"""The README is short and true: its programs print what it shows, its commands pass, its links lead somewhere."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.models.catalog import Catalog
from delegate.testing import judge_reply
from scripts import write_outputs
from scripts.write_outputs import ROOT, WIDTH, blocks, printed, stable
from tests.support import pages, warm
from tests.support.model_server import Call, ModelServer, Reply

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM_OUTPUT, FLOW = blocks(README, "text")
(PROGRAM,) = blocks(README, "python")
COMMANDS = [line.removeprefix("$ ") for block in blocks(README, "console") for line in block.splitlines()]


def test_it_is_short_and_its_sections_stand_in_their_order() -> None:
    assert 300 < len(README.split()) <= 900
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 13
    assert max(map(len, (PROGRAM_OUTPUT + FLOW).splitlines())) <= WIDTH
    sections = ["Install", "In Python", "How it works", "Limits", "Next steps"]
    assert re.findall(r"^## (.+)$", README, re.MULTILINE) == sections


def test_the_program_prints_what_it_shows() -> None:
    assert stable(printed(PROGRAM, warm.python())) == stable(PROGRAM_OUTPUT)
    assert PROGRAM_OUTPUT.startswith("1 of 1 PASS\ntask 1: PASS (seen)\n")
    noise, other = "task 0:  PASS; $0.34, run ba9876543210, by claude-haiku-5-5", "task 0: FAIL"
    assert stable("task 0: PASS; $0.0012, run 0123456789ab, by gpt-6-luna") == stable(noise)
    assert stable("task 0: PASS") != stable(other)


def test_what_is_shown_is_replaced_where_other_models_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def printed(_: str) -> str:
        return PROGRAM_OUTPUT.rstrip("\n")

    monkeypatch.setattr(write_outputs, "printed", printed)
    (judge,) = re.findall(r"^- judge: (\S+)$", PROGRAM_OUTPUT, re.MULTILINE)
    assert write_outputs.with_outputs(README.replace(f"judge: {judge}", "judge: claude-haiku-5-5")) == README
    other_cost = README.replace("- spent: $0.00", "- spent: $9.00")
    assert write_outputs.with_outputs(other_cost) == other_cost != README


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


def test_the_start_page_links_to_every_page_of_the_documentation() -> None:
    assert re.search(r"\]\(\S*docs/index\.md\)", README)  # of a release, it is absolute
    linked = {link.partition("#")[0] for link in pages.links(pages.DOCS / "index.md")}
    assert {path.name for path in pages.DOCS.glob("*.md")} - linked == {"index.md"}
