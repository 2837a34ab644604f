"""One browser for all tests of reports."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.browser import PROGRAM, Browser, chromium


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the browser before the checks of the first test that uses it, which would take it for left behind."""
    for item in items:
        names: list[str] = getattr(item, "fixturenames", [])
        if "browser" in names:
            names.remove("browser")
            names.insert(0, "browser")


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    if PROGRAM is None:
        pytest.skip("needs Debian's chromium (apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, chromium(Path(profile)) as running:
        yield running
