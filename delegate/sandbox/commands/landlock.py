"""Restricts the process that it runs in with namespaces, Landlock and seccomp, and becomes a command (Linux 6.2 or
newer). `subreaper.py` calls it in a process that it forked.

    main(STATUS_FD [RULE …] -- PROGRAM [ARGUMENT …])

    this process ──▶ process 1 of new namespaces: mounts, then waits ──▶ the command, with Landlock and seccomp

A rule is `NAME=PATH`: `write` is a folder that the command may change, `hidden` a real path that it can't read, `read`
one in a hidden one or in /tmp that it can, and `network=host` says that it may use the network. `pinned` is a folder
that it can't move; `read_only` is a path that can't be changed, and shows what the `source` behind it names; `place` is
a folder that shows what `content` names; `masked` is a file or folder of /proc or /sys that is empty; `cache` is a
folder whose changes are gone when the command ends. These need namespaces, and without them nothing runs that has a
`content`. Where `cache` can't be changed, each `cached=VARIABLE=NAME` is a folder for temporary files instead. `calls`
is a filter of system calls in hexadecimal, given three times: for a command with processes, queues and network of its
own, for one without processes of its own, and for one without any. Everything else on the machine can be read, and
nothing else changed. It needs no root and no installation. Compared with bubblewrap:

* Unix sockets can't be opened, since Landlock doesn't restrict connecting to them;
* where a new /proc can't be mounted, as in many containers, other processes stay visible, but can't be inspected, and
  from Linux 6.12 on not signaled;
* where the kernel permits no user namespaces, this is so too, and the process itself becomes the command: /tmp and
  shared memory can't be used, except for `write` and `read` folders in /tmp; folders above a hidden path can't be
  listed; without the network, not even loopback can be used; `pinned`, `read_only` and `masked` have no effect; and
  the modes, owners and times of files can be changed wherever the user may change them.

Once all restrictions are in force, the command reports `{"restricted": true, "temporary": PATH, "waited": BOOL}` on
STATUS_FD; PATH is a folder to remove afterwards, or empty. If it is waited for, its `exit-code` is reported when it has
ended by itself. Without the restrictions, it doesn't run. If the program can't be started in them, it reports
`{"restricted": false}` at last. All of this is imported anew for every command, so it imports little itself.
"""

import ctypes
import os
import stat
import sys

TYPE_CHECKING = False  # as in subreaper.py
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn
else:
    import _signal as signal
    import _socket as socket
    from _collections_abc import Iterable, Iterator, Mapping, Sequence

MIN_ABI = 3
"""Before, Landlock doesn't prevent that a file is truncated."""
_MAX_RULES = 20_000
_RULES = (
    "write", "read", "hidden", "network", "pinned", "read_only", "source", "place", "content", "masked", "cache",
    "cached", "calls",
)  # fmt: skip
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE = {"x86_64": 56, "aarch64": 220}
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 1, 38, 22, 2
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_NO_DEVICES, _READ_ONLY = 4, 1 | 4
"""Attributes of mounts: root may read devices anywhere else, such as those in the folder of a container."""
_RLIMIT_NPROC, _MAX_PROCESSES = 6, 4_096
_IFF_UP, _IFF_RUNNING, _SIOCSIFFLAGS = 0x1, 0x40, 0x8914

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_FS = {3: (1 << 15) - 1, 4: (1 << 15) - 1}  # from ABI 5 also IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES = 0b11
"""Abstract Unix sockets and signals, from ABI 6."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_TERMINALS = "/dev/pts"
_DEVICE_LINKS = {
    "ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}  # fmt: skip
_TMP, _SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108 - the folders themselves are meant
_UNREADABLE = (_TMP, "/dev")  # other programs' files, disks and terminals
_TEMPORARY = "size=1g,mode=1777"
_COVER = "size=64k,mode=755"
_ALL, _NO_PROCESSES, _NONE = 0, 1, 2
"""Which namespaces a command has of its own: all, all but one for processes, or none."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command in `arguments` under all restrictions, and return its exit code."""
    status, end = int(arguments[0]), arguments.index("--")
    command, rules = arguments[end + 1 :], {name: list[str]() for name in _RULES}
    for name, _, path in (rule.partition("=") for rule in arguments[1:end]):
        rules[name].append(path)
    os.set_inheritable(status, False)
    for own in (_ALL, _NO_PROCESSES):
        exit_code, is_permitted = _run_in_namespaces(rules, command, status, own)
        if is_permitted:
            if exit_code is None:
                return 1
            os.write(status, b'{"exit-code": %d}\n' % exit_code)
            return exit_code
    try:
        if rules["place"]:
            raise OSError("a copy of the workspace can't be mounted in its place")
        temporary = f"/tmp/delegate-tmp-{os.getpid()}-{os.urandom(4).hex()}"  # noqa: S108 - not guessable
        os.mkdir(temporary, 0o700)
        _drop_capabilities()
        _become(command, rules, status, own=_NONE, write={*_real(rules["write"]), temporary}, temporary=temporary)
    except OSError as error:
        return _failed(error, status)


