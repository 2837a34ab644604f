"""A settings file that came with a folder narrows what its operator allows; it widens it only once it is trusted."""

import os
from pathlib import Path
from typing import Any

import pytest

from delegate.models.providers._shared import CALL_SECONDS
from delegate.policy import trust
from delegate.policy.settings import Settings, load_settings
from delegate.sandbox.commands.confinement import CommandSpec, Mounts, in_bubblewrap
from delegate.sandbox.workspace.folder import Folder
from delegate.types import Workspace
from delegate.types.errors import ConfigError, ToolDenied
from tests.support.operator import MODEL, own_settings

ENDPOINT = '[[endpoints]]\nname = "x"\nbase_url = "http://x"\nmodels = [{id = "m", tier = "fast"}]\n'
WIDER = {
    "tool_name": 'tool_name = "bash"',
    "judge_model": 'judge_model = "gpt-6-luna"',
    "judge_looks": "judge_looks = 0",
    "judge_turns": "judge_turns = 0",
    "judge_page_tokens": "judge_page_tokens = 1_000",
    "criteria_per_call": "criteria_per_call = 1",
    "judge_accuracy": '[judge_accuracy]\n"gpt-6-luna" = 1.0',
    "max_concurrent": "max_concurrent = 4",
    "max_children": "max_children = 13",
    "max_depth": "max_depth = 2",
    "max_steps": "max_steps = 31",
    "max_workspace_mb": "max_workspace_mb = inf",
    "default_max_cost_usd": "default_max_cost_usd = inf",
    "timeout_seconds": "timeout_seconds = 601",
    "max_output_tokens": "max_output_tokens = 32_001",
    "gate": "gate = false",
    "sandbox": 'sandbox = "off"',
    "commands": 'commands = "allow"',
    "network": 'network = "open"',
    "fetch_hosts": 'fetch_hosts = ["169.254.169.254"]',
    "call_fields": 'call_fields = ["attempts"]',
    "merge_tool": "merge_tool = true",
    "result_chars": "result_chars = 1_000_000",
    "home": 'home = "."',
    "keep_days": "keep_days = 0.001",
    "keep_mb": "keep_mb = 0.001",
    "endpoints": ENDPOINT,
    "models": MODEL,
    "mcp_servers": '[mcp_servers.files]\ncommand = "npx"',
    "roles": '[roles.reviewer]\ndescription = "reviews"',
    "web_search": 'web_search = "provider"',
}
NARROWED = {
    "escalate": "escalate = true",
    "min_judge_accuracy": "min_judge_accuracy = 0.9",
    "max_false_pass": "max_false_pass = 0.05",
    "parent_tier": 'parent_tier = "fast"',
    "max_tier": 'max_tier = "fast"',
    "max_tokens": "max_tokens = 1_000",
    "max_cost_usd": "max_cost_usd = 1.5",
    "ask_above_usd": "ask_above_usd = 0.5",
    "parent_answer_seconds": "parent_answer_seconds = 30",
    "max_run_model_calls": "max_run_model_calls = 10",
    "max_run_tokens": "max_run_tokens = 1_000",
    "run_timeout_seconds": "run_timeout_seconds = 60",
    "call_timeout_seconds": "call_timeout_seconds = 60",
    "strict_checks": "strict_checks = true",
    "project_notes": "project_notes = false",
    "min_level": 'min_level = "seen"',
    "policy": 'policy = {irreversible = "ask", rules = [{decision = "deny", reason = "r"}]}',
}
"""What the operator's own file narrows; a folder's file may not undo it."""
WIDENED = {
    "escalate": "escalate = false",
    "min_judge_accuracy": "min_judge_accuracy = 0.1",
    "max_false_pass": "max_false_pass = 0.1",
    "parent_tier": 'parent_tier = "deep"',
    "max_tier": 'max_tier = "parent"',
    "max_tokens": "max_tokens = 1_001",
    "max_cost_usd": "max_cost_usd = inf",
    "ask_above_usd": "ask_above_usd = inf",
    "parent_answer_seconds": "parent_answer_seconds = 700",
    "max_run_model_calls": "max_run_model_calls = 11",
    "max_run_tokens": "max_run_tokens = 1_001",
    "run_timeout_seconds": "run_timeout_seconds = 61",
    "call_timeout_seconds": "call_timeout_seconds = inf",
    "strict_checks": "strict_checks = false",
    "project_notes": "project_notes = true",
    "min_level": 'min_level = "own_checks"',
    "policy": 'policy = {irreversible = "deny"}',
}


