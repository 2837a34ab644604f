"""What holds in every test: no key in the environment, no connection off this machine, a home of its own."""

import ipaddress
import os
import re
import sys
from pathlib import Path

import pytest

_OURS = re.compile(r"(API_KEY|BASE_URL|_TOKEN)$|^(DELEGATE|OPENAI|ANTHROPIC|GEMINI|GOOGLE)_|_PROXY$", re.IGNORECASE)


def _refuse_the_world(event: str, args: tuple[object, ...]) -> None:
    """An audit hook: a test that reaches for an address off this machine fails, whatever library it uses."""
    if event != "socket.connect" or not isinstance(address := args[1], tuple):
        return
    host = str(address[0])  # pyright: ignore[reportUnknownArgumentType]
    if host != "localhost" and not ipaddress.ip_address(host.split("%")[0]).is_loopback:
        raise RuntimeError(f"a test tried to connect to {host}")


sys.addaudithook(_refuse_the_world)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has its own DELEGATE_HOME and working directory, and none of the developer's keys."""
    for name in list(os.environ):
        if _OURS.search(name):
            monkeypatch.delenv(name)
    folder, work = tmp_path / "home", tmp_path / "cwd"
    work.mkdir()
    monkeypatch.setenv("DELEGATE_HOME", str(folder))
    monkeypatch.chdir(work)
    return folder
