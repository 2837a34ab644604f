"""What files say of the tools of MCP servers, and whose files count."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delegate import ConfigError, Tool
from delegate.hosts.declarations import declared
from delegate.policy import trust

MINE = '[[tools]]\nname = "pay"\nacts = true\nidentifies = ["to"]\nsucceeded = { required = ["id"] }\n'


async def _never(args: Any) -> str:
    raise AssertionError("no tool is called")


def tool(name: str, *parameters: str, **fields: Any) -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": {key: {"type": "string"} for key in parameters}}
    return Tool(name, "", schema, _never, **fields)


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["create_issue", "mcp__github__create_issue", "github_create_issue", "gh.create_issue"]
)
def test_a_tool_of_a_common_server_is_known_by_its_name_and_parameters(name: str, folder: Path) -> None:
    known = declared(tool(name, "owner", "repo", "title", "body"))
    assert (known.acts, known.identifies) == (True, ("owner", "repo", "title"))


@pytest.mark.parametrize(
    "other", [tool("create_issue", "team", "title"), tool("recreate_issue", "owner", "repo", "title")]
)
def test_another_tool_of_a_like_name_is_not_meant(other: Tool, folder: Path) -> None:
    assert declared(other) == other


def test_what_the_tool_declares_itself_stays(folder: Path) -> None:
    known = declared(tool("create_issue", "owner", "repo", "title", acts=False, identifies=("title",)))
    assert (known.acts, known.identifies) == (False, ("title",))


@pytest.mark.parametrize(
    ("annotations", "acts"),
    [
        ({"readOnlyHint": False, "destructiveHint": False}, True),
        ({"readOnlyHint": False, "destructiveHint": True}, None),
        ({"readOnlyHint": False}, None),
        (None, None),
    ],
)
def test_annotations_say_that_a_tool_acts_if_it_only_adds_something(
    annotations: Any, acts: bool | None, folder: Path
) -> None:
    assert declared(tool("pay"), annotations).acts is acts


@pytest.mark.parametrize(
    ("annotations", "reaches_out"),
    [
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": True, "openWorldHint": None}, True),
        ({"readOnlyHint": True, "openWorldHint": True}, True),
        (SimpleNamespace(readOnlyHint=True, openWorldHint=True), True),
        ({"readOnlyHint": True, "openWorldHint": False}, False),
        (SimpleNamespace(readOnlyHint=True, openWorldHint=False), False),
    ],
)
def test_a_tool_that_reads_may_reach_others_unless_its_server_says_that_it_does_not(
    annotations: Any, reaches_out: bool, folder: Path
) -> None:
    known = declared(tool("web_search", read_only=True), annotations)
    assert (known.effects == frozenset({"network"})) is reaches_out
    assert known.read_only


def test_a_file_says_whether_a_tool_that_reads_reaches_others(folder: Path) -> None:
    trust.own_folder().mkdir(parents=True, exist_ok=True)
    said = '[[tools]]\nname = "find"\nopen_world = false\n[[tools]]\nname = "ask"\nopen_world = true\n'
    (trust.own_folder() / "tools.toml").write_text(said)
    reads = {"readOnlyHint": True}
    assert declared(tool("find", read_only=True), reads).effects is None
    assert declared(tool("ask", read_only=True), reads | {"openWorldHint": False}).effects == frozenset({"network"})
    assert declared(tool("find"), {"readOnlyHint": False}).effects is None
    assert [declared(tool("find"), {"readOnlyHint": hint}).read_only for hint in (True, False)] == [True, False]


def test_the_operators_own_file_counts(folder: Path) -> None:
    trust.own_folder().mkdir(parents=True, exist_ok=True)
    (trust.own_folder() / "tools.toml").write_text(MINE)
    known = declared(tool("pay", "to"))
    assert (known.acts, known.identifies, known.succeeded) == (True, ("to",), {"required": ["id"]})


def test_the_file_beside_delegate_config_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "tools.toml").write_text(MINE)
    monkeypatch.setenv("DELEGATE_CONFIG", str(folder / "conf" / "delegate.toml"))
    assert declared(tool("pay", "to")).acts is True


def test_a_file_of_the_working_folder_counts_only_while_it_is_trusted_as_it_is(folder: Path) -> None:
    (folder / "tools.toml").write_text(MINE)
    assert declared(tool("pay", "to")).acts is None
    trust.trust(trust.read(Path("tools.toml")))
    assert declared(tool("pay", "to")).acts is True
    (folder / "tools.toml").write_text(f"{MINE}# changed")
    assert declared(tool("pay", "to")).acts is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[tools", "can't be read as TOML"),
        ("tools = 3", r"begin each tool with \[\[tools\]\]"),
        ("[[tools]]\nacts = true", "a tool has no name"),
        ('[[tools]]\nname = "pay"\nact = true', "there is no field act"),
        ('[[tools]]\nname = "pay"\nacts = "yes"', "acts has a value of the wrong type"),
        ('[[tools]]\nname = "pay"\nopen_world = 1', "open_world has a value of the wrong type"),
        ('[[tools]]\nname = "pay"\nidentifies = "to"', "identifies has a value of the wrong type"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text: str, says: str, folder: Path) -> None:
    trust.own_folder().mkdir(parents=True, exist_ok=True)
    (trust.own_folder() / "tools.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        declared(tool("pay"))
