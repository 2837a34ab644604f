"""`delegate mcp install`: the block that a client needs, and how it is merged into the client's settings file."""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from delegate.cli.mcp_clients import CLIENTS, Launch, config
from tests.cli.command import delegate

PARSERS: dict[str, Any] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def installed(client: str, file: Path, **environment: str) -> Any:
    """Write the server into the file, and return what is in the file then."""
    done = delegate("mcp", "install", client, "--write", "--file", str(file), "--command", "delegate", **environment)
    assert done.returncode == 0, done.stderr
    return PARSERS[CLIENTS[client].format](file.read_text())


@pytest.mark.parametrize("client", CLIENTS)
def test_the_block_of_every_client_can_be_parsed(client: str) -> None:
    path, text = config(client, Launch("dele gate", ("mcp",), {"A": 'quote " and \\'}, ("OPENAI_API_KEY",)))
    assert path
    assert "dele gate" in json.dumps(PARSERS[CLIENTS[client].format](text))


@pytest.mark.parametrize("client", CLIENTS)
def test_the_printed_block_is_the_one_that_is_written(client: str, tmp_path: Path) -> None:
    printed = delegate("mcp", "install", client, "--command", "delegate")
    assert printed.returncode == 0
    parse, head = PARSERS[CLIENTS[client].format], CLIENTS[client].head
    assert installed(client, tmp_path / "new" / "settings") == parse(head + printed.stdout)


@pytest.mark.parametrize("client", CLIENTS)
def test_writing_it_twice_changes_nothing(client: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    assert installed(client, file) == installed(client, file)


@pytest.mark.parametrize("client", ["codex", "gemini", "cursor", "vscode"])
def test_a_keys_name_is_written_and_its_value_is_not(client: str) -> None:
    done = delegate("mcp", "install", client, OPENAI_API_KEY="sk-a-secret")
    assert "OPENAI_API_KEY" in done.stdout
    assert "sk-a-secret" not in done.stdout


def test_where_no_key_reaches_the_server_its_user_is_told() -> None:
    done = delegate("mcp", "install", "copilot", OPENAI_API_KEY="sk-a-secret")
    assert "write the keys themselves into its `env`" in done.stderr
    assert "sk-a-secret" not in done.stdout + done.stderr


def test_options_of_the_server_are_in_its_arguments() -> None:
    done = delegate("mcp", "install", "cursor", "--command", "delegate", "--", "--runner", "claude -p")
    assert json.loads(done.stdout)["mcpServers"]["delegate"]["args"] == ["mcp", "--runner", "claude -p"]


def test_a_json_file_keeps_all_else(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    old = {"theme": "dark", "mcpServers": {"other": {"command": "x"}, "delegate": {"command": "old"}}, "b": [1]}
    file.write_text(json.dumps(old))
    new = installed("gemini", file)
    assert new["mcpServers"].pop("delegate")["command"] == "delegate"
    del old["mcpServers"]["delegate"]  # type: ignore[attr-defined]
    assert new == old


CODEX = """\
model = "gpt-6.1-sol"  # the best

[mcp_servers.delegate]
command = "old"

[mcp_servers.delegate.env]
A = "b"

[mcp_servers.other]
command = "x"
"""


def test_a_toml_file_keeps_all_else_and_its_comments(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(CODEX)
    new = installed("codex", file)
    assert new["model"] == "gpt-6.1-sol"
    assert "# the best" in file.read_text()
    assert new["mcp_servers"]["other"] == {"command": "x"}
    assert new["mcp_servers"]["delegate"]["command"] == "delegate"
    assert "env" not in new["mcp_servers"]["delegate"]
    assert new["features"]["code_mode"]["direct_only_tool_namespaces"] == ["mcp__delegate"]


@pytest.mark.parametrize(
    "features", ["[features]\nshell_tool = true\n", "[features.code_mode]\nexcluded_tool_namespaces = []\n"]
)
def test_the_features_of_codex_are_kept(features: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(features)
    new = installed("codex", file)["features"]
    assert new["code_mode"].pop("direct_only_tool_namespaces") == ["mcp__delegate"]
    assert {name: value for name, value in new.items() if value} == {
        name: value
        for name, value in tomllib.loads(features)["features"].items()
        if name != "code_mode" or new["code_mode"]
    }


def test_a_list_of_codex_that_has_other_names_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[features]\ncode_mode = { direct_only_tool_namespaces = ["mcp__x"] } # mine\n')
    for _ in range(2):
        listed = installed("codex", file)["features"]["code_mode"]["direct_only_tool_namespaces"]
        assert listed == ["mcp__x", "mcp__delegate"]
    assert "# mine" in file.read_text()


@pytest.mark.parametrize("text", ["features = 1\n", "mcp_servers = 2\n", "[features]\ncode_mode = true\n"])
def test_a_toml_file_of_another_form_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    failed = delegate("mcp", "install", "codex", "--write", "--file", str(file))
    assert failed.returncode == 2
    assert "isn't an object in it" in failed.stderr
    assert file.read_text() == text


@pytest.mark.parametrize(
    "servers",
    [
        "mcpServers:\n  - name: other\n    command: x\n",
        "mcpServers:\n- name: other\n  command: x\n",
        "mcpServers:\n  - name: delegate\n    command: old\n    args: []\n  - name: other\n    command: x\n",
        "mcpServers: []\n",
        "",
    ],
)
def test_a_yaml_file_keeps_all_else_and_its_comments(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"name: Local # mine\n{servers}models:\n  - name: m\n")
    new = installed("continue", file)
    ours, *others = new["mcpServers"]
    assert ours["command"] == "delegate"
    assert others == ([{"name": "other", "command": "x"}] if "other" in servers else [])
    assert (new["name"], new["models"]) == ("Local", [{"name": "m"}])
    assert "# mine" in file.read_text()


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", '{"servers": {}, // mine\n}'),
        ("gemini", '{"mcpServers": []}'),
        ("gemini", "[]"),
        ("codex", "model = \n"),
        ("codex", "[features]\ncode_mode = true\n"),
        ("continue", "mcpServers: {a: 1\n"),
        ("continue", "mcpServers: [{name: other}]\n"),
        ("continue", "- a\n"),
    ],
)
def test_a_file_that_cannot_be_merged_stays_as_it_is(client: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(text)
    done = delegate("mcp", "install", client, "--write", "--file", str(file))
    assert done.returncode == 2
    assert "add this yourself" in done.stderr
    assert "mcp" in done.stderr
    assert file.read_text() == text


def test_the_old_text_is_kept_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    for text in ('{"a": 1}', '{"a": 2}'):
        file.write_text(text)
        file.chmod(0o600)
        installed("cursor", file)
    assert [(tmp_path / f"mcp.json.{n}.bak").read_text() for n in (1, 2)] == ['{"a": 1}', '{"a": 2}']
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    link = tmp_path / "mcp.json"
    link.symlink_to(tmp_path / "real.json")
    installed("cursor", link)
    assert link.is_symlink()
    assert "delegate" in (tmp_path / "real.json").read_text()


def test_a_link_at_the_place_of_the_new_file_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / ".mcp.json.new").symlink_to(tmp_path / "mine.txt")
    installed("cursor", tmp_path / "mcp.json")
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "mcp.json").is_symlink()


def test_an_unknown_client_is_refused_with_the_known_ones() -> None:
    done = delegate("mcp", "install", "emacs", COLUMNS="200")
    assert done.returncode == 2
    assert "there is no client 'emacs'" in done.stderr
    assert "codex" in done.stderr
