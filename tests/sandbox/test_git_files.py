"""What git runs in a workspace: commands and tools of a child can't change it, and can still use git."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import delegate
from delegate import Delegator, Task
from delegate.child.toolbox import toolbox
from delegate.errors import ToolDenied
from delegate.sandbox import bubblewrap
from delegate.sandbox.commands import CommandResult, Commands
from delegate.sandbox.git_files import Repository, without_credentials
from delegate.sandbox.launcher import landlock_is_available
from delegate.sandbox.workspace import Folder
from delegate.testing import Scripted
from delegate.types import Workspace

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")

GIT = "git -c user.name=A -c user.email=a@example.com"


def git(cwd: Path, *args: str) -> str:
    argv = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com", *args)
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "work"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "a.txt").write_text("a\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=one")
    return root


@pytest.fixture
def repository(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "work", symlinks=True))


@pytest.fixture
def visible(repository: Path) -> Generator[Path]:
    """The repository in a folder that a sandbox doesn't hide, as it hides all of /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(shutil.copytree(repository, Path(folder, "work")))


@pytest.fixture
async def commands() -> Commands:
    found = Commands(sandbox="require")
    if await found.mechanism() is None:
        pytest.skip("no sandbox works here")
    return found


async def run(commands: Commands, command: str, cwd: Path) -> CommandResult:
    return await commands.run(command, cwd=cwd, timeout_seconds=20, author="model", has_repository=True)


def runs(cwd: Path, marker: Path) -> bool:
    """Whether git, used by a person in `cwd`, runs what a child planted."""
    (cwd / "a.txt").write_text("changed\n")
    for args in (("status",), ("diff",), ("add", "."), ("commit", "--quiet", "--allow-empty", "--message=x")):
        subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *args], cwd=cwd, capture_output=True
        )
    return marker.exists()


