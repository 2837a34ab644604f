"""Which system calls a command in a sandbox may make: one filter for bubblewrap and for Landlock.

    DENIED, MISSING, … ──▶ system_call_filter: instructions for the kernel (seccomp) ──▶ a sandbox loads them

A call that the lists don't name is allowed, up to the newest that they know. They were compared with the default
profile of Docker (github.com/moby/profiles, seccomp/default.json of 2025, Apache License 2.0): denied is what that
denies to a process without capabilities, apart from the calls that set where a process's own memory lies. Setuid modes,
priorities of other processes and sockets to local services are denied besides.
"""

import os
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import cache

DENIED: Mapping[str, tuple[int | None, int | None]] = {
    # of the kernel's store of keys, which has no namespaces
    "add_key": (248, 217), "keyctl": (250, 219), "request_key": (249, 218),
    # that change what is mounted where
    "chroot": (161, 51), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "open_tree": (428, 428),
    "pivot_root": (155, 41), "setns": (308, 268), "umount2": (166, 39),
    # for programs in the kernel, and to watch it
    "bpf": (321, 280), "delete_module": (176, 106), "finit_module": (313, 273), "init_module": (175, 105),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "lookup_dcookie": (212, 18),
    "lsm_get_self_attr": (459, 459), "lsm_list_modules": (461, 461), "lsm_set_self_attr": (460, 460),
    "perf_event_open": (298, 241), "syslog": (103, 116), "userfaultfd": (323, 282),
    # that change the machine
    "acct": (163, 89), "clock_settime": (227, 112), "ioperm": (173, None), "iopl": (172, None), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "setdomainname": (171, 162), "sethostname": (170, 161),
    "settimeofday": (164, 170), "swapoff": (168, 225), "swapon": (167, 224), "vhangup": (153, 58),
    # that reach into other processes, and to files past their folders
    "fanotify_init": (300, 262), "kcmp": (312, 272), "migrate_pages": (256, 238), "open_by_handle_at": (304, 265),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    # that are obsolete
    "_sysctl": (156, None), "nfsservctl": (180, 42), "sysfs": (139, None), "uselib": (134, None), "ustat": (136, None),
}  # fmt: skip
"""Calls with their numbers on x86_64 and on aarch64."""
MISSING: Mapping[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "openat2": (437, 437),
}  # fmt: skip
"""Calls whose arguments a filter can't see. Programs use an older call where the kernel doesn't have these."""
SHARED_MEMORY_AND_QUEUES: Mapping[str, tuple[int | None, int | None]] = {
    "mq_open": (240, 180), "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188),
    "msgsnd": (69, 189), "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194),
}  # fmt: skip
"""Denied where all processes of the machine share them."""
BY_ARGUMENTS: Mapping[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "clone": (56, 220), "creat": (85, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "ioprio_set": (251, 30), "mknod": (133, None), "mknodat": (259, 33),
    "move_pages": (279, 239), "open": (2, None), "openat": (257, 56), "personality": (135, 92),
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "setpriority": (141, 140), "socket": (41, 198),
    "socketpair": (53, 199), "unshare": (272, 97),
}  # fmt: skip
NEWEST = 466
"""The number of the newest call that the lists know (removexattrat), the same on both machines."""

INTERNET = (2, 10, 16)
"""AF_INET, AF_INET6 and AF_NETLINK, with which the C library asks for the machine's addresses."""
UNIX = 1
_STREAM, _SEQPACKET = 1, 5
_SETUID, _NEW_FILE = 0o6000, 0o20000100
"""The modes setuid and setgid; O_CREAT and O_TMPFILE."""
_NAMESPACES = 0x7E020080
_HARMLESS_PERSONALITY = 0x0040000 | 0x0020000 | 0x8
"""Without random addresses, as debuggers and sanitizers want it; another version of the kernel; 32 bits."""
_MODE_AT = {"chmod": 1, "creat": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2}
_OPEN_AT = {"open": 1, "openat": 2}
_PID_AT_0 = ("move_pages", "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
_WHO_AT_1: Mapping[str, tuple[int, ...]] = {"setpriority": (0, 1), "ioprio_set": (1, 2)}
"""Calls for a process or a group, by the first argument, and their values of it. Other values mean all of a user's."""

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The machine's number for seccomp, and its place in the lists."""
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]
"""A code, how many instructions to skip if a comparison is true and if it is false, and an operand."""
_ALLOW: Instruction = (_RETURN, 0, 0, 0x7FFF0000)
_DENY: Instruction = (_RETURN, 0, 0, 0x00050000 | 1)  # EPERM
_IS_MISSING: Instruction = (_RETURN, 0, 0, 0x00050000 | 38)  # ENOSYS
_KILL: Instruction = (_RETURN, 0, 0, 0x80000000)


@cache
def is_supported() -> bool:
    """Whether there is a filter for this machine and this Python."""
    return os.uname().machine in _MACHINES and sys.byteorder == "little" and struct.calcsize("P") == 8


@cache
def system_call_filter(
    *, sockets: Sequence[int], own_processes: bool, own_queues: bool, machine: str | None = None
) -> bytes:
    """The filter, as the kernel reads it. `sockets` are the families of sockets that a command may open, apart from
    pairs that are connected to each other.

    `own_processes` and `own_queues` say that the command is in namespaces of its own, so that it can reach no other
    process, and no shared memory and queues of others. It is for `machine`, by default this one. Raises OSError where
    there is none.
    """
    if machine is None and not is_supported():
        raise OSError(f"there is no filter of system calls for {os.uname().machine}")
    architecture, place = _MACHINES[machine or os.uname().machine]
    denied = {**DENIED, **({} if own_queues else SHARED_MEMORY_AND_QUEUES)}
    rules = _rules(sockets, own_processes=own_processes)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        _KILL,
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, NEWEST + 1),  # also the numbers of x32
        _IS_MISSING,
    ]
    for names, block in (
        *((BY_ARGUMENTS[name], [*rule, _ALLOW]) for name, rule in rules.items()),
        *((numbers, [_DENY]) for numbers in denied.values()),
        *((numbers, [_IS_MISSING]) for numbers in MISSING.values()),
    ):
        if (number := names[place]) is not None:
            program += [(_EQUAL, 0, len(block), number), *block]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*program, _ALLOW])


