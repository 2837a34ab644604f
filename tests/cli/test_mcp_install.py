"""`delegate mcp install`: the block that a client needs, and how it is merged into the client's settings file."""

import json
import stat
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from delegate.cli.input import jsonc
from delegate.cli.input.client_settings import block
from delegate.cli.mcp_clients import CLIENTS, Launch
from tests.cli.command import delegate

PARSERS: dict[str, Any] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def installed(client: str, file: Path, **environment: str) -> Any:
    """Write the server into the file, and return what is in the file then."""
    done = delegate("mcp", "install", client, "--write", "--file", str(file), "--command", "delegate", **environment)
    assert done.returncode == 0, done.stderr
    return PARSERS[CLIENTS[client].format](file.read_text())


def test_the_block_of_every_client_can_be_parsed() -> None:
    for client in CLIENTS.values():
        text = block(client, Launch("dele gate", ("mcp",), {"A": 'quote " and \\'}, ("OPENAI_API_KEY",)))
        assert client.path
        assert "dele gate" in json.dumps(PARSERS[client.format](text))


@pytest.mark.parametrize("client", CLIENTS)
def test_the_printed_block_is_the_one_that_is_written(client: str, tmp_path: Path) -> None:
    printed = delegate("mcp", "install", client, "--command", "delegate")
    assert printed.returncode == 0
    parse, head = PARSERS[CLIENTS[client].format], CLIENTS[client].head
    assert installed(client, tmp_path / "new" / "settings") == parse(head + printed.stdout)


OLD = {
    "json": """{
  // the look
  "theme": "dark", /* mine */
  "mcpServers": {
    "other": { "command": "x", }, // theirs
  },
  "servers": {}, "mcp": {"z": {"enabled": true}}
}
""",
    "toml": """# all of mine
model = "m"  # the best
[mcp_servers.other]  # theirs
command = "x"
""",
    "yaml": "name: Local # mine\n",
}


COMMENTS = ("// the look", "/* mine */", "// theirs", "# all of mine", "# the best", "# theirs", "# mine")


@pytest.mark.parametrize("client", ["codex", "claude", "opencode", "continue", "vscode"])
def test_what_is_there_stays_and_a_second_time_changes_nothing(client: str, tmp_path: Path) -> None:
    file, form = tmp_path / "settings", CLIENTS[client].format
    old = OLD[form]
    file.write_text(old)
    loads = jsonc.loads if form == "json" else PARSERS[form]
    run = partial(delegate, "mcp", "install", client, "--file", str(file), "--command", "delegate")
    shown = run("--dry-run").stdout
    assert file.read_text() == old
    assert run("--write").returncode == 0
    new = file.read_text()
    added = [line[1:] for line in shown.splitlines()[2:] if line[0] == "+"]
    assert added
    assert set(added) <= set(new.splitlines())
    assert [one for one in COMMENTS if one in old and one not in new] == []
    again = run("--write")
    assert "nothing was changed" in again.stdout
    assert file.read_text() == new
    assert (tmp_path / "settings.bak").read_text() == old
    assert "nothing would change" in run("--dry-run").stdout
    if form == "yaml":
        assert "has to be changed by hand" in run("--remove").stderr
        return
    assert run("--remove").returncode == 0
    without = loads(file.read_text())
    emptied = {key: value for key, value in without.items() if loads(old).get(key) != value}
    assert "delegate" not in file.read_text().replace("mcp__delegate", "!")
    assert emptied in ({}, {"features": {"code_mode": {"direct_only_tool_namespaces": []}}})
    assert "nothing was changed" in run("--remove").stdout


MINE = {
    "codex": """[mcp_servers.delegate]
command = "old" # which?
args = ["mcp", "--runner", "claude -p"]
default_tools_approval_mode = "prompt"  # ask me
env = { MY = "1" }
""",
    "gemini": """{"mcpServers": {"delegate": {
  "command": "old", // which?
  "args": ["mcp", "--runner", "claude -p"],
  "trust": false, // ask me
  "env": {"MY": "1"}
}}}
""",
}


@pytest.mark.parametrize("client", MINE)
def test_of_an_entry_that_is_there_what_its_user_set_wins(client: str, tmp_path: Path) -> None:
    file, form = tmp_path / "settings", CLIENTS[client].format
    file.write_text(MINE[client])
    run = partial(
        delegate, "mcp", "install", client, "--write", "--file", str(file), "--command", "new", "--key", "MY_KEY"
    )

    def entry() -> Any:
        found = (jsonc.loads if form == "json" else PARSERS[form])(file.read_text())
        for key in CLIENTS[client].keys:
            found = found[key]
        return found

    assert run().returncode == 0
    first = entry()
    assert (first["command"], first["args"], first["env"]["MY"]) == ("new", ["mcp", "--runner", "claude -p"], "1")
    assert first.get("default_tools_approval_mode", "prompt") == "prompt"
    assert first.get("trust", False) is False
    assert [
        comment for comment in ("which?", "ask me") if comment in MINE[client] and comment not in file.read_text()
    ] == []
    assert run("--", "--answer-within", "5").returncode == 0
    assert entry()["args"] == ["mcp", "--answer-within", "5"]


