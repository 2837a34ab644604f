"""Decides what proves one part of a criterion, by what it was read to be about.

The judge may quote anything that it saw. Its quote counts only if it stands in a source that can show the matter:

* `report`: the report, the conversation with a user where the host knows it, and the file into which the goal asks the
  text to be written.
* `file`: the file as it was left, the list of changes, or a check on it. Without a workspace, the call that wrote it.
* `deed`: a successful call of one of the tools that can bring it about, with all of its names, or a check. Where such a
  call is recorded, code finds it without a quote.
* `absence`: the complete list of changes, and the complete record of calls (`absences.py`).

What the child merely wrote down never shows a deed. What its own commands print shows that they ran, no state beyond: a
deed that only they show is met, but unverified.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from delegate.judging.judge.evidence import EARLIER_RECEIPTS, Evidence
from delegate.judging.proof import absences
from delegate.judging.proof.calls import Calls, leaves
from delegate.judging.proof.files import base, same_file
from delegate.judging.proof.literals import fold, literals_in, missing
from delegate.judging.submission import Submission
from delegate.types import FileCriterion, JsonObject, ReadBy, Receipt, ShellCriterion, StatementPart

_OWN_WORDS = ("output", "said")
"""Sources that are only the child's statements."""
_CHECKS_OF_DEEDS = ("shell", "receipt", "probe", "text", "question")
_EMPTY_WORDS = frozenset({
    "thought process", "solution", "answer", "final answer", "response", "output", "result", "results", "explanation",
    "analysis", "conclusion", "let s solve this problem step by step", "let me think", "ok", "okay", "done", "none",
    "null", "n a", "na", "todo", "tbd", "placeholder", "lorem ipsum", "respuesta", "lösung", "解", "解答", "解説",
    "かいせつ",
})  # fmt: skip
"""Whole reports that say nothing, and that judges are known to accept all the same ("One Token to Fool LLM-as-a-Judge",
arXiv 2507.08794). They show nothing about a report."""
_EMPTY_CHARS = 100
"""Length of a report that may be one of these."""


_PROPER_NAME = re.compile(r"[^\W\d_]+(?:[ '.-]+[^\W\d_]+)*\.?")
"""Letters only: no id, address, number or date."""


class Shown(NamedTuple):
    """The source that shows a part, and what that is worth: the code is `met`, or that of an unverified criterion."""

    source: str
    code: str = "met"


class Refused(NamedTuple):
    """Why a quote doesn't count, and the source in which it stands."""

    source: str
    reason: str


