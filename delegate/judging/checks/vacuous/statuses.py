"""Exit codes as sets: every way in which a piece of shell may end, for all that can be known without running it.

A set holds exact exit codes where they are known, and these marks where they aren't.
"""

from collections.abc import Iterable

Status = frozenset[int]

WORK = -1
"""Some non-zero code, because the work isn't right."""
ASIDE = -2
"""Some non-zero code, but for a reason beside the work: no disk, no network, a name taken."""
HANG = -3
"""It may never end; the check's timeout then decides."""

NOTHING: Status = frozenset()
ZERO: Status = frozenset({0})
ONLY_ASIDE: Status = frozenset({ASIDE})
CHECK: Status = frozenset({0, WORK})
SETUP: Status = frozenset({0, ASIDE})

_SAMPLES = (1, 2, 3, 126, 127, 255)


def failing(status: Status) -> Status:
    """The non-zero ways to end."""
    return status - {0, HANG}


def harmless(status: Status) -> bool:
    """Whether it ends, and the work can't make it fail."""
    return 0 in status and status <= SETUP


def negated(status: Status) -> Status:
    """`! status`."""
    fails = frozenset({WORK if WORK in status else 1}) if 0 in status else NOTHING
    return fails | (ZERO if failing(status) else NOTHING) | (status & {HANG})


def aside(status: Status) -> Status:
    """The same, reached only after a failure beside the work: so no failure in it is about the work."""
    return frozenset(ASIDE if code not in (0, HANG) else code for code in status)


def codes(mark: int, near: Iterable[int] = ()) -> tuple[int, ...]:
    """Exit codes that stand for `mark`, those in `near` among them where they are possible."""
    return (*_SAMPLES, *(code for code in near if 0 < code < 256)) if mark < 0 else (mark,)


def always(status: Status, wanted: int) -> bool:
    """Whether the wanted exit code comes out, however the work went."""
    if wanted == 0:
        return harmless(status)
    return wanted in status and status <= {wanted, WORK, ASIDE}


def never(status: Status, wanted: int) -> bool:
    """Whether the wanted exit code can't come out."""
    return bool(status) and wanted not in status and (wanted == 0 or not status & {WORK, ASIDE})
