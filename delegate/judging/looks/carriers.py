"""Tells what the arguments of a look-up could carry away: an address that isn't known, or more than a few words.

What is known is free, since the tool that gets it learns nothing but that it was chosen: names, ids and dates that
stand in the goal, the criteria, the worker's calls and their results, or in earlier look-ups. All keys and values of
a call count together, so that a text can't go away in pieces.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from delegate._util.redaction import redactor
from delegate.judging.looks.look import Look
from delegate.judging.proof.values import leaves
from delegate.judging.submission import Submission
from delegate.types.ports import Tool

MAX_CHARS = 200
"""How much a call may have that isn't known."""
MAX_KNOWN_CHARS = 100
"""A longer text counts in full, also where it is known, unless the worker itself sent it as it is."""
MAX_ALL_CHARS = 1_000
"""Length of all keys and values together."""
_CHOICE_CHARS = 2
"""How much a known text counts: that it was chosen among others says as much as this."""

_ADDRESS = re.compile(
    r"""
    (?:[a-z][a-z0-9+.-]*:)?[/\\]{2}[^\s"'<>]+             # https://host/path, //host, \\host
    | [a-z][a-z0-9+.-]+:[/\\][^\s"'<>]+                   # http:/host: programs complete it
    | [^\s@"'<>(),;:]+@[^\s@"'<>(),;]+                    # user@host?body=
    | (?:(?:[^\W_](?:[\w-]*[^\W_])?\.)+(?:xn--[\w-]+|[^\W\d_]{2,})(?![\w-])   # host.example
       | (?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])       # 192.0.2.1
       | \[[0-9a-f:]*:[0-9a-f:.]*\])                      # [2001:db8::1]
      (?:[:/?\#\\][^\s"'<>]*)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_IDEOGRAPHIC_STOP = re.compile(r"(?<=[a-z0-9])\u3002(?=[a-z])", re.IGNORECASE)
"""Names of hosts may be written with it instead of a dot."""


class Known:
    """What stands in the task, in the worker's successful calls and in what look-ups have shown."""

    def __init__(self, submission: Submission, tool: Tool, earlier: Iterable[Look]) -> None:
        task, calls = submission.task, [receipt for receipt in submission.run.receipts if receipt.status == "ok"]
        self._sent = {_folded(text) for receipt in calls for text in leaves(receipt.args)}
        texts = [
            submission.asked,
            task.context or "",
            *(criterion.describe() for criterion in task.criteria),
            json.dumps(tool.parameters),
        ]
        outputs = [look.receipt.whole_output for look in earlier if look.kind == "state" and look.found.status == "ok"]
        results = [receipt.whole_output for receipt in calls]
        self._text = "\n".join(map(_folded, (*texts, *self._sent, *results, *outputs)))

    def was_sent(self, text: str) -> bool:
        """Whether an argument of the worker was just this."""
        return _folded(text) in self._sent

    def __contains__(self, text: str) -> bool:
        """Whether the text stands there as a whole."""
        folded = _folded(text)
        return (
            folded in self._text
            and re.search(rf"(?<![\w.@-]){re.escape(folded)}(?![\w@-]|\.\w)", self._text) is not None
        )


def why_not_sent(args: Mapping[str, Any], known: Known) -> str | None:
    """Why a tool is not called with these arguments; None if they can carry nothing away."""
    texts = leaves(args)
    new = [text for text in texts if text and not known.was_sent(text)]
    if len(texts) > MAX_ALL_CHARS or sum(map(len, new)) > MAX_ALL_CHARS:
        return f"all arguments together have over {MAX_ALL_CHARS:,} characters"
    for text in new:
        match = _ADDRESS.search(_folded(text))
        address = match[0].rstrip(".,;:!?)") if match else ""
        if address and address not in known and text not in known:
            excerpt = redactor.beginning(address, 100)
            return f"{excerpt!r} could be an address, and is neither in the task nor in a call of the worker"
    costs = (_CHOICE_CHARS if len(text) <= MAX_KNOWN_CHARS and text in known else len(text) for text in new)
    if sum(costs) + _CHOICE_CHARS * (len(texts) - len(new)) > MAX_CHARS:
        return (
            f"the arguments have over {MAX_CHARS} characters that are neither in the task nor in a call of the worker"
        )
    return None


def _folded(text: str) -> str:
    return " ".join(_IDEOGRAPHIC_STOP.sub(".", unicodedata.normalize("NFKC", text)).casefold().split())
