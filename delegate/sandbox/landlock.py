"""A program that restricts itself with Landlock and seccomp, and then becomes a command (Linux 6.2 or newer).

    main(STATUS_FD [RULE …] -- PROGRAM [ARGUMENT …])

A rule is `NAME=PATH`: `write` is a folder that the command may change, `hidden` a path that it can't read, `read` one
in a hidden one that it can, and `network=host` says that it may use the network. `pinned` is a folder that it can't
move; `read_only` is a path that can't be changed, and shows what the `source` behind it names; `place` is a folder that
shows what `content` names. These need namespaces, and without them nothing runs that has a `content`. `calls` is a
filter of system calls in hexadecimal, and `shared` the one where namespaces aren't permitted.
Everything else on the machine can be read, and nothing else changed. It needs no root, no user namespaces and no
installation. Compared with bubblewrap:

* folders above a hidden path can't be listed;
* Unix sockets can't be opened, since Landlock doesn't restrict connecting to them;
* where the kernel permits no user namespaces, /tmp and shared memory can't be used, except for `write` and `read`
  folders in /tmp, without the network not even loopback, and `pinned` and `read_only` have no effect;
* other processes stay visible, but can't be signaled or inspected;
* the modes, owners and times of files can be changed wherever the user may change them.

Once all restrictions are in force, it reports `{"restricted": true, "temporary": PATH}` on STATUS_FD; PATH is a folder
to remove afterwards, or empty. Without them, it doesn't run the command. It is started anew for every command, so it
imports little and needs no `site`.
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
else:
    import _signal as signal
    import _socket as socket
    from _collections_abc import Iterable, Iterator, Mapping, Sequence

MIN_ABI = 3
"""Before, Landlock doesn't prevent that a file is truncated."""
_MAX_RULES = 20_000
_RULES = ("write", "read", "hidden", "network", "pinned", "read_only", "source", "place", "content", "calls", "shared")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_NOATIME, _MS_NODIRATIME, _MS_RELATIME, _ST_RELATIME = 1024, 2048, 1 << 21, 4096
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_IFF_UP, _IFF_RUNNING, _SIOCSIFFLAGS = 0x1, 0x40, 0x8914
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder itself is meant

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_FS = {3: (1 << 15) - 1, 4: (1 << 15) - 1}  # from ABI 5 also IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES = 0b11
"""Abstract Unix sockets and signals, from ABI 6."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_TMP = "/tmp"  # noqa: S108 - the folder itself is meant
_UNREADABLE = (_TMP, _SHARED_MEMORY)  # other programs' files in them may be secrets

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    """Restrict this process, and run the command in `arguments` in its place. Returns only if that fails."""
    status, (rules, command) = int(arguments[0]), _parsed(arguments[1:])
    os.set_inheritable(status, False)
    network, read_only = rules["network"] == ["host"], dict(zip(rules["read_only"], rules["source"], strict=True))
    try:
        write, hidden = _real(rules["write"]), _real(rules["hidden"])
        inside = {path for path in hidden if any(path.startswith(folder + "/") for folder in write)}
        placed = dict(zip(rules["place"], rules["content"], strict=True))
        isolated = _enter_namespaces(
            inside, network=network, pinned=rules["pinned"], read_only=read_only, placed=placed
        )
        if placed and not isolated:
            raise OSError("a copy of the workspace can't be mounted in its place")
        temporary = _SHARED_MEMORY if isolated else _new_folder()
        read, kept = _real(rules["read"]), hidden - inside if isolated else hidden
        if isolated and _has_own_tmp(write, read, hidden):
            write, kept = {*write, _TMP}, {path for path in kept if not path.startswith(f"{_TMP}/")}
        _no_new_privileges()
        _drop_capabilities()
        _restrict_files({*write, temporary}, read, kept)
        _restrict_calls(bytes.fromhex(rules["calls" if isolated else "shared"][0]))
    except OSError as error:
        sys.stderr.write(f"Landlock: {error}\n")
        return 1
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and a command would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    os.environ["TMPDIR"] = temporary
    folder = "" if isolated else temporary
    os.write(status, b'{"restricted": true, "temporary": "%b"}\n' % folder.encode())  # importing json takes 8 ms
    os.execv(command[0], list(command))  # noqa: S606 - it is what this program is for
    return 127


def _parsed(arguments: Sequence[str]) -> tuple[dict[str, list[str]], Sequence[str]]:
    """The paths of each rule, and the command. Raises KeyError for a rule of another name."""
    rules: dict[str, list[str]] = {name: [] for name in _RULES}
    end = arguments.index("--")
    for name, _, path in (rule.partition("=") for rule in arguments[:end]):
        rules[name].append(path)
    return rules, arguments[end + 1 :]


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


def _no_new_privileges() -> None:
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _drop_capabilities() -> None:
    """Root without capabilities is an ordinary user who owns root's files."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def _enter_namespaces(
    cover: Iterable[str],
    *,
    network: bool,
    pinned: Iterable[str],
    read_only: Mapping[str, str],
    placed: Mapping[str, str],
) -> bool:
    """Give the command shared memory of its own and, without the network, a network that has only loopback.

    The paths in `cover` are replaced by something empty, and those in `placed` by what they stand for. Returns whether
    the kernel permits all that.
    """
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS | (0 if network else _CLONE_NEWNET)) != 0:
        return False
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
        for path, content in placed.items():
            _mount(content, path, None, _MS_BIND | _MS_REC)
            os.chdir(path)  # what is mounted now, and not what was there
        for path in (_SHARED_MEMORY, *filter(os.path.isdir, cover)):
            _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1g")
        for path in filter(os.path.isfile, cover):
            _mount("/dev/null", path, None, _MS_BIND)
        for path in pinned:
            _mount(path, path, None, _MS_BIND | _MS_REC)
        for path, source in read_only.items():
            _mount_read_only(source, path)
        if not network:
            _start_loopback()
    except OSError:  # in a sandbox that permits namespaces but no mounts
        return False
    return True


