"""Writes `docs/faults.md`: what comes of each fault, and in words who retries what."""

from collections.abc import Callable

from delegate.budget.metering import PATIENCE_SECONDS
from delegate.child.loop import MAX_CALLS_PER_TURN
from delegate.judging.judge.session import MAX_ATTEMPTS
from delegate.judging.judge.session import PATIENCE_SECONDS as JUDGES_PATIENCE
from delegate.models.ratelimit import OVERLOAD_RETRIES
from tests.faults.faults import ROWS, SCENES, WIRES, Row, Scene, WireName

Outcome = Callable[[Row, WireName, Scene], str]
"""What came of a fault."""

HEAD = f"""# What becomes of a fault

<!-- Made by scripts/write_faults.py from what was measured; the suite measures it again and fails where it differs. -->

A local server does each of these things to the providers' own SDKs, while a call of two tasks runs. In every case each
task got exactly one result within its deadline, the host saw no exception, and the other task, at the same endpoint,
got its PASS.

Who tries again:

* **The SDK**, twice, after 408, 409 (Google's doesn't), 500 and 502, after a broken connection, and after a body that
  breaks off (Google's doesn't). All of it has to end within `call_timeout_seconds`, which also ends a call that hangs
  or drips; such a call isn't made again.
* **The rate limiter**, for all callers of one model together. After 429 it asks again for up to
  {PATIENCE_SECONDS:g} s, or {JUDGES_PATIENCE:g} s for a judge in whose place another may be asked; after 503 and 529,
  {OVERLOAD_RETRIES} times within the same limits. Where the server asks for a longer wait, nobody waits.
* **The child's model**, which reads what was wrong with a tool call and goes on. In one turn, {MAX_CALLS_PER_TURN}
  tools are called at most; it reads that too.
* **The judging**, with another model: at most {MAX_ATTEMPTS} are asked, until one has answered. A refusal, a cut-off
  text and an unreadable judgement are answers: nobody else is asked for a better one.
* **Nobody** runs a task twice. A child that failed is not judged: its verdict is FAIL, `run_failed`, and the parent
  decides what to do.

In the tables, `failed: auth (1)` is a child's status, its error's code, and how often its model was asked. What was
completed has its verdict, and that one's code, in place of the status. A judge's fault is on the verdict, under
`judge.attempts`, by the code that a child's error has.
"""

TITLES: dict[Scene, str] = {
    "child": "The child's model",
    "judge": "The judge's model, where no other may judge",
    "first_judge": "The judge's model, where another may judge",
}
COLUMNS: dict[WireName, str] = {
    "chat": "OpenAI Chat",
    "responses": "OpenAI Responses",
    "messages": "Anthropic",
    "generate": "Google",
}


def document(outcome: Outcome) -> str:
    """The whole file."""
    return "\n".join([HEAD, *(_table(scene, outcome) for scene in SCENES)])


def _table(scene: Scene, outcome: Outcome) -> str:
    lines = [
        f"## {TITLES[scene]}\n",
        _line(["what the server does", *COLUMNS.values()]),
        _line(["---"] * (1 + len(COLUMNS))),
        *(_line([row.words, *(outcome(row, wire, scene) for wire in WIRES)]) for row in ROWS),
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
