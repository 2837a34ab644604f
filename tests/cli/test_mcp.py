"""`delegate mcp`, as far as it goes without the SDK; with it, tests/hosts/test_mcp.py goes on."""

from importlib.util import find_spec

import pytest

from tests.cli.command import delegate


@pytest.mark.skipif(find_spec("mcp") is not None, reason="the MCP SDK is installed")
def test_without_the_sdk_it_says_in_one_line_what_to_install() -> None:
    done = delegate("mcp")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "delegate: `delegate mcp` needs the MCP SDK: pip install 'delegate-task[mcp]'\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_does_not_let_other_machines_in_unasked(host: str) -> None:
    done = delegate("mcp", "--http", "--host", host)
    assert done.returncode == 2
    assert "--reachable-as" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("token", ["short", "with a\nline break in it", "ümläuts-in-ä-tökën"])
def test_refuses_a_token_that_is_guessed_or_cannot_be_sent(token: str) -> None:
    done = delegate("mcp", "--http", DELEGATE_MCP_TOKEN=token)
    assert done.returncode == 2
    assert "DELEGATE_MCP_TOKEN" in done.stderr
    assert token not in done.stderr