def _has_own_tmp(write: set[str], read: set[str], hidden: set[str]) -> bool:
    """Replace /tmp by an empty folder in which only the `write` and `read` folders are that are in it. Returns whether
    that was done: the first failure leaves it as it is.
    """
    kept = [path for path in sorted(write | read, key=len) if path.startswith(f"{_TMP}/")]
    shows_hidden = any(one.startswith(f"{path}/") for path in read for one in hidden)
    here = os.getcwd()
    stays = not f"{here}/".startswith(f"{_TMP}/") or any(f"{here}/".startswith(f"{path}/") for path in kept)
    if _TMP in write | read or shows_hidden or not stays or not all(map(os.path.isdir, kept)):
        return False
    opened = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in kept]
    try:
        _mount("tmpfs", _TMP, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1g,mode=1777")
    except OSError:
        return False
    for path, folder in zip(kept, opened, strict=True):
        os.makedirs(path, exist_ok=True)
        _mount(f"/proc/self/fd/{folder}", path, None, _MS_BIND | _MS_REC)
        if path not in write:
            _make_read_only(path)
        os.close(folder)
    os.chdir(here)  # by the folder as it is mounted now
    return True


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    given = [os.fsencode(text) if text else None for text in (source, target, kind, options)]
    _checked(_libc.mount(given[0], given[1], given[2], flags, given[3]), f"mount {target}")


def _mount_read_only(source: str, path: str) -> None:
    _mount(source, path, None, _MS_BIND)
    _make_read_only(path)


def _make_read_only(path: str) -> None:
    given = os.statvfs(path).f_flag  # what the mount forbids can't be permitted again
    kept = given & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_NOATIME | _MS_NODIRATIME)
    kept |= _MS_RELATIME if given & _ST_RELATIME else 0
    _mount(None, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _new_folder() -> str:
    """A folder for temporary files. The caller of this program removes it."""
    path = f"/tmp/delegate-tmp-{os.getpid()}-{os.urandom(4).hex()}"  # noqa: S108 - not guessable, and must not exist
    os.mkdir(path, 0o700)
    return path


def _start_loopback() -> None:
    import fcntl

    up = b"lo".ljust(16, b"\0") + (_IFF_UP | _IFF_RUNNING).to_bytes(2, sys.byteorder) + bytes(22)
    one = socket.socket()
    fcntl.ioctl(one, _SIOCSIFFLAGS, up)
    one.close()


# ------------------------------------------------------------------------------------------------------------- files


class _Attributes(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def _restrict_files(write: set[str], read: set[str], hidden: set[str]) -> None:
    version = abi()
    if version < MIN_ABI:
        raise OSError(f"this kernel has version {version} of it; {MIN_ABI} is needed")
    everything = _ALL_FS.get(version, (1 << 16) - 1)
    attributes = _Attributes(everything, 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0), "landlock_create_ruleset")
    excluded = hidden | set(_UNREADABLE)
    # A hidden folder in a writable one stays hidden, and a writable folder in a hidden one can be used.
    rules = [(path, _READ) for folder in ("/", *read) for path in _readable(folder, excluded | write)]
    rules += [(path, everything) for folder in write for path in _readable(folder, excluded - {folder})]
    rules += [(path, _READ_FILE | _WRITE_FILE | (_IOCTL_DEV & everything)) for path in _DEVICES]
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
    if not any(one.startswith(prefix) for one in excluded):
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
        rule = _PathBeneath(allowed if is_folder else allowed & _ON_FILES, parent)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0), f"landlock_add_rule {path}")
    finally:
        os.close(parent)


# ------------------------------------------------------------------------------------------------------ system calls


def _restrict_calls(instructions: bytes) -> None:
    """Load a filter of `system_calls`."""
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    length, pointer = len(instructions) // 8, ctypes.addressof(buffer)
    header = length.to_bytes(2, sys.byteorder) + bytes(6) + pointer.to_bytes(8, sys.byteorder)
    filter = ctypes.create_string_buffer(header, len(header))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, filter, 0, 0), "seccomp")
