"""What a muffled command is called, and where in it the trouble sits."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

RULES: Mapping[str, str] = MappingProxyType(
    {
        "background": "the work runs in the background, and nobody waits for how it ends",
        "branch_hides_failure": "an `if` or `case` takes the failure, and no branch passes it on",
        "constant": "nothing in the command can fail because of the work",
        "curl_without_fail": "curl without --fail leaves with 0 on HTTP errors, 500 included",
        "discards_work": "the command undoes uncommitted work before it looks",
        "dropped_check": "the exit code of this check is lost, because another command follows it",
        "last_always": "the last command always succeeds, whatever came before",
        "loop_hides_failure": "a loop keeps at most its last exit code, so earlier failures are lost",
        "never_holds": "the command can never leave with the wanted exit code",
        "not_shell": "this is program code, not a shell command",
        "only_reports": "the command prints what it finds and leaves with 0 either way",
        "or_always": "what follows `||` always succeeds, so a failure before it is forgiven",
        "pipe_drops_status": "without pipefail a pipeline has the exit code of its last command only",
        "substitution_hides_status": "the exit code of a command inside $(…) is lost",
        "tool_flag": "an option makes the tool report without failing, or run nothing",
        "trap_exit": "a trap replaces the exit code",
        "unparsable": "the command is not valid shell, or too long or too nested to be read",
    }
)
"""Rule id → what it means, in one line. The ids are stable."""


@dataclass(frozen=True, slots=True)
class Muffle:
    """One place where a command loses the failure it should report.

    `start` and `end` are character offsets in the command, `text` is what stands between them, `why` says what is lost.
    """

    rule: str
    start: int
    end: int
    text: str
    why: str