def _run_in_namespaces(
    rules: Mapping[str, list[str]], command: Sequence[str], status: int, own: int
) -> tuple[int | None, bool]:
    """Run the command in new namespaces. Returns its exit code, or None if it didn't end by itself, and whether the
    kernel permits the namespaces and what is mounted in them.
    """
    flags = _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWIPC | (_CLONE_NEWPID if own == _ALL else 0)
    flags |= 0 if rules["network"] == ["host"] else _CLONE_NEWNET
    user, refused = (os.getuid(), os.getgid()), os.pipe()
    # As `fork`. `unshare` would change this process too, which has to stay as it is if they aren't permitted.
    child = ctypes.PyDLL(None).syscall(_CLONE.get(os.uname().machine, -1), flags | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        try:
            os.close(refused[0])
            _wait_for_command(rules, command, status, own, user, refused[1])
        except BaseException as error:
            os._exit(_failed(error, status))
    os.close(refused[1])
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child > 0 else -1
    is_permitted = child > 0 and not os.read(refused[0], 1)
    os.close(refused[0])
    return (ended if ended >= 0 else None), is_permitted


def _wait_for_command(
    rules: Mapping[str, list[str]], command: Sequence[str], status: int, own: int, user: tuple[int, int], refused: int
) -> "NoReturn":
    """As the first process of the namespaces, start the command, and end with its exit code.

    When it ends, the kernel kills all processes of its namespace.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # of the command to its parent
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        write = _enter_namespaces(rules, own, user)
    except OSError:
        os.write(refused, b"x")
        os._exit(1)
    os.close(refused)
    _hide_arguments()
    started = os.fork()
    if started == 0:
        os.setsid()  # so that signals to its group reach no other process
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _become(command, rules, status, own=own, write=write)
    while True:
        pid, state = os.wait()
        if pid == started:
            ended = os.waitstatus_to_exitcode(state)
            os._exit(128 - ended if ended < 0 else ended)


def _hide_arguments() -> None:
    """Keep the command from finding its own text in this process's arguments, as `pkill -f` does."""
    with open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b") ")[2].split()[45:47])
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, b"delegate", len("delegate"))


def _become(
    command: Sequence[str], rules: Mapping[str, list[str]], status: int, *, own: int, write: set[str],
    temporary: str = "",
) -> "NoReturn":  # fmt: skip
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if own == _NONE:
        _restrict_files(write, _real(rules["read"]), {*rules["hidden"], *_UNREADABLE})
    else:  # what it must not read isn't there
        limit = (ctypes.c_ulong * 2)(_MAX_PROCESSES, _MAX_PROCESSES)  # fails where the user has a lower one already
        _libc.setrlimit(_RLIMIT_NPROC, limit)  # counts those of this namespace; the kernel excepts root
        _restrict_files(write, set(), set(), devices=(*_DEVICES, _TERMINALS))
    instructions = bytes.fromhex(rules["calls"][own])
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    length, pointer = len(instructions) // 8, ctypes.addressof(buffer)
    program = length.to_bytes(2, sys.byteorder) + bytes(6) + pointer.to_bytes(8, sys.byteorder)
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, program, 0, 0), "seccomp")
    os.environ["TMPDIR"] = temporary or _TMP
    if not {*_real(rules["cache"])} <= write:
        for name, _, folder in (cached.partition("=") for cached in rules["cached"]):
            os.environ[name] = f"{temporary or _TMP}/{folder}"
    waited = b"false" if own == _NONE else b"true"  # importing json takes 8 ms
    os.write(status, b'{"restricted": true, "temporary": "%b", "waited": %b}\n' % (temporary.encode(), waited))
    os.execv(command[0], list(command))  # noqa: S606 - it is what this program is for


