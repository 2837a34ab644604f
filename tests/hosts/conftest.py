"""Frameworks are guests: what they warn of and what threads they keep is theirs; processes and workspaces are ours."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import leaks

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(autouse=True)
def nothing_is_left(
    request: pytest.FixtureRequest, home: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """No process and no workspace of ours outlives its test."""
    watch = leaks.Watch(home, scratch)
    yield
    left = watch.left_of_ours()
    leaks.end_children()
    if left:
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
async def no_task_is_left() -> None:
    """A framework's own tasks end when they end."""
