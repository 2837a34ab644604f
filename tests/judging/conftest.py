"""Commands of children and checks find a plain Python on their PATH."""

import os
from pathlib import Path

import pytest

from tests.support import plain_python


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_python.create(tmp_path_factory.mktemp("plain"))


@pytest.fixture(autouse=True)
def plain_python_on_path(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a script that looks for a Python either, as those of version managers are."""
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
