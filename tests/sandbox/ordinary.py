"""Ordinary commands of development, which a sandbox has to let through: each is tried in a small repository.

    python -m tests.sandbox.ordinary

prints how each ends under every sandbox that works here, and without one. What isn't installed is skipped.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from delegate.cli.doctor.security.commands import MechanismUnderTest, mechanisms
from delegate.sandbox.commands.confinement import CommandSpec, execute, shell
from delegate.sandbox.processes.environment import WITHOUT_NETWORK, command_environment
from delegate.sandbox.tampering.git_files import Repository
from delegate.types.errors import ToolError

SECONDS = 120.0
_GIT = "git -c user.name=A -c user.email=a@example.com"
_EDIT = f"git switch -q -c topic && echo b >> a.txt && {_GIT} commit -qam two && git switch -q main"
_PACKAGE = (
    'mkdir -p lib && echo \'{"name":"lib","version":"1.0.0","bin":"./run.js"}\' > lib/package.json && '
    "printf '#!/usr/bin/env node\\nconsole.log(1)\\n' > lib/run.js && chmod +x lib/run.js && "
    'echo \'{"name":"app","version":"1.0.0","scripts":{"test":"node -e 0"}}\' > package.json'
)
_C = "printf '#include <stdio.h>\\nint main(void) { puts(\"hello\"); return 0; }\\n' > hello.c"
_MAKE = "printf 'all: a b c\\na b c:\\n\\tsleep 0.1; touch $@\\n' > Makefile"
_SERVE = "python3 -m http.server --bind 127.0.0.1 8765 >/dev/null 2>&1 & "
_WAIT = "for i in $(seq 100); do curl -sf http://127.0.0.1:8765/a.txt && exit 0; sleep 0.1; done; exit 1"
_POSTGRES = (
    "PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | tail -1); initdb -D db -A trust >/dev/null && "
    "pg_ctl -D db -w -o '-p 8766 -c unix_socket_directories=' -l log start >/dev/null && "
    "psql -h 127.0.0.1 -p 8766 -d postgres -tc 'select 1' && pg_ctl -D db -w stop >/dev/null"
)
_NODE_SERVER = (
    'node -e \'const http = require("http"); const s = http.createServer((q, r) => r.end("hi")); '
    's.listen(0, "127.0.0.1", () => http.get({host: "127.0.0.1", port: s.address().port}, () => process.exit(0)))\''
)
_TLS = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 1 -subj /CN=localhost 2>/dev/null && "
    "{ openssl s_server -accept 127.0.0.1:8767 -key key -cert cert -quiet & } 2>/dev/null; for i in $(seq 50); do "
    "echo | openssl s_client -connect 127.0.0.1:8767 2>/dev/null | grep -q CONNECTED && exit 0; sleep 0.1; done; exit 1"
)
_CMAKE = (
    f"{_C} && printf 'cmake_minimum_required(VERSION 3.10)\\nproject(hello C)\\nenable_testing()\\n"
    "add_executable(hello hello.c)\\nadd_test(NAME hello COMMAND hello)\\n' > CMakeLists.txt && "
    "cmake -S . -B build >/dev/null && cmake --build build -j 2 >/dev/null && ctest --test-dir build"
)
_WHEEL = (
    "mkdir p-1.dist-info && echo 'x = 1' > p.py && : > p-1.dist-info/RECORD && "
    "printf 'Metadata-Version: 2.1\\nName: p\\nVersion: 1\\n' > p-1.dist-info/METADATA && "
    "printf 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n' > p-1.dist-info/WHEEL && "
    "python3 -m zipfile -c p-1-py3-none-any.whl p.py p-1.dist-info"
)
_PIP = (
    f"{_WHEEL} && python3 -m venv env && env/bin/pip install -q --no-index ./p-1*.whl && env/bin/python -c 'import p'"
)
_POOL = 'import multiprocessing as m; print(m.get_context("fork").Pool(2).map(abs, [-1, -2]))'
_MANAGER = "import multiprocessing as m; print(m.Manager().list([1]))"
_PTY = 'import pty; raise SystemExit(pty.spawn(["true"]))'
_SUBPROCESS = 'import asyncio; asyncio.run(asyncio.create_subprocess_shell("true"))'
_TEMPORARY = 'import tempfile, pathlib; pathlib.Path(tempfile.mkdtemp(), "x").write_text("x")'
_GO = "printf 'module x\\n' > go.mod && printf 'package x\\n' > x.go"
_UV = 'printf \'[project]\\nname = "x"\\nversion = "1"\\n\' > pyproject.toml'
_CRATE = "cargo init -q --vcs none --name hello crate"
_UNITTEST = "printf 'import unittest\\nclass A(unittest.TestCase):\\n  def test(self): pass\\n' > test_x.py"
_JAVA = "printf 'public class A { public static void main(String[] a) { System.out.println(1); } }\\n' > A.java"


class Ordinary(NamedTuple):
    """A command, and the programs that it needs besides those of every system."""

    command: str
    needs: Sequence[str] = ()


def _python(code: str) -> str:
    return f"python3 -c '{code}'"


COMMANDS: Mapping[str, Ordinary] = {
    "git status": Ordinary("git status --short"),
    "git add and commit": Ordinary(f"echo > new && git add new && {_GIT} commit -qm new"),
    "git commit --amend": Ordinary(f"{_GIT} commit -q --amend -m other"),
    "git switch": Ordinary("git switch -q -c topic && git switch -q main"),
    "git merge": Ordinary(f"{_EDIT} && {_GIT} merge -q topic"),
    "git rebase": Ordinary(f"{_EDIT} && git switch -q topic && {_GIT} rebase -q main"),
    "git cherry-pick": Ordinary(f"{_EDIT} && {_GIT} cherry-pick topic"),
    "git stash": Ordinary(f"echo b >> a.txt && {_GIT} stash -q && git stash pop -q"),
    "git gc": Ordinary("git gc --quiet"),
    "git branch -d": Ordinary("git branch topic && git branch -d topic"),
    "git tag": Ordinary("git tag v1 && git describe --tags"),
    "git worktree": Ordinary("git worktree add -q tree && cd tree && git status"),
    "git reset and restore": Ordinary("echo > a.txt && git restore a.txt && git reset -q --hard"),
    "git diff and apply": Ordinary("echo b >> a.txt && git diff > p && git checkout -q . && git apply p"),
    "git log, show and blame": Ordinary("git log -p && git show && git blame a.txt"),
    "git clone": Ordinary("git clone -q . clone"),
    "git bisect": Ordinary("git bisect start && git bisect bad && git bisect reset"),
    "git archive": Ordinary("git archive HEAD | tar t"),
    "python3": Ordinary("python3 -c 'print(1)'"),
    "python3 -m venv": Ordinary("python3 -m venv env && env/bin/python -m pip --version"),
    "pip install": Ordinary(_PIP),
    "pip list": Ordinary("python3 -m pip list"),
    "pytest": Ordinary("echo 'def test(tmp_path): (tmp_path / \"x\").touch()' > test_x.py && pytest -q", ("pytest",)),
    "python3 -m unittest": Ordinary(f"{_UNITTEST} && python3 -m unittest"),
    "python3 -m py_compile": Ordinary("echo > x.py && python3 -m py_compile x.py"),
    "a pool of Python processes": Ordinary(_python(_POOL)),
    "a Python subprocess": Ordinary(_python(_SUBPROCESS)),
    "Python's tempfile": Ordinary(_python(_TEMPORARY)),
    "Python's multiprocessing.Manager": Ordinary(_python(_MANAGER)),
    "Python's pty": Ordinary(_python(_PTY)),
    "node": Ordinary("node -e 'console.log(1)'", ("node",)),
    "node --test": Ordinary("echo 'require(\"node:test\")(\"x\", () => {})' > x.test.js && node --test", ("node",)),
    "a server and a client in node": Ordinary(_NODE_SERVER, ("node",)),
    "tsx": Ordinary("echo 'console.log(1)' > x.ts && tsx x.ts", ("tsx",)),
    "npm init": Ordinary("npm init -y", ("npm",)),
    "npm test": Ordinary(f"{_PACKAGE} && npm test", ("npm",)),
    "npm install of a folder": Ordinary(f"{_PACKAGE} && npm install --no-audit --no-fund ./lib", ("npm",)),
    "npx": Ordinary(f"{_PACKAGE} && npm install --no-audit --no-fund ./lib && npx lib", ("npx",)),
    "cargo build": Ordinary(f"{_CRATE} && cd crate && cargo build -q", ("cargo",)),
    "cargo test": Ordinary(f"{_CRATE} --lib && cd crate && cargo test -q", ("cargo",)),
    "rustc": Ordinary("echo 'fn main() {}' > x.rs && rustc x.rs && ./x", ("rustc",)),
    "go build": Ordinary("printf 'package main\\nfunc main() {}\\n' > x.go && go run x.go", ("go",)),
    "go vet and go test": Ordinary(f"{_GO} && go vet ./... && go test ./...", ("go",)),
    "uv run": Ordinary(f"{_UV} && uv run --python python3 python -c 'print(1)'", ("uv",)),
    "gcc": Ordinary(f"{_C} && gcc -O2 -Wall hello.c -o hello && ./hello", ("gcc",)),
    "gcc -fsanitize=address": Ordinary(f"{_C} && gcc -fsanitize=address,undefined hello.c -o x && ./x", ("gcc",)),
    "ar and a static library": Ordinary("echo 'int f;' > f.c && gcc -c f.c && ar rcs f.a f.o", ("gcc",)),
    "make": Ordinary(f"{_MAKE} && make", ("make",)),
    "make -j": Ordinary(f"{_MAKE} && make -j 4", ("make",)),
    "cmake and ctest": Ordinary(_CMAKE, ("cmake", "gcc")),
    "gdb": Ordinary(f"{_C} && gcc -g hello.c -o x && gdb -q -batch -ex run -ex bt ./x | grep -q hello", ("gdb", "gcc")),
    "strace": Ordinary("strace -f -o trace true && grep -q execve trace", ("strace",)),
    "valgrind": Ordinary("valgrind -q true", ("valgrind",)),
    "javac and java": Ordinary(f"{_JAVA} && javac A.java && java A", ("javac", "java")),
    "mvn": Ordinary("mvn -v", ("mvn",)),
    "perl": Ordinary("perl -e 'print fork ? 1 : 2'", ("perl",)),
    "tclsh": Ordinary("echo 'puts [exec echo 1]' | tclsh", ("tclsh",)),
    "awk, sed and sort": Ordinary("seq 100000 | awk '{print $1 % 7}' | sort -n | sed -n 1p"),
    "sqlite3": Ordinary("sqlite3 x.db 'create table t (a); insert into t values (1); select * from t'", ("sqlite3",)),
    "PostgreSQL": Ordinary(_POSTGRES, ("psql",)),
    "a server and curl": Ordinary(_SERVE + _WAIT, ("curl",)),
    "openssl with a server and a client": Ordinary(_TLS, ("openssl",)),
    "ssh-keygen": Ordinary("ssh-keygen -q -t ed25519 -N '' -f key", ("ssh-keygen",)),
    "a terminal by script": Ordinary("script -qec 'tty && stty size' /dev/null", ("script",)),
    "tmux": Ordinary("tmux -L own new-session -d 'sleep 5' && tmux -L own kill-server", ("tmux",)),
    "ls / and ls ~": Ordinary("ls / && ls ~"),
    "files in /tmp": Ordinary("f=$(mktemp) && echo x > $f && d=$(mktemp -d) && cp $f $d && rm -r $f $d"),
    "tar and gzip": Ordinary("tar czf x.tgz a.txt && mkdir out && tar xzf x.tgz -C out"),
    "zip and unzip": Ordinary("zip -q x.zip a.txt && unzip -p x.zip", ("zip", "unzip")),
    "rsync": Ordinary("mkdir from && cp a.txt from && rsync -a from/ to/", ("rsync",)),
    "cp -a and chmod": Ordinary("cp -a .git copy && chmod -R u+rwX copy && touch -d 2020-01-01 copy && ln a.txt b"),
    "install": Ordinary("install -D -m 755 a.txt bin/a", ("install",)),
    "find -exec": Ordinary("find . -type f -exec sha256sum {} +"),
    "find in /usr": Ordinary("find /usr/include /usr/bin -name 'std*' | head"),
    "xargs -P": Ordinary("seq 20 | xargs -P 4 -n 1 echo"),
    "diff and patch": Ordinary("sed s/a/b/ a.txt > b; diff -u a.txt b > p; patch -s a.txt p", ("patch",)),
    "jq": Ordinary("echo '{\"a\": 1}' | jq .a", ("jq",)),
    "background jobs": Ordinary("sleep 0.1 & kill -0 $! && wait $! && (trap 'exit 0' TERM; kill $BASHPID; exit 1)"),
    "timeout, nice and nohup": Ordinary("timeout 5 nice -n 5 nohup true"),
    "ps and top": Ordinary("ps aux && top -b -n 1 | head -3", ("ps", "top")),
    "flock": Ordinary("flock lock true", ("flock",)),
    "a named pipe": Ordinary("mkfifo p && (echo x > p &) && cat p"),
    "df, du and free": Ordinary("df -h . && du -sh . && free", ("free",)),
    "ss and ip": Ordinary("ss -ltn && ip addr", ("ss", "ip")),
    "docker": Ordinary("docker ps", ("docker",)),
}  # fmt: skip


class Tried(NamedTuple):
    """How a command ended under one mechanism: `works`, `fails`, or `missing` if a program isn't installed."""

    outcome: str
    said: str


