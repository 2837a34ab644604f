"""The attacks that `delegate doctor --security` tried on this machine, once for all tests that look at the outcomes."""

import json
from functools import cache
from pathlib import Path

from delegate.cli.security.commands import Row
from tests.cli.command import delegate


@cache
def attacks() -> tuple[Row, ...]:
    """All rows, from the command's JSON."""
    before = folders()
    done = delegate("doctor", "--security", "--format", "json")
    assert done.returncode == 0, done.stderr
    # Another test process may be trying attacks too.
    assert [path for path in folders() - before if not Path(f"/proc/{path.name.split('-')[2]}").exists()] == []
    return tuple(Row(**row) for row in json.loads(done.stdout)["attacks"])


def folders() -> set[Path]:
    """The folders of attacks, each with the id of the process that made it in its name."""
    return set(Path("/var/tmp").glob("delegate-attacks-*"))