def folder_settings(toml: str) -> Path:
    """Write the file that a repository brought along."""
    Path("delegate.toml").write_text(toml, encoding="utf-8")
    return Path("delegate.toml").resolve()


def load() -> Settings:
    return load_settings({})


BY_DEFAULT = {
    "parent_tier": ('parent_tier = "deep"', 'parent_tier = "standard"'),
    "call_timeout_seconds": ("call_timeout_seconds = 1e308", "call_timeout_seconds = 180"),
    "min_level": (None, 'min_level = "trusted"'),
    "max_cost_usd": ("max_cost_usd = 5.5", "max_cost_usd = 5"),
    "ask_above_usd": (None, "ask_above_usd = 1e308"),
    "parent_answer_seconds": ("parent_answer_seconds = 601", "parent_answer_seconds = 600"),
    "max_tokens": (None, "max_tokens = 1_000_000_000"),
    "max_run_model_calls": (None, "max_run_model_calls = 1_000_000_000"),
    "max_run_tokens": (None, "max_run_tokens = 1_000_000_000"),
    "run_timeout_seconds": (None, "run_timeout_seconds = 1e308"),
    "min_judge_accuracy": (None, "min_judge_accuracy = 0.01"),
    "max_false_pass": (None, "max_false_pass = 0.99"),
    "max_tier": (None, 'max_tier = "parent"'),
    "escalate": (None, "escalate = false"),
    "strict_checks": (None, "strict_checks = false"),
    "project_notes": (None, "project_notes = true"),
    "policy": (None, "policy = {rules = []}"),
}
"""What has no limit by default, or another one than the setting says: a wider value, if any, and one that is not."""


@pytest.mark.parametrize("field", BY_DEFAULT)
def test_a_folders_file_is_compared_with_what_holds_without_it(field: str) -> None:
    wider, allowed = BY_DEFAULT[field]
    folder_settings(allowed)
    load()
    if wider is not None:
        folder_settings(wider)
        with pytest.raises(ConfigError, match=field):
            load()


def test_the_default_time_of_a_call_is_the_clients() -> None:
    assert trust.LEAST_CALL_SECONDS == CALL_SECONDS


def test_every_setting_is_decided_on() -> None:
    assert {*trust.FREE, *WIDER, *NARROWED} == set(Settings.model_fields)
    assert set(NARROWED) == set(WIDENED) == set(BY_DEFAULT)


@pytest.mark.parametrize("field", WIDER)
def test_a_folders_file_that_reaches_further_is_refused_until_trusted(field: str) -> None:
    path = folder_settings(WIDER[field])
    with pytest.raises(ConfigError) as refused:
        load()
    said = str(refused.value)
    assert f"{path} sets {field}, " in said
    assert f"`delegate trust {path}`" in said
    trust.trust(trust.read(path))
    assert field in load().model_fields_set


@pytest.mark.parametrize("field", WIDENED)
def test_a_folders_file_cannot_undo_what_the_operators_own_file_narrows(field: str) -> None:
    own_settings(NARROWED[field])
    folder_settings(WIDENED[field])
    with pytest.raises(ConfigError, match=f" sets {field}, "):
        load()


OWN_POLICY = 'irreversible = "ask", rules = [{decision = "ask", reason = "r", tools = ["send"]}]'


@pytest.mark.parametrize(
    ("own", "folder"),
    [
        ("", 'outside_scope = "allow"'),
        ("", "max_requests = 21"),
        ("", "answer_seconds = 601"),
        ('irreversible = "ask"', 'irreversible = "allow"'),
        (OWN_POLICY, 'irreversible = "ask"'),
        (OWN_POLICY, OWN_POLICY.replace("send", "*")),
    ],
)
def test_a_folders_policy_may_only_be_stricter(own: str, folder: str) -> None:
    own_settings(f"policy = {{{own}}}")
    folder_settings(f"policy = {{{folder}}}")
    with pytest.raises(ConfigError, match=" sets policy, "):
        load()


