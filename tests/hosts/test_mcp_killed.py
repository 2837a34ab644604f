"""`delegate mcp` is killed at random moments while a parent talks to its children."""

from pathlib import Path

import pytest

from tests.killed import servers
from tests.support.samples import sampled

pytest.importorskip("mcp.server.lowlevel")


@pytest.mark.parametrize("seed", sampled((4, 0, 2, 3, 5, 6, 8, 10, 11, 12), 2))
def test_whenever_the_server_is_killed_every_handle_answers_and_nothing_is_done_twice(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.play(servers.Mcp, tmp_path, seed, monkeypatch.setenv)
