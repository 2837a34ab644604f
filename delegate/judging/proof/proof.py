"""Decides what proves one part of a criterion, by what it was read to be about.

The judge may quote anything that it saw. Its quote counts only if it stands in a source that can show the matter:

* `report`: the report, the conversation with a user where the host knows it, and the file into which the goal asks the
  text to be written.
* `file`: the file as it was left, the list of changes, or a check on it. Without a workspace, the call that wrote it.
* `deed`: a successful call of one of the tools that can bring it about, with all of its names outside of what the child
  worded itself, or a check of just that. Where such a call is recorded, code finds it without a quote. A call whose
  result doesn't say whether it succeeded counts if the judge quotes it. Where it is pending or was undone later, or the
  deed is about all calls or their number, it is met, but unverified.
* what nobody read: as a deed, or on trust a file that it names.
* `absence`: the complete list of changes, and the complete record of calls (`absences.py`).

What the child merely wrote down never shows a deed. What its own commands print shows that they ran, no state beyond: a
deed that only they show is met, but unverified. What a judge looked at after the child was gone counts for what it
shows: a text, the result of a command, the state of things (`seen.py`).
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from delegate.judging.judge.evidence import EARLIER_RECEIPTS, Evidence
from delegate.judging.judge.sources import manifest_line
from delegate.judging.proof import absences
from delegate.judging.proof.files import is_check_of
from delegate.judging.proof.literals import fold, missing
from delegate.judging.proof.seen import Seen, Shown, Subject
from delegate.judging.proof.undoing import is_undone, may_be_changed
from delegate.judging.proof.values import leaves
from delegate.types import (
    AnyCriterion,
    JsonObject,
    ProbeCriterion,
    Receipt,
    ReceiptCriterion,
    ShellCriterion,
    StatementPart,
)
from delegate.types.codes import WorkCode

_OWN_WORDS = ("report", "said")
"""Sources that are only the child's statements."""
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


class Refused(NamedTuple):
    """Why a quote doesn't count, and the source in which it stands."""

    source: str
    reason: str