def test_a_folders_policy_may_add_rules_to_the_operators_own() -> None:
    own_settings(f"policy = {{{OWN_POLICY}}}")
    added = OWN_POLICY.replace("}]", '}, {decision = "deny", reason = "s"}]')
    folder_settings(f"policy = {{{added}}}")
    assert len(load().policy.rules) == 2


@pytest.mark.parametrize("field", [*WIDER, *NARROWED])
def test_what_the_operators_own_file_says_may_be_repeated(field: str) -> None:
    own_settings({**WIDER, **NARROWED}[field])
    folder_settings({**WIDER, **NARROWED}[field])
    assert field in load().model_fields_set


@pytest.mark.parametrize(
    "toml",
    [
        *NARROWED.values(),
        'commands = "deny"',
        'sandbox = "require"',
        "max_steps = 5\nmax_children = 0\nresult_chars = 900",
        "timeout_seconds = 30",
        'model = "gpt-6-luna"\ntier = "deep"\nmin_tier = "standard"\neffort = "high"',
        "fetch_hosts = []\nendpoints = []\nmodels = []",
        'max_tier = "parent-1"',
        'policy = {undeclared_effect = "deny", max_requests = 1}',
        "",
    ],
)
def test_a_folders_file_may_narrow_and_choose_without_trust(toml: str) -> None:
    folder_settings(toml)
    assert load().model_fields_set == {line.partition(" ")[0] for line in toml.splitlines()}


@pytest.mark.parametrize(
    ("own", "folders", "wider"),
    [
        ('fetch_hosts = ["a.test", "b.test"]', 'fetch_hosts = ["b.test"]', 'fetch_hosts = ["b.test", "c.test"]'),
        ("max_steps = 100", "max_steps = 100", "max_steps = 101"),
        ('web_search = "provider"', 'web_search = "off"', 'web_search = "x.search"'),
        ('web_search = "provider"', 'web_search = "provider"', 'web_search = "x.search"'),
    ],
)
def test_the_operators_own_may_be_narrowed_and_not_widened(own: str, folders: str, wider: str) -> None:
    field = own.partition(" ")[0]
    own_settings(own)
    folder_settings(folders)
    assert field in load().model_fields_set
    folder_settings(wider)
    with pytest.raises(ConfigError, match=f" sets {field}, "):
        load()


def test_a_folders_file_cannot_name_a_program_for_a_key() -> None:
    commanding = ENDPOINT.replace("models", 'key_command = "curl evil.test"\nmodels')
    own_settings(ENDPOINT)
    folder_settings(commanding)
    with pytest.raises(ConfigError, match="endpoints"):
        load()
    own_settings(commanding)
    assert load().endpoints[0].key_command == ("curl", "evil.test"), "it repeats what the operator says"


def test_all_fields_that_need_trust_are_named_at_once_and_no_others() -> None:
    folder_settings('max_steps = 5\ncommands = "allow"\ngate = false\n')
    with pytest.raises(ConfigError, match=" sets commands, gate, which"):
        load()


# --------------------------------------------------------------------------------------------- sources and their order


def test_the_own_file_is_outranked_by_the_folders_the_environment_and_arguments() -> None:
    own_settings('commands = "allow"\nmodel = "a"\nmax_steps = 4\ntier = "fast"\n')
    folder_settings('model = "b"\nmax_steps = 3\ntier = "standard"\n')
    settings = load_settings({"DELEGATE_MAX_STEPS": "2", "DELEGATE_TIER": "deep"}, tier="fast")
    assert (settings.commands, settings.model, settings.max_steps, settings.tier) == ("allow", "b", 2, "fast")


def test_a_named_file_counts_in_full_and_replaces_the_folders(tmp_path: Path) -> None:
    own_settings("max_steps = 4")
    folder_settings('commands = "allow"\n')
    (tmp_path / "named.toml").write_text('sandbox = "off"\n')
    settings = load_settings({"DELEGATE_CONFIG": str(tmp_path / "named.toml")})
    assert (settings.commands, settings.sandbox, settings.max_steps) == ("sandboxed", "off", 4)
    assert load_settings({"DELEGATE_CONFIG": os.devnull}).commands == "sandboxed"