PLANTED = {
    "a hook": "printf '#!/bin/sh\\ntouch {0}\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "a hook in a new folder": "rm -rf .git/hooks; mkdir .git/hooks; printf '#!/bin/sh\\ntouch {0}\\n' > "
    ".git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "a file monitor": "git config core.fsmonitor 'touch {0}; false'",
    "an external diff": "printf '[diff]\\n\\texternal = touch {0}\\n' >> .git/config",
    "a filter": "git config filter.f.clean 'touch {0}; cat'; mkdir -p .git/info; echo '* filter=f' > "
    ".git/info/attributes; echo b > a.txt",
    "another common folder": 'cp -r .git /tmp/x 2>/dev/null || cp -r .git "$TMPDIR/x"; mkdir evil; cp -r .git/* evil/; '
    "printf '[core]\\n\\tfsmonitor = touch {0}; false\\n' >> evil/config; echo ../evil > .git/commondir",
    "another repository in its place": "mv .git old; cp -r old .git; git config core.fsmonitor 'touch {0}; false'",
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_what_a_command_plants_is_not_run_by_git(
    commands: Commands, repository: Path, tmp_path: Path, planted: str
) -> None:
    marker = tmp_path / "ran"
    await run(commands, PLANTED[planted].format(marker), repository)
    assert not runs(repository, marker)
    assert git(repository, "log", "--format=%s").splitlines()[-1] == "one"


async def test_a_repository_without_the_folder_for_hooks_gets_no_hook(
    commands: Commands, repository: Path, tmp_path: Path
) -> None:
    shutil.rmtree(repository / ".git" / "hooks")
    ran = await run(commands, "mkdir .git/hooks; " + PLANTED["a hook"].format(tmp_path / "ran"), repository)
    assert not runs(repository, tmp_path / "ran")
    assert "undone, since git runs it outside the sandbox: .git/hooks/pre-commit (added)" in ran.stderr


async def test_a_child_can_still_use_git(commands: Commands, repository: Path) -> None:
    steps = (
        "echo b > b.txt", "git status --short", "git add b.txt", f"{GIT} commit --quiet -m two",
        "git switch -q -c topic",
        "echo c >> a.txt", "git diff --stat", f"{GIT} stash -q", "git stash pop -q", "git mv b.txt c.txt",
        f"{GIT} commit -qam three", "git switch -q main", f"{GIT} merge -q topic", "git tag v1",
        "git reset -q --hard HEAD~1",
        "git branch -D topic 2>/dev/null || true", "git log --oneline", "git gc --quiet",
    )  # fmt: skip
    for step in steps:
        ran = await run(commands, step, repository)
        assert ran.exit_code == 0, (step, ran.output)
    assert git(repository, "log", "--format=%s").split() == ["two", "one"]
    assert git(repository, "tag").split() == ["v1"]


async def test_a_childs_own_repository_is_its_own(commands: Commands, tmp_path: Path, home: Path) -> None:
    folder = await Folder.open(None, home=home)
    shell = {tool.name: tool for tool in toolbox(folder, commands)}["run_shell"]
    for command in ("git init -q", "git config user.email a@example.com", "git config user.name A", "echo > x",
                    "git add x", "git commit -qm one"):  # fmt: skip
        assert "exit code 0" in str(await shell.call({"command": command})), command
    assert git(folder.root, "config", "user.name") == "A\n"


async def test_submodules_are_protected_too(commands: Commands, repository: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    shutil.copytree(repository, inner)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "lib")
    git(repository, "commit", "--quiet", "--message=module")
    evil = f"git -C lib config core.fsmonitor 'touch {tmp_path / 'ran'}; false'"
    await run(
        commands,
        f"{evil}; mv .git/modules/lib .git/modules/x; cp -r .git/modules/x .git/modules/lib; {evil}",
        repository,
    )
    assert not runs(repository, tmp_path / "ran")


async def test_the_pointer_of_a_worktree_stays(commands: Commands, visible: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(visible, "worktree", "add", "--quiet", str(other))
    before = (other / ".git").read_text()
    await run(commands, "git init -q evil; rm -f .git; echo 'gitdir: evil/.git' > .git; mv evil/.git .git", other)
    assert (other / ".git").read_text() == before
    assert (await run(commands, "git status --short", other)).exit_code == 0


async def test_a_git_folder_with_another_name_cannot_be_written(repository: Path, home: Path) -> None:
    git(repository, "init", "--quiet", "--separate-git-dir", str(repository / "data"))
    (repository / ".git").write_text("gitdir: data\n")
    folder = await Folder.open(Workspace(mode="shared", path=repository), home=home)
    with pytest.raises(ToolDenied, match="git"):
        folder.write("data/hooks/pre-commit", b"#!/bin/sh\n")
    folder.write("database/x", b"x")


SECRET = (
    '[remote "origin"]\n\turl = https://me:{0}@example.com/x.git\n[http]\n\textraheader = AUTHORIZATION: basic {0}\n'
)


@pytest.mark.parametrize("inside", ["the repository", "a worktree"])
async def test_passwords_in_gits_configuration_are_hidden(
    commands: Commands, visible: Path, tmp_path: Path, inside: str
) -> None:
    with (visible / ".git" / "config").open("a") as file:
        file.write(SECRET.format("canary"))
    cwd = visible if inside == "the repository" else tmp_path / "other"
    if inside == "a worktree":
        git(visible, "worktree", "add", "--quiet", str(cwd))
    ran = await run(commands, f"cat {visible}/.git/config; git config -l; git status --short", cwd)
    assert "canary" not in ran.output
    assert "example.com/x.git" in ran.output
    assert "canary" in (visible / ".git" / "config").read_text()


async def test_a_tool_shows_no_password_of_gits_configuration(commands: Commands, repository: Path, home: Path) -> None:
    with (repository / ".git" / "config").open("a") as file:
        file.write(SECRET.format("canary"))
    folder = await Folder.open(Workspace(mode="shared", path=repository), home=home)
    read = {tool.name: tool for tool in toolbox(folder, commands)}["read_file"]
    shown = str(await read.call({"path": ".git/config"}))
    assert "canary" not in shown
    assert "example.com/x.git" in shown


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        (b"url = https://me:pa@ss@example.com/x", b"url = https://example.com/x"),
        (b"url = https://ghp_token@example.com/x", b"url = https://example.com/x"),
        (b'[url "https://me:x@example.com/"]', b'[url "https://example.com/"]'),
        (b"[a]\n\tsmtpPass = x\n\tb = c", b"[a]\n\tsmtpPass = \n\tb = c"),
        (b"url = ssh://git@example.com/x", None),
        (b"url = git@example.com:me/x.git\n\temail = me@example.com", None),
    ],
)
def test_only_passwords_are_taken_out_of_a_configuration(line: bytes, cleaned: bytes | None) -> None:
    assert without_credentials(line) == cleaned


