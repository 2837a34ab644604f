"""`delegate mcp` without the SDK, and its options; tests/hosts/test_mcp.py covers it with the SDK."""

from importlib.util import find_spec

import pytest

from tests.cli.command import delegate


@pytest.mark.skipif(find_spec("mcp") is not None, reason="the MCP SDK is installed")
def test_without_the_sdk_one_line_says_what_to_install() -> None:
    done = delegate("mcp")
    assert done.returncode == 2
    assert done.stdout == ""
    fix = "run `pip install '.[mcp]'` in a clone of delegate"
    assert done.stderr == f"delegate: `delegate mcp` needs the MCP SDK: {fix}\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_a_public_host_is_refused_without_reachable_as(host: str) -> None:
    done = delegate("mcp", "--http", "--host", host)
    assert done.returncode == 2
    assert "--reachable-as" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("token", ["short", "with a\nline break in it", "ümläuts-in-ä-tökën"])
def test_a_weak_or_unsendable_token_is_refused(token: str) -> None:
    done = delegate("mcp", "--http", DELEGATE_MCP_TOKEN=token)
    assert done.returncode == 2
    assert "DELEGATE_MCP_TOKEN" in done.stderr
    assert token not in done.stderr
