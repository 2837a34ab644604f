"""Roles as files: those of Claude Code and Codex are read as they are, and none can widen what a task may do."""

from pathlib import Path, PurePath

import pytest
from typer.testing import CliRunner

from delegate.cli.app import app
from delegate.policy.roles import Role, read_role
from delegate.policy.settings import load_settings
from delegate.policy.trust import is_protected, own_folder
from delegate.types.errors import ConfigError

CLAUDE = PurePath(".claude/agents/reviewer.md")
CODEX = PurePath(".codex/agents/reviewer.toml")


def markdown(*lines: str, body: str = "Read the diff.") -> str:
    return "\n".join(("---", *lines, "---", "", body, ""))


def test_a_file_of_claude_code_is_read_as_it_is() -> None:
    text = markdown(
        "name: reviewer",
        "description: Use it for reviews. Examples: user: review this",  # no YAML, because of its colons
        "tools: [Read, Grep, Bash, TodoWrite, mcp__web__search]",
        "model: haiku",
        "color: blue",
        "maxTurns: 12",
        body="Read the diff.\n---\nThen report.",
    )
    name, fields = read_role(CLAUDE, text)
    role = Role.model_validate(fields)
    assert (name, role.description) == ("reviewer", "Use it for reviews. Examples: user: review this")
    assert role.tools == ("read_file", "search_files", "run_shell", "web.search")
    assert (role.tier, role.model, role.max_steps) == ("fast", None, 12)
    assert role.instructions == "Read the diff.\n---\nThen report."


def test_a_file_of_codex_is_read_as_it_is() -> None:
    text = (
        'name = "reviewer"\ndescription = "Reviews."\nmodel = "gpt-6.1-terra"\nmodel_reasoning_effort = "high"\n'
        'sandbox_mode = "read-only"\ndeveloper_instructions = """\nRead the diff.\n"""\n'
    )
    role = Role.model_validate(read_role(CODEX, text)[1])
    assert (role.model, role.read_only, role.instructions) == ("gpt-6.1-terra", True, "Read the diff.\n")


def test_a_file_of_our_own_has_criteria_and_a_policy() -> None:
    text = markdown(
        "description: Fixes bugs.",
        "tools: [read_file, edit_file]",
        "tier: standard",
        'acceptance_criteria: ["shell: pytest -q", It explains the cause]',
        "policy: {undeclared_effect: deny}",
        "max_cost_usd: 0.5",
    )
    name, fields = read_role(PurePath("agents/fixer.md"), text)
    role = Role.model_validate(fields)
    assert (name, role.max_cost_usd, len(role.acceptance_criteria)) == ("fixer", 0.5, 2)
    assert role.policy is not None
    assert role.policy.undeclared_effect == "deny"


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("tools: Bash(git diff:*), Read", "tools", ("read_file",)),  # the pattern can't be kept
        ("disallowedTools: Bash(rm:*), Write", "without_tools", ("run_shell", "write_file")),
        ("tools: TodoWrite", "tools", ()),  # not: all
        ("permissionMode: plan", "read_only", True),
        ("tools: {bash: false, read_file: true}", "tools", ("read_file",)),
        ("name: Code Reviewer 👀", "description", "Reviews."),
        ("model: inherit", "model", None),
    ],
)
def test_what_cannot_be_kept_narrows(line: str, field: str, expected: object) -> None:
    name, fields = read_role(CLAUDE, markdown("description: Reviews.", line))
    assert (name, getattr(Role.model_validate(fields), field)) == ("reviewer", expected)


