"""The filter of system calls: its numbers, its decisions on every machine, and what it does to real programs."""

import errno
import os
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.sandbox.commands import system_calls
from delegate.sandbox.commands.commands import SANDBOXES
from delegate.sandbox.commands.confinement import CommandSpec, Confinement, execute, shell, works
from delegate.sandbox.commands.system_calls import (
    BY_ARGUMENTS,
    DENIED,
    MISSING,
    SHARED_MEMORY_AND_QUEUES,
    system_call_filter,
)
from delegate.sandbox.processes.environment import command_environment
from delegate.sandbox.processes.process import ProcessResult

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
ALLOW, KILL = 0x7FFF0000, 0x80000000


def decide(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel does with a call by this filter: an errno, 0 if it is allowed, -1 if the process is killed."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        code, true, false, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                value = int(struct.unpack_from("=I", data, operand)[0])
            case 0x54:
                value &= operand
            case 0x06:
                return {ALLOW: 0, KILL: -1}.get(operand, operand & 0xFFFF)
            case _:
                truth = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand != 0}[code]
                at += true if truth else false


class Filter:
    def __init__(self, machine: str, sockets: tuple[int, ...] = (), *, own: bool = True) -> None:
        self.machine, self.place = machine, list(MACHINES).index(machine)
        self.program = system_call_filter(machine=machine, sockets=sockets, own_processes=own, own_queues=own)

    def __call__(self, name: str, *arguments: int) -> int:
        lists = {**DENIED, **MISSING, **SHARED_MEMORY_AND_QUEUES, **BY_ARGUMENTS}
        number = lists[name][self.place]
        assert number is not None
        return decide(self.program, MACHINES[self.machine], number, *arguments)