class Proof(Subject):
    """What can prove one part of a criterion about one submission."""

    def find(self, quote: str, preferred: str = "") -> Shown | Refused | None:
        """The source in which the quote counts, or else the one in which it stands and why it doesn't count there.

        None if the quote stands nowhere, and nothing else shows the part.
        """
        call = self._call if self.part.about == "deed" else None
        if call is not None and call.code == "met":
            return call
        refusal: Refused | None = None
        shown: list[Shown] = []
        for source in self.evidence.find_all(quote, preferred):
            answer = self.shown_in(source, quote)
            if isinstance(answer, str):
                refusal = refusal or Refused(source, answer)
            elif answer.code == "met":
                return answer
            else:
                shown.append(answer)
        unclear = (match for match in shown if match.code == "unclear_result")
        other = _unseen(call) if call is not None else next(iter(shown), refusal)
        return next(unclear, other)

    def seen_in_picture(self, source: str) -> Shown | None:
        """The look at an image or a PDF that the judge names, in which no quote can be found."""
        look = self.evidence.looks.get(source.strip())
        return Seen(self, look, self.shown_in).picture() if look is not None else None

    def despite_doubt(self, quote: str) -> Shown | None:
        """What counts although the judge can't tell.

        A call by one of the tools with all names proves a deed. Where it proves less (nothing names it, it is about all
        calls, or only the writing of a file is on record), it is met, but unverified. A command that nothing names is
        any command: it counts only if the judge quotes it.
        """
        call = self._call
        if call is None:
            nearly = [receipt for receipt in self.calls.succeeded if self._nearly_shows(receipt)]
            return Shown(f"receipt:{nearly[-1].n}", "unlinked") if nearly else None
        receipt = self.calls.number(call.source.partition(":")[2])
        if self.part.about == "deed" and is_undone(receipt, self.names, self.calls):
            return None
        if self.part.about == "file" or (self.part.names and not self.part.whole):
            return _unseen(call)
        by_acting = call.code in ("met", "unclear_result", "unconfirmed")
        if by_acting or call.source in self.evidence.find_all(quote):
            return Shown(call.source, "unconfirmed")
        return None

    @cached_property
    def _call(self) -> Shown | None:
        """The latest recorded call that shows a deed, or that wrote a file that can't be seen. It needs no quote."""
        match self.part.about:
            case "deed" if self.part.tools:
                calls = [receipt for receipt in self.calls.receipts if self._shows(receipt)]
            case "file" if self.part.files and self.submission.folder is None:
                calls = [receipt for receipt in self.calls.receipts if self._writes(receipt)]
            case _:
                return None
        shown = [Shown(f"receipt:{receipt.n}", worth) for receipt in calls if (worth := self._worth(receipt))]
        if not shown and self.part.about == "deed":
            in_words = filter(self._names_in_words, self.calls.succeeded)
            shown = [Shown(f"receipt:{receipt.n}", "unlinked") for receipt in in_words]
        return next((place for place in reversed(shown) if place.code == "met"), shown[-1] if shown else None)

    @property
    def wanted(self) -> str:
        """The one thing that would have shown the part, and the criterion with which code decides it."""
        match self.part.about:
            case "report":
                return "a quote from the report"
            case "file":
                paths = [path for path in self.part.files if not re.search(r"[*?\[]", path)]
                check = {"kind": "file", "path": paths[0], "contains": "\u2026"} if paths else None
                return _proposal(f"a quote from {', '.join(self.part.files) or 'a file that the child left'}", check)
            case "deed":
                if self.by == "nobody":
                    begin = "begin it with `report: `, `file PATH: ` or `deed: `"
                    return f"that depends on what the criterion is about, which no model could read; {begin}"
                tools = " or ".join(f"`{tool}`" for tool in self.part.tools)
                names = ", ".join(repr(name) for name in self.names)
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
        if look := self.evidence.looks.get(source):
            if look.kind != "work":  # what a command only prints counts as a quote from the file
                return source if look.is_cut and look.kind == "state" else None
            sources = (piece.source for piece in look.found.pieces if self._may_show(piece.source))
            return next((unseen for origin in sources if (unseen := self.unseen(origin))), None)
        if self.part.about == "absence" or (self.part.about == "deed" and not self.is_read):
            return None
        if self.part.about == "deed" and EARLIER_RECEIPTS in cut:
            return EARLIER_RECEIPTS
        if self.part.about == "file" and source not in cut:
            return next(filter(self.is_source, sorted(cut)), None)
        return source if source in cut else None

    def _may_show(self, source: str) -> bool:
        """Whether a source can show the part, as far as its name tells."""
        own = {"report": _OWN_WORDS, "file": ("artifacts",)}.get(self.part.about)
        return own is None or source in own or self.is_source(source) or source in self.evidence.looks

    def shown_in(self, source: str, quote: str) -> Shown | str:
        """What the quote from this source is worth, or why it can't prove the part."""
        if look := self.evidence.looks.get(source):
            return Seen(self, look, self.shown_in).shown(quote)
        match self.part.about:
            case "report":
                if source == "report" and _says_nothing(self.submission.run.report):
                    return "the report says nothing"
                if source in _OWN_WORDS or (self.part.files and self.is_source(source)):
                    return Shown(source)
                return "it asks what the report says, and the quote isn't from the report"
            case "file":
                return self._file(source, quote)
            case "deed":
                return self._deed(source, quote)
            case "absence":
                return Shown(source, absences.worth(self.part, self.by, self.submission, self.calls))

    # ------------------------------------------------------------------------------------------------------- files

    def _file(self, source: str, quote: str) -> Shown | str:
        kind, _, detail = source.partition(":")
        target = ", ".join(self.part.files) or "a file that the child left"
        if source in _OWN_WORDS:
            return "only the report says so"
        if kind == "check":
            shows = (check := self._criterion(detail)) is not None and is_check_of(check, self.part.files)
            return Shown(source) if shows else f"the check {detail} doesn't show that of {target}"
        if kind == "receipt" and self.submission.folder is not None:
            return f"a tool call doesn't show what is in {target}"
        if kind == "receipt":  # without a workspace, the call that wrote the file is the only trace of it
            receipt = self.calls.number(detail)
            if not self._writes(receipt):
                return f"the call of {receipt.tool} did not write {target}"
            worth = self._worth(receipt)
            return Shown(source, worth) if worth else f"{receipt.tool} only looks something up"
        if source == "artifacts":
            if not self._is_listed(quote):
                return f"the quote is not the line of {target}"
            texts = [text for name, text in self.evidence.sources.items() if self.is_source(name)]
            statement = self.part.text
            only = texts and all(len(text) < 2 * len(statement) and _repeats(statement, text) for text in texts)
            return f"{target} only repeats the criterion" if only else Shown(source)
        if not self.is_source(source):
            return f"the quote is from {detail}, not from {target}"
        if _repeats(self.part.text, quote):
            return f"{source} only repeats the criterion"
        return Shown(source)

    def _is_listed(self, quote: str) -> bool:
        """Whether the quote stands in the line of a file that is meant."""
        folded = " ".join(quote.split())
        artifacts = [artifact for artifact in self.submission.run.artifacts if folded in manifest_line(artifact)]
        return any(self.is_meant(artifact.path) for artifact in artifacts)

    def _writes(self, receipt: Receipt) -> bool:
        """Whether a call that succeeded, or is pending, names the file."""
        names_file = not self.part.files or any(self.is_meant(text) for text in leaves(receipt.args))
        return names_file and self.calls.is_done_or_pending(receipt)

    # ------------------------------------------------------------------------------------------------------- deeds

    def _deed(self, source: str, quote: str) -> Shown | str:
        kind, _, detail = source.partition(":")
        if kind == "receipt":
            receipt = self.calls.number(detail)
            if self._shows(receipt) or (self.calls.did_succeed(receipt) and self._is_seen_later(receipt)):
                return Shown(source, self._worth(receipt) or "unconfirmed")
            nearly = self._nearly_shows(receipt, least=0) or self._names_in_words(receipt)
            return Shown(source, "unlinked") if nearly else self._why_not(receipt)
        if kind == "check":
            return self._deed_by_check(source, detail)
        if source in _OWN_WORDS:
            return "only the report says so"
        if self.part.files and self.is_source(source):  # nobody read it, so it may be about this file
            answer = self._file(source, quote)
            return Shown(source, "not_read") if isinstance(answer, Shown) else answer
        return f"{source} doesn't show that it was done"

    def _deed_by_check(self, source: str, id: str) -> Shown | str:
        """What a check shows, which proves its own statement and no other: an expected call, a state it asked for.

        That a command succeeds shows a deed only as far as the judge understands the command.
        """
        part, names = self.part, self.names
        match criterion := self._criterion(id):
            case ReceiptCriterion() if criterion.mode != "none":
                tools = [
                    call.tool
                    for call in criterion.calls
                    if not part.tools or call.tool in part.tools
                    if not missing(names, "\n".join(leaves([call.args, call.result])))
                ]
                receipts = [receipt for receipt in self.calls.receipts if receipt.tool in tools]
                worths = {self._worth(receipt) for receipt in receipts if self._shows(receipt)}
                if tools:
                    weaker: WorkCode = "unclear_result" if "unclear_result" in worths else "unconfirmed"
                    return Shown(source, "met" if "met" in worths else weaker)
            case ProbeCriterion() if names:
                if not missing(names, "\n".join(leaves([criterion.args, criterion.expr, criterion.schema_]))):
                    return Shown(source)
            case ShellCriterion() if not part.tools or any(self.calls.effects.get(t) == "commands" for t in part.tools):
                text = f"{criterion.command}\n{self.evidence.sources[source]}"
                # That a file is there, as the shell tests it, shows nothing that was done.
                if not missing(names, text) and not re.fullmatch(r"\s*(?:test\s|\[\s).*", criterion.command):
                    return Shown(source, "unconfirmed")
            case _:
                pass
        return f"the check {id} doesn't show that it was done"

    def _criterion(self, id: str) -> AnyCriterion | None:
        return next((criterion for criterion in self.submission.task.criteria if criterion.id == id), None)

    def _shows(self, receipt: Receipt) -> bool:
        """Whether the call shows the deed: by a tool that can bring it about, with all names.

        Where a deed is about several calls, each name may be in another one. A pending call shows it unverified.
        """
        calls, names, tools = self.calls, self.names, self.part.tools
        if not calls.is_done_or_pending(receipt):
            return False
        if not tools:
            if self.is_read and receipt.tool in calls.effects:  # the reader knew the tool, and didn't name it
                return False
            return calls.effect(receipt) not in ("reads", "files") and calls.contains(receipt, names, proves=True)
        if self._is_nested(receipt):
            return calls.contains(receipt, names)
        only_looked = calls.effects.get(receipt.tool) == "acts" and calls.effect(receipt) == "reads"
        if receipt.tool not in tools or only_looked:
            return False
        if calls.contains(receipt, names, proves=True):
            return True
        if not self._is_of_all or not any(calls.contains(receipt, [name], proves=True) for name in names):
            return False
        by = [call for call in calls.succeeded if call.tool in tools]
        return all(any(calls.contains(call, [name], proves=True) for call in by) for name in names)

    @property
    def _is_of_all(self) -> bool:
        """Whether it was read to be about all calls, or how many there are."""
        return self.part.whole and self.is_read

    def _names_in_words(self, receipt: Receipt) -> bool:
        """Whether the call has a name where it counts, and the others only in what the child worded."""
        if receipt.tool not in self.part.tools or not self.calls.did_succeed(receipt):
            return False
        absent = self.calls.missing(receipt, self.names, proves=True)
        return len(absent) < len(self.names) and self.calls.contains(receipt, self.names)

    def _nearly_shows(self, receipt: Receipt, *, least: int = 1) -> bool:
        """Whether only a proper name is missing that the whole record ties to no id, as where a deal is known by its id
        alone. Then nothing contradicts a judge who sees the deed in this call, and nothing confirms which one it is.
        `least` is how many other names it has to contain.
        """
        if self.part.about != "deed" or not self.calls.did_succeed(receipt) or receipt.tool not in self.part.tools:
            return False
        absent = self.calls.missing(receipt, self.names, proves=True)
        has_others = len(self.names) - len(absent) >= least
        return has_others and all(_PROPER_NAME.fullmatch(name) and not self.calls.ids_of(name) for name in absent)

    def _is_seen_later(self, receipt: Receipt) -> bool:
        """Whether the call has a part of the names, and a look-up after it has all of them: the state that several
        calls brought about, as where leave over the turn of the year takes two entries.

        A look-up may read a file of the child, so what the child wrote into files doesn't count.
        """
        calls, names = self.calls, self.names
        if receipt.tool not in self.part.tools or len(calls.missing(receipt, names)) == len(names):
            return False
        writes = [call for call in calls.receipts if calls.effect(call) in ("files", "commands", None)]
        if any(calls.contains(call, [name]) for call in writes for name in names):
            return False
        later = [call for call in calls.succeeded if call.n > receipt.n and calls.effect(call) == "reads"]
        return any(calls.contains(call, names) for call in later)

    def _is_nested(self, receipt: Receipt) -> bool:
        """Whether another agent was asked, whose deeds aren't in this record."""
        tool = next((candidate for candidate in self.submission.tools or () if candidate.name == receipt.tool), None)
        return tool is not None and tool.effects is not None and "delegation" in tool.effects

    def _worth(self, receipt: Receipt) -> WorkCode | None:
        """What a call that shows the deed is worth; None for a look-up by a tool that the reading doesn't name."""
        worth = self._worth_alone(receipt)
        if worth != "met" or self.calls.effect(receipt) != "acts":
            return worth
        if self.names and not self.calls.is_identified(receipt, self.names):
            return "unlinked"
        said = self.calls.said(receipt)
        if self._is_of_all or said in ("not_yet", "doubtful"):
            return "unconfirmed"
        if may_be_changed(receipt, self.calls) or is_undone(receipt, self.names, self.calls):
            return "unconfirmed"
        return "met" if said == "yes" else "unclear_result"

    def _worth_alone(self, receipt: Receipt) -> WorkCode | None:
        """The same by what its tool does, whatever came of it and after it."""
        if self.by == "nobody":
            return "not_read"
        if self._is_nested(receipt) and receipt.tool not in self.part.tools:
            return "incomplete_record"
        match self.calls.effect(receipt):
            case "commands":
                return "own_commands"
            case "reads":
                return "met" if receipt.tool in self.part.tools else None
            case _ if self.part.about == "file":
                return "file_unseen"
            case "files":
                return "own_files"
            case "acts":
                return "met" if self.part.tools or self.names else "unlinked"
            case None:
                return "unknown_effect"

    def _why_not(self, receipt: Receipt) -> str:
        source = f"receipt:{receipt.n}"
        if not self.calls.did_succeed(receipt):
            return f"the call of {receipt.tool} did not succeed ({source})"
        is_other = receipt.tool not in self.part.tools and (self.part.tools or self.is_read)
        if is_other and receipt.tool in self.calls.effects:
            return f"{receipt.tool} doesn't bring it about ({source})"
        if absent := self.calls.missing(receipt, self.names, proves=True):
            return f"{source} doesn't contain {absent[0]!r}"
        only = "writes files" if self.calls.effect(receipt) == "files" else "looks something up"
        return f"{receipt.tool} only {only} ({source})"


