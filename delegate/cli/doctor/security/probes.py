"""Attacks that need more than a shell: a program that runs as the command.

    python -S probes.py NAME [ARGUMENT …]

It ends with 0 if the attack NAME succeeded, and with 1 if it was refused. Nothing on the machine changes: a call that
would change something gets arguments that the kernel refuses only after it has checked who calls.
"""

import ctypes
import errno
import mmap
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

_CALLS: Mapping[str, tuple[int, int]] = {
    "add_key": (248, 217), "bpf": (321, 280), "fanotify_init": (300, 262), "init_module": (175, 105),
    "io_uring_setup": (425, 425), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
    "process_vm_readv": (310, 270), "ptrace": (101, 117), "sethostname": (170, 161), "settimeofday": (164, 170),
    "shmget": (29, 194), "syslog": (103, 116), "userfaultfd": (323, 282),
}  # fmt: skip
"""Numbers on x86_64 and on aarch64. The C library has no functions for most of them."""
_AT_FDCWD = -100
_OWN_KEYRING = -2
"""Of the process, which ends with it."""
_PTRACE_SEIZE = 0x4206
_CREATE_SHARED_MEMORY = 0o1600
_READ_ALL_MESSAGES = 3
_USER_MODE_ONLY = 1
_REPORT_FID = 0x200
_GETPID = bytes.fromhex("b814000000 cd80 c3")
"""In the machine code of x86: `getpid` as a 32-bit program calls it."""
_PACKETS, _HYPERVISOR, _CRYPTOGRAPHY = (17, socket.SOCK_RAW), (40, socket.SOCK_STREAM), (38, 5)
_PROTOCOLS = {"PACKET": _PACKETS, "AF_VSOCK": _HYPERVISOR, "VSOCK": _HYPERVISOR, "ALG": _CRYPTOGRAPHY}

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    """The result of a system call, or minus its errno."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        return -errno.ENOSYS
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc.syscall(ctypes.c_long(_CALLS[name][machine == "aarch64"]), *values))
    return -ctypes.get_errno() if result == -1 else result


def _numbers(*values: int) -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 32)(*values)


def memory(pid: str) -> bool:
    """Read the memory of another process, or trace it."""
    with suppress(OSError), open(f"/proc/{pid}/mem", "rb"):
        return True
    here, there = (ctypes.c_uint64 * 2)(0, 8), (ctypes.c_uint64 * 2)(8, 8)
    read = _call("process_vm_readv", int(pid), here, 1, there, 1, 0)
    return read in (8, -errno.EFAULT) or _call("ptrace", _PTRACE_SEIZE, int(pid), 0, 0) == 0


def files_of(pid: str) -> bool:
    """Reach files past the sandbox through a process outside of it."""
    for name in ("root", "cwd", "fd/0"):
        with suppress(OSError):
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
            return True
    return False


def descriptor_of(pid: str) -> bool:
    """Take an open file of another process."""
    return (process := _call("pidfd_open", int(pid), 0)) >= 0 and _call("pidfd_getfd", process, 0, 0) >= 0


def watch() -> bool:
    """Load a program into the kernel, measure, handle page faults, or watch file systems."""
    array_of_8_bytes = _numbers(2, 4, 8, 1)
    clock_of_the_process = _numbers(1, 112, 1, 0, *[0] * 6, 0x60)  # outside the kernel
    return (
        _call("bpf", 0, array_of_8_bytes, 72) >= 0
        or _call("perf_event_open", clock_of_the_process, 0, -1, -1, 0) >= 0
        or _call("userfaultfd", _USER_MODE_ONLY) >= 0
        or _call("fanotify_init", _REPORT_FID, 0) >= 0
    )


def messages() -> bool:
    """Read what the kernel has logged."""
    with suppress(OSError):
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
        return True
    return _call("syslog", _READ_ALL_MESSAGES, ctypes.create_string_buffer(64), 64) >= 0


def ring() -> bool:
    """Have system calls made by the kernel, where no filter sees them."""
    return _call("io_uring_setup", 1, _numbers()) >= 0


def other_architecture() -> bool:
    """Make a system call with the numbers of another architecture, which a filter may take for other calls."""
    if os.uname().machine != "x86_64":
        return False
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(_GETPID)
        code = ctypes.c_char.from_buffer(page)
        result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(code))()
        del code
    return result == os.getpid()


def handle() -> bool:
    """Open a file by its number on the disk, past all folders and mounts."""
    file, mount = _numbers(120), ctypes.c_int()
    if _call("name_to_handle_at", _AT_FDCWD, b".", file, ctypes.byref(mount), 0) < 0:
        return False
    return _call("open_by_handle_at", os.open(".", os.O_RDONLY), file, os.O_RDONLY) >= 0


def clock() -> bool:
    """Set the clock to a time zone, or the machine's name to one of a length, that there can't be."""
    return -errno.EINVAL in (_call("settimeofday", 0, _numbers(100_000)), _call("sethostname", b"", 100_000))


def module() -> bool:
    """Load an empty module into the kernel."""
    return _call("init_module", 0, 0, b"") in (-errno.ENOEXEC, -errno.EFAULT)


def raw_socket() -> bool:
    """Open a socket for all packets, to the hypervisor, or to the kernel, of the kinds that are loaded already."""
    known = set(_PROTOCOLS)
    with suppress(OSError), open("/proc/net/protocols") as file:
        known = {line.split()[0] for line in file}
    for name in known & _PROTOCOLS.keys():
        with suppress(OSError), socket.socket(*_PROTOCOLS[name]):
            return True
    return False


def port(number: str) -> bool:
    """Take a port of the machine; where it is in use, it is the machine's."""
    try:
        with socket.socket() as connection:
            connection.bind(("127.0.0.1", int(number)))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def service(path: str) -> bool:
    """Connect to a service at a Unix socket; one whose path begins with `@` is known by that name alone."""
    address = "\0" + path[1:] if path.startswith("@") else path
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_UNIX, kind) as connection:
                connection.connect(address)
                return True
        except ConnectionRefusedError:  # no process listens on it any more
            return not path.startswith("@")
        except OSError:
            pass
    try:
        with socket.socketpair(type=socket.SOCK_DGRAM)[0] as connection:
            connection.connect(address)
    except OSError as error:
        return error.errno == errno.EPROTOTYPE  # it is there, for streams
    return True


def store_key() -> bool:
    """Store a key in the kernel."""
    return _call("add_key", b"user", b"delegate", b"x", 1, _OWN_KEYRING) >= 0


def shared_memory(number: str) -> bool:
    """Create shared memory that stays."""
    return _call("shmget", int(number), 4096, _CREATE_SHARED_MEMORY) >= 0


def control_group() -> bool:
    """Move to another control group, with other limits: open what that is written to."""
    folders = ["", *(entry.name for entry in os.scandir("/sys/fs/cgroup") if entry.is_dir())]
    with suppress(OSError), open("/proc/self/cgroup") as file:
        folders += [(names + path).lstrip("/") for _, names, path in (line.rstrip().split(":", 2) for line in file)]
    for folder in folders:
        with suppress(OSError):
            os.close(os.open(f"/sys/fs/cgroup/{folder}/cgroup.procs", os.O_WRONLY))
            return True
    return False


PROBES: Mapping[str, Callable[..., bool]] = {
    probe.__name__: probe
    for probe in (
        memory, files_of, descriptor_of, watch, messages, ring, other_architecture, handle, clock, module, raw_socket,
        port, service, store_key, shared_memory, control_group,
    )
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(not PROBES[sys.argv[1]](*sys.argv[2:]))
