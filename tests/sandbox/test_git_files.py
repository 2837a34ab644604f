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
from delegate.sandbox.commands.commands import CommandResult, Commands
from delegate.sandbox.commands.confinement import CommandSpec, Mounts, in_bubblewrap
from delegate.sandbox.commands.launcher import landlock_is_available
from delegate.sandbox.tampering.git_files import Repository, without_credentials
from delegate.sandbox.workspace.folder import Folder
from delegate.testing import Scripted
from delegate.types import Workspace
from delegate.types.errors import ToolDenied
from tests.support.samples import sampled

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
    "a hook in a repository without the folder": "mkdir .git/hooks; printf '#!/bin/sh\\ntouch {0}\\n' > "
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
    marker, first = tmp_path / "ran", planted == "a hook in a repository without the folder"
    if first:
        shutil.rmtree(repository / ".git" / "hooks")
    ran = await run(commands, PLANTED[planted].format(marker), repository)
    assert not runs(repository, marker)
    assert not first or "undone, since git runs it outside the sandbox: .git/hooks/pre-commit (added)" in ran.stderr
    assert git(repository, "log", "--format=%s").splitlines()[-1] == "one"


async def test_a_child_can_still_use_git(commands: Commands, repository: Path) -> None:
    steps = (
        f"echo b > b.txt && git status --short && git add b.txt && {GIT} commit --quiet -m two",
        f"git switch -q -c topic && echo c >> a.txt && git diff --stat && {GIT} stash -q",
        f"git stash pop -q && git mv b.txt c.txt && {GIT} commit -qam three && git switch -q main",
        f"{GIT} merge -q topic && git tag v1 && git reset -q --hard HEAD~1 && git branch -D topic",
        "git log --oneline && git gc --quiet",
    )
    for step in steps:
        ran = await run(commands, step, repository)
        assert ran.exit_code == 0, (step, ran.output)
    assert git(repository, "log", "--format=%s").split() == ["two", "one"]
    assert git(repository, "tag").split() == ["v1"]


async def test_a_childs_own_repository_is_its_own(commands: Commands, tmp_path: Path, home: Path) -> None:
    folder = await Folder.open(None, home=home)
    shell = {tool.name: tool for tool in toolbox(folder, commands)}["run_shell"]
    for command in ("git init -q", "git config user.email a@example.com; git config user.name A",
                    "echo > x; git add x; git commit -qm one"):  # fmt: skip
        assert "exit code 0" in str(await shell.call({"command": command})), command
    assert git(folder.root, "config", "user.name") == "A\n"


