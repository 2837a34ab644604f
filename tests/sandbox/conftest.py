"""The folders of these tests are in /tmp, which sandboxes treat as no other folder."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Generator[Path]:
    """A folder that belongs to one test, and whose path has a part for the test alone, as pytest's has."""
    with tempfile.TemporaryDirectory(prefix="pytest-", dir="/tmp", ignore_cleanup_errors=True) as around:
        name = str(request.node.name)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        folder = Path(around).resolve() / name.partition("[")[0][:30]
        folder.mkdir()
        yield folder
