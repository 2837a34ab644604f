"""A small local web for all tests of citations."""

from collections.abc import AsyncIterator

import pytest

from tests.support.web import Web, serving


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with serving() as found:
        yield found
