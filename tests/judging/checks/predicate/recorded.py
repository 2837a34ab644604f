"""Expressions, and what node gave for each: in `node_results.jsonl`, so that node isn't needed to compare with it.

    python -m tests.judging.checks.predicate.recorded

asks node again, which is needed after the expressions have changed.
"""

import hashlib
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.judging.checks.predicate.expressions import Writer

HERE = Path(__file__).parent
NODE = shutil.which("node")
DATA = """{
  "n": 3, "f": 1.5, "t": true, "z": null, "neg": -0.0, "big": 9007199254740993, "tiny": 5e-324,
  "s": "Hello, World", "e": "a😀b", "h": "0x1F", "empty": "", "sharp": "Straße",
  "l": [3, 1, 2], "w": ["b", "a", "c"], "o": {"b": 1, "10": 2, "9": 3, "a": {"c": null}},
  "rows": [{"id": 1, "ok": true, "tags": ["x"]}, {"id": 2, "ok": false, "tags": []}]
}"""
"""What the expressions in `edges.txt` are about, one per line."""


class Case(NamedTuple):
    """An expression, the JSON that it is about, and node's result in the form of `plain.js`."""

    expression: str
    text: str
    result: Any

    def throws(self, error: str = "") -> bool:
        """Whether node threw, and an error of that name."""
        return json.dumps(self.result).startswith(f'{{"throws": "{error}')


@cache
def written() -> dict[str, list[tuple[str, str]]]:
    """The expressions and their JSON, by group; the same ones every time."""
    writer = Writer(seed=20261126)
    return {
        "edges": [(line, DATA) for line in (HERE / "edges.txt").read_text(encoding="utf-8").splitlines()],
        "random": [writer.case() for _ in range(4_000)],
        "patterns": [writer.search() for _ in range(2_000)],
        "precedence": [writer.soup() for _ in range(2_000)],
    }


def digest() -> str:
    """Of all expressions and their JSON."""
    return hashlib.sha256(json.dumps(written()).encode()).hexdigest()


def read() -> tuple[dict[str, str], dict[str, list[Case]]]:
    """What is known of the record, and the cases by group."""
    first, *rest = (HERE / "node_results.jsonl").read_text(encoding="ascii").splitlines()
    results = map(json.loads, rest)
    return json.loads(first), {
        group: [Case(*case, next(results)) for case in cases] for group, cases in written().items()
    }


def ask_node() -> list[str]:
    """What node says, as one line of JSON per expression."""
    assert NODE is not None
    lines = [json.dumps(case) for cases in written().values() for case in cases]
    ran = subprocess.run(
        [NODE, HERE / "oracle.js"], input="\n".join(lines), capture_output=True, text=True, timeout=50, check=True
    )
    return [json.dumps(json.loads(line)) for line in ran.stdout.split("\n")]


def node_version() -> str:
    """Such as `v20`; empty where there is no node."""
    if NODE is None:
        return ""
    ran = subprocess.run([NODE, "--version"], capture_output=True, text=True, timeout=30, check=True)
    return ran.stdout.partition(".")[0]


if __name__ == "__main__":
    head = json.dumps({"node": node_version(), "written": digest()})
    (HERE / "node_results.jsonl").write_text("\n".join([head, *ask_node()]) + "\n", encoding="ascii")