def _unseen(call: Shown) -> Shown:
    """A call that code found. If its result says nothing of success, it counts as far as a judge saw that result."""
    return Shown(call.source, "unconfirmed") if call.code == "unclear_result" else call


def _says_nothing(report: str) -> bool:
    return len(report) < _EMPTY_CHARS and " ".join(re.findall(r"\w+", report.lower())) in _EMPTY_WORDS


def is_own_word(parts: Sequence[StatementPart], quote: str, evidence: Evidence) -> bool:
    """Whether a statement isn't about the report, and the quote is only the child's word."""
    is_elsewhere = any(part.about != "report" for part in parts)
    origins = (origin for source in evidence.find_all(quote) for origin in evidence.origins(source, quote))
    return is_elsewhere and all(origin in _OWN_WORDS for origin in origins)


def _repeats(statement: str, quote: str) -> bool:
    """Whether the quote only says the statement again, in nearly the same words."""
    quote_words, words = set(re.findall(r"\w+", fold(quote))), re.findall(r"\w+", fold(statement))
    return len(words) >= 3 and sum(word in quote_words for word in words) >= 0.85 * len(words)


def _proposal(evidence: str, check: JsonObject | None) -> str:
    return f"{evidence}, or {json.dumps(check, ensure_ascii=False)}" if check else evidence