@pytest.mark.parametrize(
    "line",
    [
        "mcpServers: [evil]",
        "hooks: {PreToolUse: [{command: evil}]}",
        "base_url: https://evil.example/v1",
        "endpoint: evil",
        "env: [OPENAI_API_KEY]",
        "commands: allow",
        "network: open",
        "permissionMode: bypassPermissions",
        "sandbox_mode: danger-full-access",
    ],
)
def test_a_file_that_asks_for_more_is_refused(line: str) -> None:
    folder = own_folder() / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text(markdown("description: Reviews.", line))
    with pytest.raises(ConfigError, match=f"can't be read as a role: `{line.partition(':')[0]}` would give"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Only text.", "no front matter"),
        (
            markdown("description: a: b", "disallowedTools:", "  - Bash"),
            "mapping values",
        ),  # read by lines, it'd be lost
        (markdown("description: a: b", "tools : Read"), "mapping values"),
        (markdown("description: x", "1: x"), "isn't `name: value` lines"),
        (markdown("description: x", "tool: Read"), "did you mean `tools`"),
        (markdown("description: x", "tools: Read, Wirte"), "no tool `Wirte`; did you mean `Write`"),
        (markdown("description: x", "tools: [Read]", "tools: [Write]"), "the key 'tools' is there twice: line 3"),
        (markdown("description: a: b", "tools: Read", "tools: Write"), "mapping values"),
        (markdown("description: x", "max-steps: 3"), "did you mean `max_steps`"),
        (markdown("description: x", *(f"f{n}: 1" for n in range(100))), "more than 100 fields"),
        ("---\n- a\n---\n", "isn't `name: value` lines"),
        (markdown("name: x"), "roles.x.description"),
        (markdown("description: x", "tier: huge"), "roles.reviewer.tier"),
        (markdown("description: x", "model: [opus]"), "roles.reviewer.model"),
        (markdown("description: x", "max_steps: 0"), "roles.reviewer.max_steps"),
        (markdown("description: x", "acceptance_criteria: [{kind: nonsense}]"), "roles.reviewer.acceptance_criteria"),
        (markdown("description: x", body="x" * 60_000), "roles.reviewer.instructions"),
    ],
)
def test_a_file_that_is_wrong_names_its_field(text: str, why: str) -> None:
    folder = own_folder() / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert why in str(raised.value)
    assert "reviewer.md" in str(raised.value)


def test_the_operators_roles_count_and_a_repositorys_only_once_they_are_trusted() -> None:
    own, theirs = own_folder() / "agents", Path(".claude/agents")
    for folder, described in ((own, "mine"), (theirs, "theirs")):
        folder.mkdir(parents=True)
        (folder / "reviewer.md").write_text(markdown(f"description: {described}"))
    (theirs / "tester.md").write_text(markdown("description: tests"))
    assert {name: role.description for name, role in load_settings().roles.items()} == {"reviewer": "mine"}
    printed = CliRunner().invoke(app, ["trust", str(theirs)])
    assert printed.exit_code == 0, printed.output
    assert "the role tester has 14 characters of instructions" in printed.output
    assert {name: role.description for name, role in load_settings().roles.items()} == {
        "reviewer": "mine",  # a repository's doesn't replace it
        "tester": "tests",
    }
    assert is_protected((theirs / "tester.md").resolve())  # a child can't change it
    (theirs / "tester.md").write_text(markdown("description: evil"))
    assert list(load_settings().roles) == ["reviewer"]


def test_a_single_role_is_trusted_by_its_file() -> None:
    folder = Path(".codex/agents")
    folder.mkdir(parents=True)
    (folder / "reviewer.toml").write_text('description = "Reviews."\ndeveloper_instructions = "Read."\n')
    assert CliRunner().invoke(app, ["trust", ".codex/agents/reviewer.toml"]).exit_code == 0
    assert list(load_settings().roles) == ["reviewer"]


def test_a_repositorys_settings_file_declares_no_role_without_trust() -> None:
    Path("delegate.toml").write_text('[roles.reviewer]\ndescription = "Reviews."\n')
    with pytest.raises(ConfigError, match="roles"):
        load_settings()


def test_there_are_twenty_roles_at_most() -> None:
    with pytest.raises(ConfigError, match="roles"):
        load_settings(roles={f"role{n}": {"description": "x"} for n in range(21)})
