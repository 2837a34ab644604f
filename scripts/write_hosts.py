"""Write docs/hosts.md from what `make hosts` found in each framework (`PYTHONPATH=. python scripts/write_hosts.py`).

Fails where a host is missing: the table is complete, or it isn't written.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path

from tests.hosts.table import Found, load, reasons, rows

ROOT = Path(__file__).resolve().parent.parent
FOUND = ROOT / "build" / "hosts"
FILE = ROOT / "docs" / "hosts.md"
HOSTS = ROOT / "delegate" / "hosts"

HEAD = """\
# Hosts

<!-- Made by scripts/write_hosts.py from what the conformance suite found in each framework: `make hosts docs`. -->

Each row is a scenario of `tests/hosts/scenarios.py`, played in the framework's own agent loop (its MCP client, for MCP)
against a local model server. ✓ means it came out as in every other host; a number is something that the framework has
no way to do, with the reason below. `raw` is no framework: a loop around an SDK, with the tool in the API's dialect.
"""


def main() -> None:
    """Read and write."""
    found = load(FOUND)
    drivers = {path.stem for path in (ROOT / "tests" / "hosts" / "drivers").glob("[a-z]*.py")}
    if missing := drivers - {one.host for one in found}:
        sys.exit(f"nothing was found yet for {', '.join(sorted(missing))}: make hosts")
    FILE.write_text("\n".join([HEAD, *_table(found), *sections()]), encoding="utf-8")


def _table(found: list[Found]) -> list[str]:
    why = reasons(found)
    number = {reason: n for n, reason in enumerate(why, start=1)}
    table = [f"| {' | '.join(row)} |" for row in rows(found, number)]
    return [*table, "", *(f"{n}. {reason}" for reason, n in number.items()), ""]


def sections() -> list[str]:
    """Each adapter's own account of how it is registered."""
    texts: list[str] = []
    for path in sorted([*HOSTS.glob("[a-z]*.py"), *HOSTS.glob("[a-z]*/__init__.py")]):
        host = path.stem if path.name != "__init__.py" else path.parent.name
        account = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if host not in ("host_tool", "progress", "stream", "hermes_plugin") and account:
            texts.append(f"## {host}\n\n{_as_markdown(account)}\n")
    return texts


def _as_markdown(docstring: str) -> str:
    """Indented blocks are code; what neither imports nor delegates isn't Python."""
    return re.sub(r"^ {4}\S.*(?:\n+ {4}.*)*", _fenced, docstring, flags=re.MULTILINE)


def _fenced(block: re.Match[str]) -> str:
    code = textwrap.dedent(block[0])
    language = "python" if re.search(r"^(from|import) |delegator = ", code, re.MULTILINE) else "text"
    return f"```{language}\n{code}\n```"


if __name__ == "__main__":
    main()
