"""The setting `mcp_servers`: what it may say, whose word it is, and that nothing is loaded without it."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delegate import CallError, Delegator, Task
from delegate.cli.app import app
from delegate.policy.mcp_servers import McpServer, read_mcp_json
from delegate.policy.settings import load_settings
from delegate.policy.trust import is_protected
from delegate.testing import Scripted
from delegate.types import JsonObject
from delegate.types.errors import ConfigError

FILES = {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "${FILES_TOKEN}", "MODE": "${MODE:-ro}"}}
MCP_JSON = {"mcpServers": {"files": FILES, "web": {"type": "http", "url": "https://example.com/mcp"}}}


def test_a_settings_file_declares_servers() -> None:
    Path("delegate.toml").write_text('[mcp_servers.files]\ncommand = "npx"\nenv = ["FILES_TOKEN"]\nread_only = "all"\n')
    assert CliRunner().invoke(app, ["trust"]).exit_code == 0
    server = load_settings().mcp_servers["files"]
    assert (server.command, server.env, server.read_only) == ("npx", {"FILES_TOKEN": "${FILES_TOKEN}"}, "all")
    assert server.variables == {"FILES_TOKEN"}


def test_the_environment_of_a_server_is_filled_from_the_variables_that_it_names() -> None:
    server = McpServer.model_validate(FILES)
    assert server.environment({"FILES_TOKEN": "x", "OTHER": "y"}) == {"TOKEN": "x", "MODE": "ro"}
    with pytest.raises(KeyError, match="FILES_TOKEN"):
        server.environment({})


@pytest.mark.parametrize(
    ("name", "fields", "where", "fix"),
    [
        ("files", {}, "mcp_servers.files", "name its `command`"),
        ("files", {"command": "x", "url": "http://localhost"}, "mcp_servers.files", "name its `command`"),
        ("files", {"command": "x", "token_env": "A"}, "mcp_servers.files", "use `env`"),
        ("files", {"url": "http://localhost", "env": ["A"]}, "mcp_servers.files", "`args` and `env` are for"),
        ("files", {"url": "file:///etc"}, "mcp_servers.files.url", "https?"),
        ("files", {"command": "x", "readonly": "all"}, "mcp_servers.files.readonly", "read_only"),
        ("files", {"command": "x", "timeout_seconds": 0}, "mcp_servers.files.timeout_seconds", "greater than 0"),
        ("a__b", {"command": "x"}, "mcp_servers.a__b", "match"),
        ("a_", {"command": "x"}, "mcp_servers.a_", "match"),
        ("x" * 31, {"command": "x"}, "mcp_servers.", "30"),
    ],
)
def test_a_wrong_declaration_names_its_field_and_the_fix(name: str, fields: JsonObject, where: str, fix: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(mcp_servers={name: fields})
    assert where in str(raised.value)
    assert fix in str(raised.value)


def test_a_repositorys_settings_file_starts_no_server_without_trust() -> None:
    Path("delegate.toml").write_text('[mcp_servers.files]\ncommand = "npx"\n')
    with pytest.raises(ConfigError, match="mcp_servers"):
        load_settings()


def test_a_repositorys_mcp_json_is_read_only_once_it_is_trusted() -> None:
    file = Path(".mcp.json")
    file.write_text(json.dumps(MCP_JSON))
    assert load_settings().mcp_servers == {}
    printed = CliRunner().invoke(app, ["trust", ".mcp.json"])
    assert printed.exit_code == 0, printed.output
    assert "files is `npx -y files`, which runs outside of any sandbox; it gets $FILES_TOKEN, $MODE" in printed.output
    assert set(load_settings().mcp_servers) == {"files", "web"}
    assert is_protected(file.resolve())  # a child can't change it
    file.write_text(json.dumps({"mcpServers": {"files": {"command": "evil"}}}))
    assert load_settings().mcp_servers == {}


def test_a_mcp_json_adds_to_the_operators_servers_and_replaces_none_of_another_name() -> None:
    Path(".mcp.json").write_text(json.dumps(MCP_JSON))
    assert CliRunner().invoke(app, ["trust", ".mcp.json"]).exit_code == 0
    assert set(load_settings(mcp_servers={"own": {"command": "x"}}).mcp_servers) == {"own"}
    Path("delegate.toml").write_text('[mcp_servers.own]\ncommand = "x"\n')
    assert CliRunner().invoke(app, ["trust"]).exit_code == 0
    assert set(load_settings().mcp_servers) == {"files", "web", "own"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("[]", "no object `mcpServers`"),
        ('{"mcpServers": {"a": {"command": "x", "headers": {}}}}', "mcpServers.a: `headers` isn't supported"),
        ("{", "Expecting"),
    ],
)
def test_a_mcp_json_that_cannot_be_used_is_not_trusted(document: str, why: str) -> None:
    Path(".mcp.json").write_text(document)
    result = CliRunner().invoke(app, ["trust", ".mcp.json"])
    assert result.exit_code != 0
    assert why in str(result.exception or "") + result.output


def test_delegate_itself_is_no_server_of_its_children() -> None:
    assert read_mcp_json('{"mcpServers": {"delegate": {"command": "/usr/bin/delegate", "args": ["mcp"]}}}') == {}


def test_without_servers_nothing_of_them_is_loaded() -> None:
    code = (
        "import sys, asyncio\nfrom delegate import Delegator, Task\nfrom delegate.testing import Scripted\n"
        "asyncio.run(Delegator(client=Scripted(['done'])).run(Task(goal='x')))\n"
        "print(sorted(name for name in sys.modules if name == 'mcp' or 'child.mcp' in name))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.skipif(find_spec("mcp") is not None, reason="the SDK is installed here")
async def test_a_server_without_the_sdk_says_what_to_install() -> None:
    async with Delegator(client=Scripted([]), mcp_servers={"files": {"command": "x"}}) as delegator:
        with pytest.raises(CallError, match=re.escape("pip install 'delegate-task[mcp]'")) as refused:
            await delegator.run(Task(goal="Look."))
    assert refused.value.code == "mcp_server"