def _rules(sockets: Sequence[int], *, own_processes: bool) -> dict[str, list[Instruction]]:
    """What decides a call of `BY_ARGUMENTS`: instructions that deny it, or go on."""
    rules = {name: _without(at, _SETUID) for name, at in _MODE_AT.items()}
    for name, at in _OPEN_AT.items():  # the mode counts for new files only, and is anything otherwise
        rule = _without(at + 1, _SETUID)
        rules[name] = [_argument(at), (_ANY_BIT, 0, len(rule), _NEW_FILE), *rule]
    rules["clone"] = rules["unshare"] = _without(0, _NAMESPACES)
    rules["personality"] = [
        *(_argument(0), (_EQUAL, 3, 0, 0xFFFFFFFF)),  # asks what it is
        *((_AND, 0, 0, 0xFFFFFFFF & ~_HARMLESS_PERSONALITY), (_EQUAL, 1, 0, 0), _DENY),
    ]
    rules["socket"] = _only(0, sockets)
    # A pair of datagram sockets could be connected to something else; these can't.
    rules["socketpair"] = [*_only(0, (UNIX,)), *_only(1, (_STREAM, _SEQPACKET), mask=0xF)]
    if not own_processes:
        rules |= {name: _only(0, (0,)) for name in _PID_AT_0}
        rules |= {name: [*_only(0, kinds), *_only(1, (0,))] for name, kinds in _WHO_AT_1.items()}
    return rules


def _argument(at: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * at)  # the lower half


def _without(at: int, bits: int) -> list[Instruction]:
    return [_argument(at), (_ANY_BIT, 0, 1, bits), _DENY]


def _only(at: int, values: Sequence[int], mask: int = 0xFFFFFFFF) -> list[Instruction]:
    jumps = [(_EQUAL, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [_argument(at), (_AND, 0, 0, mask), *jumps, _DENY]