async def test_submodules_are_protected_too(commands: Commands, repository: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    shutil.copytree(repository, inner)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "lib")
    git(repository, "commit", "--quiet", "--message=module")
    evil = f"git -C lib config core.fsmonitor 'touch {tmp_path / 'ran'}; false'"
    await run(commands, "ln -sf /x .git/modules/lib/logs/HEAD; ln -s /x .git/modules/lib/FETCH_HEAD", repository)
    assert [path for path in (repository / ".git").rglob("*") if path.is_symlink()] == []
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
    spec = CommandSpec(["true"], repository, {}, 5, 1_000, network="none")
    argv = in_bubblewrap(spec, Mounts(found.pinned, copies), "bwrap", 9)
    text, own = " ".join(argv), str(repository / ".git")
    order = [f"--bind {repository} {repository}", f"--bind {own} {own}", f"--ro-bind /tmp/copy {own}/config"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert f"--ro-bind {own}/hooks {own}/hooks" in text
    assert "--unshare-net" in argv


WITHOUT_NAMESPACES = """
import asyncio, json, sys
from pathlib import Path
from delegate.sandbox.commands.commands import Commands

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
    with Delegator(client=Scripted([call, "hello"]), commands="allow", sandbox="off") as delegator:
        verdict = delegator.run_sync(_hello(repository)).results[0].verdict
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
    async with Delegator(client=client, sandbox="require") as delegator:
        verdict = (await delegator.run(_hello(repository, kind))).results[0].verdict
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


GIT_WRITES = (
    "logs/HEAD", "COMMIT_EDITMSG", "FETCH_HEAD", "ORIG_HEAD", "index.lock", "refs/heads/x", "packed-refs", "shallow",
    "logs/refs/heads/objects/ab/x", "MERGE_MSG",
)  # fmt: skip


@pytest.mark.parametrize("written", sampled(GIT_WRITES))
async def test_no_link_in_a_git_folder_outlives_the_command(
    commands: Commands, repository: Path, tmp_path: Path, written: str
) -> None:
    outside = tmp_path / "bashrc"
    outside.write_text("before\n")
    link = f".git/{written}"
    ran = await run(commands, f"mkdir -p {Path(link).parent}; ln -sf {outside} {link}", repository)
    assert not os.path.lexists(repository / link)
    assert f"{link} (added, a link)" in ran.stderr
    for args in (("switch", "-c", "x'; touch code"), ("commit", "--allow-empty", "-m", "touch code"), ("gc",)):
        subprocess.run([*GIT.split(), *args], cwd=repository, capture_output=True)
    assert outside.read_text() == "before\n"


async def test_links_of_before_and_those_of_the_work_stay(commands: Commands, repository: Path) -> None:
    (repository / ".git" / "ours").symlink_to("HEAD")
    ran = await run(commands, "ln -s a.txt b.txt; mkfifo pipe; mkfifo .git/pipe; rm .git/ours", repository)
    assert os.readlink(repository / "b.txt") == "a.txt"
    assert os.readlink(repository / ".git" / "ours") == "HEAD"
    assert not (repository / ".git" / "pipe").exists()
    assert ".git/ours (deleted)" in ran.stderr


@pytest.mark.slow
async def test_more_links_than_one_round_looks_at_go_too(commands: Commands, repository: Path) -> None:
    await run(commands, "cd .git; for i in $(seq 2100); do echo l$i; done | xargs -I{} -P4 ln -s /x {}", repository)
    assert [path for path in (repository / ".git").iterdir() if path.is_symlink()] == []


def test_a_link_that_a_child_without_a_sandbox_left_is_removed_and_a_finding(repository: Path, home: Path) -> None:
    (repository / "old").mkdir()
    git(repository / "old", "init", "--quiet")
    command = "ln -sf ~/.bashrc .git/logs/HEAD; ln -s ~/.bashrc old/.git/COMMIT_EDITMSG"
    with Delegator(client=Scripted([Scripted.call("run_shell", command=command), "hello"]), commands="allow",
                   sandbox="off") as delegator:  # fmt: skip
        verdict = delegator.run_sync(_hello(repository)).results[0].verdict
    assert verdict
    message = verdict.findings[0].message
    assert ".git/logs/HEAD (a link, removed), old/.git/COMMIT_EDITMSG (a link, removed)" in message
    assert not os.path.lexists(repository / ".git" / "logs" / "HEAD")
    assert not os.path.lexists(repository / "old" / ".git" / "COMMIT_EDITMSG")


def _hello(workspace: Path, mode: Any = "shared") -> Task:
    criteria = [{"kind": "regex", "pattern": "hello"}]
    return Task(goal="Say hello.", workspace=Workspace(mode=mode, path=workspace), acceptance_criteria=criteria)


CONTINUED = {
    "rebase-merge": f"{GIT} -c sequence.editor='echo exec touch {{0}} >' rebase -i --root; echo; "
    "mkdir -p .git/rebase-merge; echo 'exec touch {0}' > .git/rebase-merge/git-rebase-todo",
    "sequencer": "mkdir .git/sequencer; echo 'exec touch {0}' > .git/sequencer/todo",
    "BISECT_NAMES": "echo '$(touch {0})' > .git/BISECT_NAMES",
    "rebase-apply": "mkdir .git/rebase-apply; echo x > .git/rebase-apply/patch",
}


@pytest.mark.parametrize("operation", CONTINUED)
async def test_what_git_would_continue_is_moved_aside(
    commands: Commands, repository: Path, tmp_path: Path, operation: str
) -> None:
    ran = await run(commands, CONTINUED[operation].format(tmp_path / "ran"), repository)
    assert f"{operation} (moved to .git/{operation}.undone-" in ran.stderr
    assert not (repository / ".git" / operation).exists()
    subprocess.run([*GIT.split(), "rebase", "--continue"], cwd=repository, capture_output=True)
    assert not (tmp_path / "ran").exists()


async def test_an_operation_within_one_command_is_nobodys_business(commands: Commands, repository: Path) -> None:
    for name in "bc":
        (repository / name).write_text(name)
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", f"--message={name}")
    for step in (f"{GIT} -c sequence.editor='sed -i s/^pick/reword/' -c core.editor=true rebase -qi HEAD~2",
                 f"{GIT} rebase -q --exec 'test -f a.txt' HEAD~2",
                 "git bisect start HEAD HEAD~2 && git bisect run sh -c '[ -f c ] && exit 1 || exit 0' && "
                 "git bisect reset"):  # fmt: skip
        ran = await run(commands, step, repository)
        assert (ran.exit_code, "undone" in ran.stderr) == (0, False), (step, ran.output)


async def test_a_persons_rebase_may_be_finished_but_not_changed(
    commands: Commands, repository: Path, tmp_path: Path
) -> None:
    editor = "sequence.editor=sed -i '1i break'"
    git(repository, "commit", "--quiet", "--allow-empty", "--message=two")
    git(repository, "-c", editor, "rebase", "-i", "HEAD~1")
    assert "undone" not in (await run(commands, "git status", repository)).stderr
    changed = await run(
        commands, f"echo 'exec touch {tmp_path / 'ran'}' >> .git/rebase-merge/git-rebase-todo", repository
    )
    assert ".git/rebase-merge (moved to" in changed.stderr
    git(repository, "switch", "--quiet", "main")
    git(repository, "-c", editor, "rebase", "-i", "HEAD~1")
    finished = await run(commands, f"{GIT} rebase --continue", repository)
    assert (finished.exit_code, "undone" in finished.stderr) == (0, False)
    assert not (repository / ".git" / "rebase-merge").exists()


NAMED = {
    "included configuration": ("include.path", "../.gitconfig", ".gitconfig"),
    "configuration that is included sometimes": ("includeIf.gitdir:/.path", "../.gitconfig", ".gitconfig"),
    "a folder with hooks": ("core.hooksPath", ".husky", ".husky/pre-commit"),
    "a folder with starters of hooks": ("core.hooksPath", ".husky/_", ".husky/pre-commit"),
    "a file monitor": ("core.fsmonitor", "./tools/monitor", "tools/monitor"),
    "a way to connect": ("core.sshCommand", "sh tools/ssh -v", "tools/ssh"),
    "a filter": ("filter.f.clean", "python3 'tools/clean.py' %f", "tools/clean.py"),
    "a driver": ("merge.m.driver", "tools/merge %O %A", "tools/merge"),
    "an alias": ("alias.go", "!tools/go", "tools/go"),
}


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("name", sampled(NAMED))
async def test_what_the_configuration_names_in_the_work_stays_as_it_is(
    commands: Commands, repository: Path, home: Path, name: str, exists: bool
) -> None:
    key, value, file = NAMED[name]
    git(repository, "config", key, value)
    path = repository / file
    if exists:
        path.parent.mkdir(exist_ok=True)
        path.write_text("ours")
    evil = f"mv {path.parent.name} old; mkdir -p {path.parent.name}; " if "/" in file else ""
    ran = await run(commands, f"{evil}echo theirs > {file}; echo work > b.txt", repository)
    assert (path.read_text() if path.exists() else "") == ("ours" if exists else "")
    assert f"{file} ({'changed' if exists else 'added'})" in ran.stderr
    assert (repository / "b.txt").read_text() == "work\n"
    folder = await Folder.open(Workspace(mode="shared", path=repository), home=home)
    with pytest.raises(ToolDenied, match="decides what git runs here"):
        folder.write(file, b"theirs")


async def test_an_alias_of_git_itself_names_nothing(commands: Commands, repository: Path) -> None:
    git(repository, "config", "alias.st", "status -- docs/x")
    git(repository, "config", "alias.b", "!make test")
    ran = await run(commands, "mkdir docs test; echo > docs/x; echo > test/x; echo > make", repository)
    assert "undone" not in ran.stderr


async def test_the_target_of_a_hook_that_is_a_link_stays_as_it_is(
    commands: Commands, repository: Path, tmp_path: Path
) -> None:
    hook = repository / "hook.sh"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    (repository / ".git" / "hooks" / "pre-commit").symlink_to("../../hook.sh")
    await run(commands, f"echo touch {tmp_path / 'ran'} >> hook.sh", repository)
    assert not runs(repository, tmp_path / "ran")
    assert hook.read_text() == "#!/bin/sh\n"


async def test_a_configuration_that_a_child_changes_names_nothing(commands: Commands, repository: Path) -> None:
    await run(commands, "git config include.path ../a.txt; rm -rf .git/config; echo > a.txt", repository)
    assert (repository / "a.txt").read_text() == "\n"


@pytest.mark.parametrize(
    "made", ["git clone -q --mirror . bare", "mkdir -p bare/objects bare/refs; echo x > bare/HEAD; echo > bare/config"]
)
async def test_a_bare_repository_in_a_folder_is_a_finding(repository: Path, home: Path, made: str) -> None:
    client = Scripted([Scripted.call("run_shell", command=made), "hello"])
    async with Delegator(client=client, sandbox="require") as delegator:
        verdict = (await delegator.run(_hello(repository))).results[0].verdict
    assert verdict
    (finding,) = verdict.findings
    assert (finding.code, "bare/config (added)" in finding.message) == ("git_changed", True)


async def test_bare_repositories_of_before_are_no_finding_until_they_change(repository: Path) -> None:
    git(repository, "clone", "--quiet", "--mirror", ".", "sub/fixture")
    before: Any = Repository.of(repository, nested=True)
    git(repository / "sub" / "fixture", "gc", "--quiet")
    assert before.changed_since() == {}
    git(repository / "sub" / "fixture", "config", "core.fsmonitor", "x")
    assert before.changed_since() == {repository / "sub" / "fixture" / "config": "changed"}