def _failed(error: BaseException, status: int) -> int:
    os.write(status, b'{"restricted": false}\n')
    sys.stderr.write(f"Landlock: {error}\n")
    sys.stderr.flush()
    return 1


def abi() -> int:
    """The version of Landlock in this kernel; 0 if there is none."""
    return max(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG), 0)


def _real(paths: Iterable[str]) -> set[str]:
    return {os.path.realpath(path) for path in paths}


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _drop_capabilities() -> None:
    """Root without capabilities is an ordinary user who owns root's files."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


# -------------------------------------------------------------------------------------------------------- namespaces


def _enter_namespaces(rules: Mapping[str, list[str]], own: int, user: tuple[int, int]) -> set[str]:
    """Set the new namespaces up, and give up the rights in them. Returns what the command may change.

    All that it can see is mounted read-only but for that. So not even the mode of another file can be changed.
    """
    maps = ("setgroups", "deny"), ("uid_map", f"{user[0]} {user[0]} 1"), ("gid_map", f"{user[1]} {user[1]} 1")
    for name, text in maps:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    here = os.getcwd()
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    for path, content in zip(rules["place"], rules["content"], strict=True):
        _attach(_copy(content), path)
    write, read = _real(rules["write"]), {*_real(rules["read"]), here}
    shown = {path: _copy(path, _NO_DEVICES if path in write else _READ_ONLY) for path in {*write, *read} - {"/"}}
    fixed = [_copy(source, _READ_ONLY) for source in rules["source"]]
    devices = [(path, _copy(path)) for path in _DEVICES if os.path.exists(path)]
    _set_attributes("/", _NO_DEVICES if "/" in write else _READ_ONLY, recursive=True)
    _mount_devices(devices)
    changed = {path for path in _real(rules["cache"]) if _layer(path)}
    if own == _ALL:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        try:  # so that root too can have only so many processes and threads
            with open("/proc/sys/kernel/pid_max", "w") as file:
                file.write(str(_MAX_PROCESSES))
        except OSError:  # before Linux 6.14, the limit is one for the whole machine
            pass
        _set_attributes("/proc", _READ_ONLY)
    for path in rules["masked"]:
        _cover(path)
    _hide_and_show({*rules["hidden"], _TMP} - {*write, *read}, shown)
    for path in rules["pinned"]:
        _attach(_copy(path), path)
    for path, copy in zip(rules["read_only"], fixed, strict=True):
        _attach(copy, path)
    os.chdir(here)  # as it is mounted now
    if rules["network"] != ["host"]:
        import fcntl

        up = b"lo".ljust(16, b"\0") + (_IFF_UP | _IFF_RUNNING).to_bytes(2, sys.byteorder) + bytes(22)
        control = socket.socket()
        fcntl.ioctl(control, _SIOCSIFFLAGS, up)
        control.close()
    _drop_capabilities()
    return {*write, *changed, _TMP, _SHARED_MEMORY}


def _hide_and_show(hidden: set[str], shown: Mapping[str, int]) -> None:
    """Let hidden paths look empty, and mount the shown folders, also in hidden ones, or with hidden ones in them."""
    covers: list[str] = []
    for path in sorted({*hidden, *shown}, key=len):  # outer ones first
        if path in shown:
            os.makedirs(path, exist_ok=True)
            _attach(shown[path], path)
        elif path == _TMP:
            _mount("tmpfs", _TMP, "tmpfs", _MS_NOSUID | _MS_NODEV, _TEMPORARY)
        else:
            covers += [path] if os.path.isdir(path) else []
            _cover(path)
    for path in covers:  # after folders for what is shown have been made in them
        _set_attributes(path, _READ_ONLY)


def _mount_devices(devices: Iterable[tuple[str, int]]) -> None:
    """Replace /dev by the usual devices, terminals that are the command's own, and empty shared memory."""
    _mount("tmpfs", "/dev", "tmpfs", _MS_NOSUID, _COVER)
    for path, copy in devices:
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC))
        _attach(copy, path)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir(_TERMINALS)
    _mount("devpts", _TERMINALS, "devpts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=600")
    os.mkdir(_SHARED_MEMORY)
    _mount("tmpfs", _SHARED_MEMORY, "tmpfs", _MS_NOSUID | _MS_NODEV, _TEMPORARY)
    _set_attributes("/dev", _READ_ONLY)