def test_the_variables_and_arguments_are_the_operators_and_need_no_trust() -> None:
    settings = load_settings({"DELEGATE_COMMANDS": "allow"}, fetch_hosts=("a.test",), gate=False)
    assert (settings.commands, settings.fetch_hosts, settings.gate) == ("allow", ("a.test",), False)


def test_in_the_configuration_folder_itself_the_own_file_counts_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    own_settings('commands = "allow"')
    monkeypatch.chdir(trust.own_folder())
    assert load().commands == "allow"


def test_in_a_repository_the_nearest_file_above_counts_and_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer" / "repository" / "packages" / "one"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    (tmp_path / "outer" / "delegate.toml").write_text("max_steps = 1")
    (tmp_path / "outer" / "repository" / "delegate.toml").write_text("max_steps = 2")
    assert load_settings().max_steps > 2  # in no repository, only the working folder counts
    (tmp_path / "outer" / "repository" / ".git").mkdir()
    assert load_settings().max_steps == 2
    assert trust.is_protected(tmp_path / "outer" / "repository" / "delegate.toml")
    (inner / "delegate.toml").write_text("max_steps = 3")
    assert load_settings().max_steps == 3
    (inner / "delegate.toml").unlink()
    (tmp_path / "outer" / "repository" / "delegate.toml").write_text("max_steps = 1_000")
    with pytest.raises(ConfigError, match="trust"):
        load_settings()


@pytest.mark.parametrize(
    ("configuration", "user", "folder"), [(".", "/", "delegate"), (None, "relative", "relative/.config/delegate")]
)
def test_a_relative_configuration_folder_is_not_the_operators(
    monkeypatch: pytest.MonkeyPatch, configuration: str | None, user: str, folder: str
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    if configuration:
        monkeypatch.setenv("XDG_CONFIG_HOME", configuration)
    monkeypatch.setenv("HOME", user)
    Path(folder).mkdir(parents=True)
    Path(folder, "delegate.toml").write_text('commands = "allow"')
    assert load().commands == "sandboxed"


def test_a_pipe_or_huge_file_in_the_folder_is_refused_unread() -> None:
    os.mkfifo("delegate.toml")
    with pytest.raises(ConfigError, match="not a regular file"):
        load()
    Path("delegate.toml").unlink()
    folder_settings("#" * (trust.LARGEST_BYTES + 1))
    with pytest.raises(ConfigError, match="not a regular file of at most 1,000,000 bytes"):
        load()


# ------------------------------------------------------------------------------------------------------- what trust is


def test_any_change_of_a_trusted_file_ends_the_trust() -> None:
    path = folder_settings('commands = "allow"')
    trust.trust(trust.read(path))
    assert load().commands == "allow"
    folder_settings('commands = "allow" ')
    with pytest.raises(ConfigError, match="sets commands"):
        load()


def test_a_trusted_files_content_elsewhere_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.trust(trust.read(folder_settings('commands = "allow"')))
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "delegate.toml").write_text('commands = "allow"')
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "delegate.toml").symlink_to(Path("delegate.toml").resolve())
    for name in ("clone", "linked"):
        monkeypatch.chdir(tmp_path / name)
        with pytest.raises(ConfigError, match="sets commands"):
            load()


def test_trust_is_the_same_through_a_link_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_settings('commands = "allow"')
    (tmp_path / "link").symlink_to(path.parent)
    trust.trust(trust.read(tmp_path / "link"))
    assert load().commands == "allow"
    assert trust.revoke(path)
    with pytest.raises(ConfigError, match="sets commands"):
        load()


def test_a_damaged_list_of_trusted_files_is_an_error_that_names_it() -> None:
    folder_settings("max_steps = 5")
    trust.own_folder().mkdir(parents=True)
    (trust.own_folder() / "trusted.json").write_text("[")
    with pytest.raises(ConfigError, match=r"trusted\.json can't be read .*; correct or delete it"):
        load()


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MY_GATEWAY_API_KEY", "AZURE_OPENAI_API_KEY", "HF_API_TOKEN"])
def test_the_names_of_model_keys_are_known(name: str) -> None:
    assert trust.is_model_key(name)


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "GITHUB_API_KEY", "HOME", "SSH_AUTH_SOCK", "STRIPE_API_KEY", ""]
)
def test_other_secrets_are_not_model_keys(name: str) -> None:
    assert not trust.is_model_key(name)


