"""Which ordinary commands the sandboxes refuse."""

import sys
from pathlib import Path

import pytest

from delegate.cli.doctor.security.commands import MechanismUnderTest, mechanisms
from delegate.sandbox.commands.confinement import Confinement
from tests.sandbox.ordinary import COMMANDS, try_all

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "isolation.md"
REFUSED = {"tmux", "tsx", "Python's multiprocessing.Manager", "docker"}
"""Where namespaces are permitted: they need Unix sockets. Docker would be a way out of the sandbox."""
FEW = ("git add and commit", "files in /tmp", "find in /usr")
WITHOUT = MechanismUnderTest("process", Confinement(None, subreaper=True), "host")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's sandboxes")


async def _refused(*names: str) -> dict[str, set[str]]:
    """The commands that work without a sandbox and don't in one, by sandbox."""
    found = [one for one in await mechanisms() if one.confinement.sandbox is not None and not one.only_network]
    outside = await try_all(WITHOUT, names or tuple(COMMANDS))
    usable = [name for name, tried in outside.items() if tried.outcome == "works"]
    return {
        one.name: {name for name, tried in (await try_all(one, usable)).items() if tried.outcome != "works"}
        for one in found
        if one.network == "none"
    }


async def test_a_sandbox_lets_simple_commands_through() -> None:
    assert set().union(*(await _refused(*FEW)).values()) == set()


@pytest.mark.slow
@pytest.mark.more_cases
@pytest.mark.timeout(900)
async def test_a_sandbox_lets_all_ordinary_commands_through_but_those_that_the_page_names() -> None:
    refused = await _refused()
    assert {name: found - REFUSED for name, found in refused.items()} == {name: set[str]() for name in refused}
    page = PAGE.read_text(encoding="utf-8")
    named = (f"Of {len(COMMANDS)} ordinary commands", "`tmux`", "`docker`", "`tsx`", "`multiprocessing.Manager`")
    assert [words for words in named if words not in page] == []