@pytest.fixture(params=list(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = Path("/usr/include", HEADERS[machine])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    known = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    place = list(MACHINES).index(machine)
    lists = {**DENIED, **MISSING, **SHARED_MEMORY_AND_QUEUES, **BY_ARGUMENTS}
    assert [(n, numbers[place]) for n, numbers in lists.items() if n in known and numbers[place] != known[n]] == []
    later = {"fchmodat2", "lsm_get_self_attr", "lsm_list_modules", "lsm_set_self_attr"}  # than some headers
    missing = {n for n, numbers in lists.items() if numbers[place] is not None and n not in known}
    assert missing <= later


def test_other_architectures_are_killed_and_unknown_calls_are_missing(machine: str) -> None:
    calls = Filter(machine)
    assert decide(calls.program, I386, 4) == -1, "its numbers mean other calls"
    assert decide(calls.program, MACHINES[machine], system_calls.NEWEST) == 0
    assert decide(calls.program, MACHINES[machine], system_calls.NEWEST + 1) == errno.ENOSYS
    assert decide(calls.program, MACHINES[machine], 0x40000000 + 41) == errno.ENOSYS, "x32"
    for name in MISSING:
        assert calls(name) == errno.ENOSYS
    for name, numbers in DENIED.items():
        assert numbers[calls.place] is None or calls(name) == errno.EPERM


def test_no_file_becomes_setuid_or_setgid(machine: str) -> None:
    calls = Filter(machine)
    for mode, expected in ((0o755, 0), (0o1777, 0), (0o4755, errno.EPERM), (0o2755, errno.EPERM)):
        assert calls("fchmod", 3, mode) == expected
        assert calls("fchmodat", 3, 0, mode) == calls("fchmodat2", 3, 0, mode, 0) == expected
        assert calls("openat", 3, 0, os.O_CREAT | os.O_WRONLY, mode) == expected
        assert calls("openat", 3, 0, os.O_TMPFILE | os.O_WRONLY, mode) == expected
        assert calls("mknodat", 3, 0, mode, 0) == expected
    assert calls("openat", 3, 0, os.O_RDONLY, 0o7777) == 0, "without a new file, the mode is anything"
    if machine == "x86_64":
        assert calls("chmod", 0, 0o4755) == calls("creat", 0, 0o4755) == errno.EPERM
        assert calls("open", 0, os.O_CREAT, 0o6755) == calls("mknod", 0, 0o4755) == errno.EPERM
        assert calls("open", 0, os.O_RDONLY, 0o6755) == calls("open", 0, os.O_CREAT, 0o644) == 0


def test_other_processes_can_be_changed_only_where_all_are_the_commands(machine: str) -> None:
    own, shared = Filter(machine), Filter(machine, own=False)
    for name in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setscheduler", "sched_setparam"):
        assert own(name, 1234) == 0
        assert (shared(name, 0), shared(name, 1234)) == (0, errno.EPERM)
    for name, own_process, all_of_a_user in (("setpriority", 0, 2), ("ioprio_set", 1, 3)):
        assert own(name, own_process, 1234) == 0
        assert shared(name, own_process, 0) == 0
        assert shared(name, own_process, 1234) == shared(name, all_of_a_user, 0) == errno.EPERM
    for name in SHARED_MEMORY_AND_QUEUES:
        assert (own(name), shared(name)) == (0, errno.EPERM)


def test_sockets_are_those_of_the_given_families(machine: str) -> None:
    none, internet = Filter(machine), Filter(machine, system_calls.INTERNET)
    for family in (socket.AF_INET, socket.AF_INET6, 16):
        assert (none("socket", family), internet("socket", family)) == (errno.EPERM, 0)
    for family in (socket.AF_UNIX, 40, 38, 17, 31):  # VSOCK, ALG, PACKET, BLUETOOTH
        assert internet("socket", family) == errno.EPERM
    flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    for calls in (none, internet):
        assert calls("socketpair", 1, socket.SOCK_STREAM | flags) == calls("socketpair", 1, socket.SOCK_SEQPACKET) == 0
        assert calls("socketpair", 1, socket.SOCK_DGRAM | flags) == calls("socketpair", 30, 1) == errno.EPERM


def test_namespaces_are_denied_and_harmless_personalities_are_not(machine: str) -> None:
    calls = Filter(machine)
    for name in ("clone", "unshare"):
        assert calls(name, 0x3D0F00) == 0, "a thread"
        for flag in (0x10000000, 0x20000000, 0x00020000, 0x40000000, 0x08000000):
            assert calls(name, flag | 17) == errno.EPERM
    assert [calls("personality", it) for it in (0, 8, 0x40000, 0xFFFFFFFF)] == [0, 0, 0, 0]
    assert calls("personality", 0x0400000) == errno.EPERM, "READ_IMPLIES_EXEC"


# ------------------------------------------------------------------------------------------------- real programs


@pytest.fixture(params=SANDBOXES)
async def sandbox(request: pytest.FixtureRequest) -> Confinement:
    confinement = Confinement(request.param, subreaper=True)
    if not await works(confinement, "none"):
        pytest.skip(f"{request.param} does not work here")
    return confinement


async def run(sandbox: Confinement, command: str, folder: Path) -> ProcessResult:
    env = command_environment(os.environ)
    return await execute(CommandSpec(shell(command), folder, env, 20, 5_000, network="none"), sandbox)


@pytest.fixture
def service() -> Iterator[tuple[Path, list[bytes]]]:
    """A service on a Unix socket, outside /tmp, and what it was sent."""
    path, heard = Path(f"/var/tmp/delegate-test-{os.getpid()}"), list[bytes]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(path))
        listening = threading.Thread(target=lambda: heard.append(one.recv(100)))
        listening.start()
        yield path, heard
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.sendto(b"over", str(path))
        listening.join()
    path.unlink()


async def test_a_pair_of_sockets_is_no_way_to_a_service(
    sandbox: Confinement, tmp_path: Path, service: tuple[Path, list[bytes]]
) -> None:
    path, heard = service
    code = f"""
import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    try:
        one, other = socket.socketpair(type=kind)
        for way in (lambda: one.connect("{path}"), lambda: one.sendto(b"hello", "{path}"), lambda: other.close(),
                    lambda: one.connect("{path}"), lambda: one.sendto(b"hello", "{path}")):
            try: way()
            except OSError as error: print(kind, error.errno)
    except OSError as error:
        print(kind, "none", error.errno)
"""
    (tmp_path / "code.py").write_text(code)
    done = await run(sandbox, f"{sys.executable} -S code.py", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert f"{socket.SOCK_DGRAM} none {errno.EPERM}" in done.stdout or "SocketKind.SOCK_DGRAM none" in done.stdout
    assert heard == []


async def test_modes_that_give_rights_stay_out_of_the_workspace(sandbox: Confinement, tmp_path: Path) -> None:
    command = "cp /bin/true a; chmod 4755 a; chmod u+s a; chmod g+s a; install -m 6755 /bin/true b; chmod 700 a; echo"
    done = await run(sandbox, command, tmp_path)
    assert done.stdout == "\n"
    assert {path.stat().st_mode & 0o7000 for path in tmp_path.iterdir()} == {0}