# ------------------------------------------------------------------------------------------ what a child can't change


async def opened(mode: Any, path: Path, home: Path) -> Folder:
    return await Folder.open(Workspace(mode=mode, path=path), home=home)


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_child_cannot_write_the_settings_of_the_folder_delegate_runs_in(home: Path, trusted: bool) -> None:
    path = folder_settings('commands = "deny"')
    if trusted:
        trust.trust(trust.read(path))
    folder = await opened("shared", path.parent, home)
    with pytest.raises(ToolDenied, match="settings of delegate"):
        folder.write("delegate.toml", b'commands = "allow"')
    folder.write("other.toml", b"x")
    assert path.read_text() == 'commands = "deny"'
    await folder.close()


@pytest.mark.parametrize("mode", ["shared", "copy"])
async def test_a_child_cannot_write_a_trusted_file_or_its_copy(tmp_path: Path, home: Path, mode: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "delegate.toml").write_text('commands = "allow"')
    trust.trust(trust.read(project))
    folder = await opened(mode, project, home)
    with pytest.raises(ToolDenied, match="settings of delegate"):
        folder.write("delegate.toml", b"x")
    folder.write("sub/delegate.toml", b"a project of its own may have one")
    await folder.close()


async def test_a_child_cannot_write_the_operators_own_files(home: Path) -> None:
    own_settings("max_steps = 5")
    folder = await opened("shared", home.parent, home)
    for path in ("config/delegate/delegate.toml", "config/delegate/trusted.json", "config/delegate/new"):
        with pytest.raises(ToolDenied, match="settings of delegate"):
            folder.write(path, b"x")
    await folder.close()


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("config", ".", "delegate/new"),
        ("config/delegate", "other", "other/new"),
        ("cwd/delegate.toml", "other/Mine.toml", "other/mine.toml"),
        ("named.toml", "other/Mine.toml", "other/mine.toml"),
    ],
)
async def test_a_child_cannot_write_what_a_link_to_settings_leads_to(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, link: str, target: str, path: str
) -> None:
    work, links = tmp_path / "work", tmp_path / "links"
    work.mkdir()
    for folder in (links / "cwd", (links / link).parent):
        folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(links / "cwd")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(links / "config"))
    monkeypatch.setenv("DELEGATE_CONFIG", str(links / "named.toml"))
    (links / link).symlink_to(work / target)
    child = await opened("shared", work, home)
    with pytest.raises(ToolDenied, match="settings of delegate"):
        child.write(path, b"x")
    child.write("work/delegate.md", b"x")
    await child.close()


async def test_a_child_may_write_settings_where_none_are_trusted(home: Path) -> None:
    folder = await Folder.open(None, home=home)
    folder.write("delegate.toml", b'commands = "allow"')
    assert (folder.root / "delegate.toml").exists()
    await folder.close()


def command_line(cwd: Path) -> list[str]:
    """What starts a command in bubblewrap in this folder."""
    spec = CommandSpec(["true"], cwd, env={}, timeout_seconds=1, max_output_bytes=1)
    return in_bubblewrap(spec, Mounts((), {}), "bwrap", status_fd=3)


@pytest.mark.parametrize("exists", [True, False])
def test_commands_in_bubblewrap_do_not_see_or_create_the_operators_files(home: Path, exists: bool) -> None:
    if exists:
        own_settings("max_steps = 5")
    folder = home.parent.resolve()
    argv = command_line(folder)
    mounted = ["--bind", str(folder), str(folder)]
    covered = ["--tmpfs", str(trust.own_folder().resolve())]
    assert " ".join(mounted) in " ".join(argv)
    assert " ".join(covered) in " ".join(argv).partition(" ".join(mounted))[2]


def test_a_missing_configuration_outside_the_workspace_is_not_covered(home: Path) -> None:
    argv = command_line(home.parent / "cwd")
    assert str(trust.own_folder()) not in argv