async def try_all(mechanism: MechanismUnderTest, names: Sequence[str] = tuple(COMMANDS)) -> dict[str, Tried]:
    """Try these commands under one mechanism."""
    return {name: await _try(COMMANDS[name], mechanism) for name in names}


async def _try(ordinary: Ordinary, mechanism: MechanismUnderTest) -> Tried:
    if missing := [program for program in ordinary.needs if shutil.which(program) is None]:
        return Tried("missing", f"{missing[0]} is not installed")
    async with _workspace() as work:
        environment = command_environment(os.environ | {"TMPDIR": str(work.parent)})  # without a sandbox it counts
        spec = CommandSpec(
            argv=shell(ordinary.command),
            cwd=work,
            env=environment | (WITHOUT_NETWORK if mechanism.network == "none" else {}),
            timeout_seconds=SECONDS,
            max_output_bytes=4_000,
            network=mechanism.network,
            repository=Repository.of(work),
        )
        try:
            done = await execute(spec, mechanism.confinement)
        except ToolError as failed:
            return Tried("fails", str(failed))
    return Tried("works" if done.exit_code == 0 else "fails", (done.stdout + done.stderr).strip()[-300:])


@asynccontextmanager
async def _workspace() -> AsyncGenerator[Path]:
    """A repository with one commit, outside /tmp."""
    with tempfile.TemporaryDirectory(prefix="delegate-ordinary-", dir="/var/tmp") as folder:
        (work := Path(folder, "work")).mkdir()
        (work / "a.txt").write_text("a\n")
        for line in ("git init -q -b main", "git add a.txt", f"{_GIT} commit -qm one"):
            subprocess.run(line.split(), cwd=work, check=True, stdin=subprocess.DEVNULL)
        yield work


async def _main() -> None:
    for mechanism in await mechanisms():
        if not mechanism.only_network:
            tried = await try_all(mechanism)
            counts = {one: sum(it.outcome == one for it in tried.values()) for one in ("works", "fails", "missing")}
            print(mechanism.name, counts)
            print(*(f"  {name}: {it.said}" for name, it in tried.items() if it.outcome == "fails"), sep="\n")


if __name__ == "__main__":
    asyncio.run(_main())