@dataclass(frozen=True)
class Proof:
    """What can prove one part of a criterion about one submission."""

    part: StatementPart
    by: ReadBy
    submission: Submission
    evidence: Evidence
    calls: Calls

    def find(self, quote: str, preferred: str = "") -> Shown | Refused | None:
        """The source in which the quote counts, or else the one in which it stands and why it doesn't count there.

        None if the quote stands nowhere, and nothing else shows the part.
        """
        if self.part.about == "deed" and (call := self._call()) is not None:
            return call
        refused: Refused | None = None
        for source in self.evidence.find_all(quote, preferred):
            found = self._shown_in(source, quote)
            if isinstance(found, Shown):
                return found
            refused = refused or Refused(source, found)
        return refused

    def despite_doubt(self, quote: str) -> Shown | None:
        """What counts although the judge can't tell.

        A call by one of the tools with all names proves a deed. Where it proves less (nothing names it, it is about all
        calls, or only the writing of a file is on record), it is met, but unverified. A command that nothing names is
        any command: it counts only if the judge quotes it.
        """
        call = self._call()
        if call is None:
            nearly = [one for one in self.calls.succeeded if self._nearly_shows(one)]
            return Shown(f"receipt:{nearly[-1].n}", "unlinked") if nearly else None
        if self.part.about == "file" or (self.part.names and not self.part.whole):
            return call
        if call.code == "met" or call.source in self.evidence.find_all(quote):
            return Shown(call.source, "unconfirmed")
        return None

    def _call(self) -> Shown | None:
        """The latest recorded call that shows a deed, or that wrote a file nobody can see, found without a quote."""
        match self.part.about:
            case "deed" if self.part.tools:
                calls = [one for one in self.calls.succeeded if self._shows(one)]
            case "file" if self.part.files and self.submission.folder is None:
                calls = [one for one in self.calls.succeeded if self._writes(one)]
            case _:
                return None
        shown = [Shown(f"receipt:{one.n}", worth) for one in calls if (worth := self._worth(one))]
        return next((one for one in reversed(shown) if one.code == "met"), shown[-1] if shown else None)

    @property
    def wanted(self) -> str:
        """The one thing that would have shown the part, and the criterion with which code decides it."""
        match self.part.about:
            case "report":
                return "a quote from the report"
            case "file":
                named = [path for path in self.part.files if not re.search(r"[*?\[]", path)]
                check = {"kind": "file", "path": named[0], "contains": "\u2026"} if named else None
                return _proposal(f"a quote from {', '.join(self.part.files) or 'a file that the child left'}", check)
            case "deed":
                if self.by == "nobody":
                    return "nobody read what it is about: begin it with `report: `, `file PATH: ` or `deed: `"
                tools = " or ".join(f"`{tool}`" for tool in self.part.tools)
                names = ", ".join(repr(name) for name in self._names)
                call = f"a successful call{f' of {tools}' if tools else ''}{f' with {names}' if names else ''}"
                check = {"kind": "receipt", "calls": [{"tool": self.part.tools[0]}]} if tools else None
                return _proposal(call, check)
            case "absence":
                tools = list(self.part.tools)
                check = {"kind": "receipt", "mode": "none", "of": tools} if tools and not self.part.allowed else None
                return _proposal("a complete record without such a call or change", check)

    def unseen(self, source: str) -> str | None:
        """A source that the judge saw only in part and that could contradict a statement about a whole."""
        if not self.part.whole:
            return None
        cut = self.evidence.cut
        match self.part.about:
            case "report":
                return source if source in cut else None
            case "file":
                named = sorted(one for one in cut if one.startswith(("artifact:", "file:")) and self._is_source(one))
                return source if source in cut else next(iter(named), None)
            case "deed" if self._is_read:
                return EARLIER_RECEIPTS if EARLIER_RECEIPTS in cut else source if source in cut else None
            case _:
                return None

    def _shown_in(self, source: str, quote: str) -> Shown | str:
        """What the quote from this source is worth, or why it can't prove the part."""
        match self.part.about:
            case "report":
                return self._report(source)
            case "file":
                return self._file(source, quote)
            case "deed":
                return self._deed(source, quote)
            case "absence":
                return Shown(source, absences.worth(self.part, self.by, self.submission, self.calls))

    def _report(self, source: str) -> Shown | str:
        if source == "output" and _says_nothing(self.submission.run.output):
            return "the report says nothing"
        if source in _OWN_WORDS or (self.part.files and self._is_source(source)):
            return Shown(source)
        return "it asks what the report says, and the quote isn't from the report"

    # ------------------------------------------------------------------------------------------------------- files

    def _file(self, source: str, quote: str) -> Shown | str:
        kind, _, detail = source.partition(":")
        wanted = ", ".join(self.part.files) or "a file that the child left"
        if source in _OWN_WORDS:
            return "only the report says so"
        if kind == "check":
            shows = self._check_shows_file(detail)
            return Shown(source) if shows else f"the check {detail} doesn't show that of {wanted}"
        if kind == "receipt":
            return self._written_by(self.calls.number(detail), wanted)
        if source == "artifacts":
            if not self._is_listed(quote):
                return f"the quote is not the line of {wanted}"
            texts = [text for name, text in self.evidence.sources.items() if self._is_source(name)]
            only = bool(texts) and all(_only_repeats(self.part.text, text) for text in texts)
            return f"{wanted} only repeats the criterion" if only else Shown(source)
        if not self._is_source(source):
            return f"the quote is from {detail}, not from {wanted}"
        if _repeats(self.part.text, quote):
            return f"{source} only repeats the criterion"
        return Shown(source)

    def _is_source(self, source: str) -> bool:
        kind, _, path = source.partition(":")
        return kind in ("artifact", "file") and self._is_meant(path)

    def _is_meant(self, path: str) -> bool:
        return not self.part.files or any(same_file(path, named) for named in self.part.files)

    def _is_listed(self, quote: str) -> bool:
        """Whether the quote stands in the line of a file that is meant."""
        folded = " ".join(quote.split())
        lines = zip(self.submission.run.artifacts, self.evidence.sources["artifacts"].splitlines(), strict=False)
        return any(folded in line and self._is_meant(artifact.path) for artifact, line in lines)

    def _check_shows_file(self, id: str) -> bool:
        """Whether a check is one of the file: a `file` check of it, or a command that names it."""
        criterion = next((one for one in self.submission.task.criteria if one.id == id), None)
        if isinstance(criterion, FileCriterion):
            return self._is_meant(criterion.path)
        if not isinstance(criterion, ShellCriterion):
            return False
        plain = [path for path in self.part.files if not re.search(r"[*?\[]", path)]
        return not plain or any(base(path) in criterion.command for path in plain)

    def _written_by(self, receipt: Receipt, wanted: str) -> Shown | str:
        """Without a workspace, the call that wrote the file is the only trace of it."""
        if self.submission.folder is not None:
            return f"a tool call doesn't show what is in {wanted}"
        if not self._writes(receipt):
            return f"the call of {receipt.tool} did not write {wanted}"
        worth = self._worth(receipt)
        return Shown(f"receipt:{receipt.n}", worth) if worth else f"{receipt.tool} only looks something up"

    def _writes(self, receipt: Receipt) -> bool:
        """Whether a call that succeeded names the file."""
        named = not self.part.files or any(self._is_meant(text) for text in leaves(receipt.args))
        return named and self.calls.did_succeed(receipt)

    # ------------------------------------------------------------------------------------------------------- deeds

    @cached_property
    def _names(self) -> Sequence[str]:
        """The literals that a call must contain; where no model told them, those that code can tell."""
        told = self._is_read and (self.part.names or self.part.tools)
        return self.part.names if told else literals_in(self.part.text)

    @property
    def _is_read(self) -> bool:
        return self.by in ("model", "stored")

    def _deed(self, source: str, quote: str) -> Shown | str:
        kind, _, detail = source.partition(":")
        if kind == "receipt":
            receipt = self.calls.number(detail)
            if self._shows(receipt):
                return Shown(source, self._worth(receipt))
            nearly = self._nearly_shows(receipt, least=0)
            return Shown(source, "unlinked") if nearly else self._why_not(receipt)
        if kind == "check" and self.evidence.checks[source] in _CHECKS_OF_DEEDS:
            absent = missing(self._names, self.evidence.sources[source])
            return f"the check {detail} doesn't name {absent[0]!r}" if absent else Shown(source)
        if source in _OWN_WORDS:
            return "only the report says so"
        return f"{source} doesn't show that it was done"

    def _shows(self, receipt: Receipt) -> bool:
        """Whether the call shows the deed: by a tool that can bring it about, with all names."""
        if not self.calls.did_succeed(receipt):
            return False
        if self.part.tools:
            may = receipt.tool in self.part.tools or self._is_nested(receipt)
            return may and self.calls.contains(receipt, self._names)
        if self._is_read and receipt.tool in self.calls.effects:  # the reader knew the tool, and didn't name it
            return False
        # By an unknown tool: what the child wrote at length, such as a message about the deed, doesn't name it.
        may = self.calls.effect(receipt) not in ("reads", "files")
        return may and self.calls.contains(receipt, self._names, short_only=True)

    def _nearly_shows(self, receipt: Receipt, *, least: int = 1) -> bool:
        """Whether only a proper name is missing that the whole record ties to no id, as where a deal is known by its id
        alone. Then nothing contradicts a judge who sees the deed in this call, and nothing confirms which one it is.
        `least` is how many other names it has to contain.
        """
        if self.part.about != "deed" or not self.calls.did_succeed(receipt) or receipt.tool not in self.part.tools:
            return False
        absent = self.calls.missing(receipt, self._names)
        has_others = len(self._names) - len(absent) >= least
        return has_others and all(_PROPER_NAME.fullmatch(name) and not self.calls.ids_of(name) for name in absent)

    def _is_nested(self, receipt: Receipt) -> bool:
        """Whether another agent was asked, whose deeds aren't in this record."""
        tool = next((one for one in self.submission.tools or () if one.name == receipt.tool), None)
        return tool is not None and tool.effects is not None and "delegation" in tool.effects

    def _worth(self, receipt: Receipt) -> str:
        """What a call that shows the deed is worth; empty for a look-up by a tool that the reading doesn't name."""
        if self.by == "nobody":
            return "not_read"
        match self.calls.effect(receipt):
            case "commands":
                return "own_commands"
            case "reads":
                return "met" if receipt.tool in self.part.tools else ""
            case _ if self.part.about == "file":
                return "file_unseen"
            case "files":
                return "own_files"
            case "acts":
                return "met" if self.part.tools or self._names else "unlinked"
            case None:
                return "unknown_effect"

    def _why_not(self, receipt: Receipt) -> str:
        source = f"receipt:{receipt.n}"
        if not self.calls.did_succeed(receipt):
            return f"the call of {receipt.tool} did not succeed ({source})"
        is_other = receipt.tool not in self.part.tools and (self.part.tools or self._is_read)
        if is_other and receipt.tool in self.calls.effects:
            return f"{receipt.tool} doesn't bring it about ({source})"
        if absent := self.calls.missing(receipt, self._names, short_only=not self.part.tools):
            return f"{source} doesn't contain {absent[0]!r}"
        only = "writes files" if self.calls.effect(receipt) == "files" else "looks something up"
        return f"{receipt.tool} only {only} ({source})"


def _says_nothing(report: str) -> bool:
    return len(report) < _EMPTY_CHARS and " ".join(re.findall(r"\w+", report.lower())) in _EMPTY_WORDS


def is_own_word(parts: Sequence[StatementPart], quote: str, evidence: Evidence) -> bool:
    """Whether a statement isn't about the report, and the quote is only the child's word."""
    is_elsewhere = any(part.about != "report" for part in parts)
    return is_elsewhere and all(source in _OWN_WORDS for source in evidence.find_all(quote))


def _repeats(statement: str, quote: str) -> bool:
    """Whether the quote only says the statement again, in nearly the same words."""
    said, asked = set(re.findall(r"\w+", fold(quote))), re.findall(r"\w+", fold(statement))
    return len(asked) >= 3 and sum(word in said for word in asked) >= 0.85 * len(asked)


def _only_repeats(statement: str, text: str) -> bool:
    """Whether a text has hardly more than the statement."""
    return len(text) < 2 * len(statement) and _repeats(statement, text)


def _proposal(wanted: str, check: JsonObject | None) -> str:
    return f"{wanted}, or {json.dumps(check, ensure_ascii=False)}" if check else wanted