def test_bubblewrap_mounts_a_repositorys_configuration_read_only(repository: Path) -> None:
    found = Repository.of(repository)
    assert found is not None
    shown = dict.fromkeys(found.read_only)
    copies = {path: path for path in shown} | {repository / ".git" / "config": Path("/tmp/copy")}
    argv = bubblewrap.wrap(
        ["true"], bwrap="bwrap", cwd=repository, env={}, network="none", status_fd=9,
        pinned=found.pinned, read_only=copies,
    )  # fmt: skip
    text, own = " ".join(argv), str(repository / ".git")
    order = [f"--bind {repository} {repository}", f"--bind {own} {own}", f"--ro-bind /tmp/copy {own}/config"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert f"--ro-bind {own}/hooks {own}/hooks" in text
    assert "--unshare-net" in argv


WITHOUT_NAMESPACES = """
import asyncio, json, sys
from pathlib import Path
from delegate.sandbox.commands import Commands

async def main(commands):
    sandboxed = Commands(sandbox="require")
    for folder, command in commands.items():
        ran = await sandboxed.run(command, cwd=Path(folder), timeout_seconds=20, author="model", has_repository=True)
        print(json.dumps([folder, ran.sandbox, ran.output]))

asyncio.run(main(json.loads(sys.argv[1])))
"""


def test_without_namespaces_what_a_command_planted_is_undone(repository: Path, tmp_path: Path) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "/bin/sh", "-c", forbid, "sh"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode or not landlock_is_available():
        pytest.skip("needs namespaces, to forbid more of them, and Landlock")
    folders = {planted: tmp_path / f"{n}" for n, planted in enumerate(PLANTED)}
    markers = {planted: tmp_path / f"{n}-ran" for n, planted in enumerate(PLANTED)}
    for folder in folders.values():
        shutil.copytree(repository, folder)
    commands = {str(folder): PLANTED[planted].format(markers[planted]) for planted, folder in folders.items()}
    environment = os.environ | {"PYTHONPATH": str(Path(delegate.__file__).parent.parent)}
    program = [*argv, sys.executable, "-c", WITHOUT_NAMESPACES, json.dumps(commands)]
    done = subprocess.run(program, cwd=repository, env=environment, capture_output=True, text=True, timeout=50)
    ran = [json.loads(line) for line in done.stdout.splitlines()]
    assert [folder for folder, _, _ in ran] == list(commands), done.stderr
    # As root, bubblewrap needs no user namespaces, and prevents it in the first place.
    assert [folder for folder, sandbox, output in ran if sandbox != "bubblewrap" and "undone" not in output] == []
    assert [planted for planted, folder in folders.items() if runs(folder, markers[planted])] == []


def test_a_change_without_a_sandbox_is_a_finding(repository: Path, home: Path) -> None:
    call = Scripted.call("run_shell", command="echo '[alias]' >> .git/config; echo > .git/hooks/pre-push")
    task = Task(
        goal="Say hello.",
        workspace=Workspace(mode="shared", path=repository),
        acceptance_criteria=[{"kind": "regex", "pattern": "hello"}],
    )
    with Delegator(client=Scripted([call, "hello"]), commands="allow", sandbox="off") as delegator:
        verdict = delegator.run_sync(task).results[0].verdict
    assert verdict
    assert [(one.severity, one.code) for one in verdict.findings] == [("major", "git_changed")]
    assert ".git/config (changed), .git/hooks/pre-push (added)" in verdict.findings[0].message


async def test_two_commands_at_once_leave_the_repository_whole(commands: Commands, repository: Path) -> None:
    both = [run(commands, f"echo > {name}; git status; echo x >> .git/config", repository) for name in "bc"]
    assert all("Read-only" in ran.stderr or "undone" in ran.stderr for ran in await asyncio.gather(*both))
    assert "x\n" not in (repository / ".git" / "config").read_text()


@pytest.mark.parametrize("kind", ["shared", "copy"])
async def test_a_repository_in_a_folder_is_a_finding(
    commands: Commands, repository: Path, home: Path, kind: Any
) -> None:
    (repository / "old").mkdir()
    git(repository / "old", "init", "--quiet")
    command = "git init -q new; git -C old config core.fsmonitor x; git gc --quiet; mkdir -p other/node_modules"
    client = Scripted([Scripted.call("run_shell", command=command), "hello"])
    criteria = [{"kind": "regex", "pattern": "hello"}]
    task = Task(goal="x", workspace=Workspace(mode=kind, path=repository), acceptance_criteria=criteria)
    async with Delegator(client=client, sandbox="require") as delegator:
        verdict = (await delegator.run(task)).results[0].verdict
    assert verdict
    (finding,) = verdict.findings
    assert finding.code == "git_changed"
    for named in ("new/.git/config (added)", "old/.git/config (changed)"):
        assert named in finding.message


@pytest.mark.parametrize("link", [".git", ".git/hooks"])
async def test_a_link_of_the_repository_is_put_back(
    commands: Commands, repository: Path, tmp_path: Path, link: str
) -> None:
    (repository / link).rename(repository / "data")
    (repository / link).symlink_to(repository / "data")
    command = f"cp -r data evil; rm {link}; mv evil {link}; " + PLANTED["a hook"].format(tmp_path / "ran")
    await run(commands, command, repository)
    assert os.readlink(repository / link) == str(repository / "data")
    assert not runs(repository, tmp_path / "ran")


@pytest.mark.parametrize("broken", ["gitdir: \0", "gitdir: .git", "gitdir: .", "", "gitdir: " + "x/" * 3000])
def test_a_broken_pointer_is_no_error(tmp_path: Path, broken: str) -> None:
    (tmp_path / ".git").write_text(broken)
    found: Any = Repository.of(tmp_path)
    assert found.changed_since() == {}