def test_a_key_that_is_named_later_is_added(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    for names in (("A_KEY",), ("B_KEY", "A_KEY")):
        keys = [word for name in names for word in ("--key", name)]
        assert delegate("mcp", "install", "codex", "--write", "--file", str(file), *keys).returncode == 0
    assert tomllib.loads(file.read_text())["mcp_servers"]["delegate"]["env_vars"] == ["A_KEY", "B_KEY"]


def test_a_list_of_servers_in_one_line_is_kept_so(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('mcp_servers = { other = { command = "x" } } # mine\n')
    new = installed("codex", file)
    assert new["mcp_servers"]["other"] == {"command": "x"}
    assert new["mcp_servers"]["delegate"]["required"] is True
    assert "# mine" in file.read_text()


def test_the_line_that_spares_the_user_a_question_is_named() -> None:
    for client, key in (("codex", "default_tools_approval_mode"), ("gemini", "trust"), ("qwen", "trust")):
        assert f"with `{key}`, it doesn't ask its user" in delegate("mcp", "install", client).stderr
    assert "doesn't ask" not in delegate("mcp", "install", "cursor").stderr


def test_without_a_key_the_user_is_told_unless_a_program_is_the_child() -> None:
    assert "no key will reach the server" in delegate("mcp", "install", "codex").stderr
    assert "no key" not in delegate("mcp", "install", "codex", OPENAI_API_KEY="sk-a-secret").stderr
    assert "no key" not in delegate("mcp", "install", "codex", "--", "--runner", "claude -p").stderr


ODD = [
    "{}",
    "{\n}\n",
    '{ "a": 1 }',
    '{"a": 1}',
    "{ // c\n}",
    '{"a": 1,}',
    '{\n\t"a": 1 // c\n}',
    '{"a": 1 /* , } */ }',
    '{"a": "// }"}',
    '{\n  "a": {\n    "b": 1, // c,\n  },\n}',
    '// c\n{"a": {}}\n// d',
]


@pytest.mark.parametrize("text", ODD)
def test_a_json_text_of_any_form_keeps_its_rest(text: str) -> None:
    before = jsonc.loads(text)
    for keys in (("x",), ("x", "y", "z"), ("a",), ("a", "x")):
        if keys == ("a", "x") and not isinstance(before.get("a"), dict):
            continue
        new = jsonc.changed(text, keys, {"k": [1]})
        expected = json.loads(json.dumps(before))
        inside = expected
        for key in keys[:-1]:
            inside = inside.setdefault(key, {})
        inside[keys[-1]] = {"k": [1]}
        assert jsonc.loads(new) == expected
        assert jsonc.changed(new, keys, {"k": [1]}) == new
        kept = ("// c", "// d", "/* , } */") if keys != ("a",) else ()
        assert [word for word in kept if word in text and word not in new] == []
        del inside[keys[-1]]
        assert jsonc.loads(jsonc.changed(new, keys, None)) == expected
        assert jsonc.changed(text, ("none", "such"), None) == text


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


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", '{"servers": {} // mine\n'),
        ("gemini", '{"mcpServers": []}'),
        ("gemini", "[]"),
        ("codex", "model = \n"),
        ("codex", "[features]\ncode_mode = true\n"),
        ("codex", "mcp_servers = 2\n"),
        ("continue", "mcpServers: {a: 1\n"),
        ("continue", "mcpServers:\n  - name: other\n    command: x\n"),
        ("continue", "- a\n"),
    ],
)
def test_a_file_that_cannot_be_merged_stays_as_it_is(client: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(text)
    done = delegate("mcp", "install", client, "--write", "--file", str(file))
    assert done.returncode == 2
    assert "add by hand what this command prints without --write" in done.stderr
    assert file.read_text() == text


def test_the_old_text_is_kept_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    for text in ('{"a": 1}', '{"a": 2}'):
        file.write_text(text)
        file.chmod(0o600)
        installed("cursor", file)
        installed("cursor", file)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.bak")} == {"mcp.json.bak": '{"a": 2}'}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    link = tmp_path / "mcp.json"
    link.symlink_to(tmp_path / "real.json")
    installed("cursor", link)
    assert link.is_symlink()
    assert "delegate" in (tmp_path / "real.json").read_text()


@pytest.mark.parametrize("name", [".mcp.json.new", "mcp.json.bak"])
def test_a_link_at_the_place_of_a_new_file_leads_nowhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "mcp.json").write_text("{}")
    (tmp_path / name).symlink_to(tmp_path / "mine.txt")
    installed("cursor", tmp_path / "mcp.json")
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "mcp.json").is_symlink()