def _layer(path: str) -> bool:
    """Let what is changed in a folder be kept in memory only. Whether that is possible."""
    try:
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, _TEMPORARY)
    for name in ("upper", "work"):
        os.mkdir(f"{path}/{name}")
    layers = f"lowerdir=/proc/self/fd/{folder},upperdir={path}/upper,workdir={path}/work,userxattr"
    try:
        _mount("overlay", path, "overlay", _MS_NOSUID | _MS_NODEV, layers)
    except OSError:  # the kernel is older than 5.11, or `path` has a comma or colon in it
        _checked(_libc.umount2(os.fsencode(path), _MNT_DETACH), f"umount {path}")
        return False
    finally:
        os.close(folder)
    return True


def _cover(path: str) -> None:
    if os.path.isdir(path):
        _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, _COVER)
    elif os.path.lexists(path):
        _mount("/dev/null", path, None, _MS_BIND)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    arguments = [os.fsencode(text) if text else None for text in (source, target, kind, options)]
    _checked(_libc.mount(arguments[0], arguments[1], arguments[2], flags, arguments[3]), f"mount {target}")


def _copy(path: str, attributes: int = 0) -> int:
    """A descriptor of what is mounted at `path` and below, to mount it elsewhere."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    copy = _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags), f"open_tree {path}")
    if attributes:
        _set_attributes("", attributes, copy, recursive=True)
    return copy


def _attach(copy: int, path: str) -> None:
    flags = _MOVE_MOUNT_F_EMPTY_PATH
    _checked(_libc.syscall(_MOVE_MOUNT, copy, b"", _AT_FDCWD, os.fsencode(path), flags), f"move_mount {path}")
    os.close(copy)


def _set_attributes(path: str, attributes: int, folder: int = _AT_FDCWD, *, recursive: bool = False) -> None:
    attribute = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = (_AT_RECURSIVE if recursive else 0) | (0 if path else _AT_EMPTY_PATH)
    size = ctypes.sizeof(attribute)
    _checked(_libc.syscall(_MOUNT_SETATTR, folder, os.fsencode(path), flags, attribute, size), f"mount_setattr {path}")


# ------------------------------------------------------------------------------------------------------------- files


def _restrict_files(write: set[str], read: set[str], excluded: set[str], devices: Sequence[str] = _DEVICES) -> None:
    version = abi()
    if version < MIN_ABI:
        raise OSError(f"this kernel has version {version} of it; {MIN_ABI} is needed")
    everything = _ALL_FS.get(version, (1 << 16) - 1)
    attributes = (ctypes.c_uint64 * 3)(everything, 0, _SCOPES if version >= 6 else 0)  # of files, ports and scopes
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")
    # A hidden folder in a writable one stays hidden, and a writable folder in a hidden one can be used.
    beside = excluded | write if excluded else excluded
    rules = [(path, _READ) for folder in ("/", *read) for path in _readable(folder, beside)]
    rules += [(path, everything) for folder in write for path in _readable(folder, excluded - {folder})]
    rules += [(path, _READ_FILE | _READ_DIR | _WRITE_FILE | (_IOCTL_DEV & everything)) for path in devices]
    if len(rules) > _MAX_RULES:
        raise OSError(f"too many files beside hidden ones: {len(rules)}")
    for path, allowed in rules:
        _allow(ruleset, path, allowed)
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _readable(path: str, excluded: set[str]) -> Iterator[str]:
    """The paths that together contain everything below `path` except what is excluded."""
    if path in excluded:
        return
    prefix = path.rstrip("/") + "/"
    if not any(other.startswith(prefix) for other in excluded):
        yield path
        return
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():  # what it points to has a rule of its own, or none
            yield from _readable(entry.path, excluded)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # removed, or not permitted
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(parent).st_mode)
        rights = allowed if is_folder else allowed & _ON_FILES
        rule = rights.to_bytes(8, sys.byteorder) + parent.to_bytes(4, sys.byteorder)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock_add_rule {path}")
    finally:
        os.close(parent)


# ------------------------------------------------------------------------------------------------------ system calls
