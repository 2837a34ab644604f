"""Decides what a judge's look proves of one part. The runtime made it, after the child was gone.

* A look at a text of the work proves what a quote from that text would prove.
* A command in a copy of the work proves what is in files, and deeds that commands bring about, such as tests that pass.
  A file of the child that is merely printed shows no more than the file itself.
* A look-up proves the state of things: a deed, if it names what the deed is about.
"""

from typing import TYPE_CHECKING, NamedTuple

from delegate.judging.looks.look import Look
from delegate.judging.proof import absences
from delegate.judging.proof.calls import Calls, failed, leaves
from delegate.judging.proof.files import base
from delegate.judging.proof.literals import missing
from delegate.types import Receipt

if TYPE_CHECKING:
    from delegate.judging.proof.proof import Proof

_TELLING_CHARS = 12
"""A shorter text may stand in a file of the child by chance."""


class Shown(NamedTuple):
    """The source that shows a part, and what that is worth: the code is `met`, or that of an unverified criterion."""

    source: str
    code: str = "met"


class Seen:
    """What one look is worth for the part that `proof` is about."""

    def __init__(self, proof: "Proof", look: Look) -> None:
        self._proof, self._part, self._look = proof, proof.part, look

    def shown(self, quote: str) -> Shown | str:
        """What a quote from the look is worth, or why it proves nothing."""
        if self._part.about == "absence":
            return Shown(self._look.name, self._absence())
        match self._look.kind:
            case "work":
                return self._work(quote)
            case "command":
                return self._command(quote)
            case "state":
                return self._state(quote)

    def _absence(self) -> str:
        """What the look is worth for an absence: the state of what it names shows more than the record of calls."""
        proof, look = self._proof, self._look
        if look.kind == "state" and self._part.names and not failed(look.receipt):
            seen = "\n".join((*leaves(look.receipt.args), look.receipt.whole_output))
            if not missing(self._part.names, seen):
                return "met"
        return absences.worth(self._part, proof.by, proof.submission, proof.calls)

    def picture(self) -> Shown | None:
        """What an image or a PDF is worth that the judge saw: no quote can be found in it."""
        names = [piece.source for piece in self._look.found.pieces]
        is_meant = self._part.about == "file" and any(map(self._proof.is_source, names))
        return Shown(self._look.name, "seen_by_model") if self._look.found.attachments and is_meant else None

    def _work(self, quote: str) -> Shown | str:
        if self._look.found.attachments:
            return self.picture() or f"{self._look.name} shows another file"
        why = f"{self._look.name} says so, and no source"
        for origin in self._proof.evidence.origins(self._look.name, quote):
            if origin == "files":
                found = Shown(origin) if self._is_listed(quote) else "the quote is not the line of the file"
            else:
                found = self._proof.shown_in(origin, quote)
            if isinstance(found, Shown):
                return Shown(self._look.name, found.code)
            why = found
        return why

    def _is_listed(self, quote: str) -> bool:
        """Whether the quote stands in the line of a file that is meant, in the list of unchanged files."""
        if self._part.about != "file":
            return False
        folded = " ".join(quote.split())
        texts = (piece.text for piece in self._look.found.pieces if piece.source == "files")
        lines = (line for text in texts for line in text.split("\n"))
        return any(folded in line and self._proof.is_meant(line.rpartition(" (")[0]) for line in lines)

    # ----------------------------------------------------------------------------------------------------- commands

    def _command(self, quote: str) -> Shown | str:
        look, part = self._look, self._part
        if look.found.status != "ok":
            return f"the command did not end ({look.name})"
        if (path := self._printed(quote)) is not None and not (part.about != "deed" and self._proof.is_meant(path)):
            return f"{look.name} only prints {path}, which the worker wrote"
        worth = "own_tests_only" if look.found.own_checks else "met"
        match part.about:
            case "file":
                return Shown(look.name, worth)
            case "report":
                named = any(base(path) in str(look.receipt.args.get("command")) for path in part.files)
                return Shown(look.name, worth) if named else "a command doesn't see what the report says"
            case _ if part.tools:
                runs = any(self._proof.calls.effects.get(tool) == "commands" for tool in part.tools)
                return Shown(look.name, worth) if runs else "a command in a copy of the work doesn't show that"
            case _:
                elsewhere = self._could_be_elsewhere() and bool(self._proof.names)
                return Shown(look.name, "unlinked" if elsewhere else worth)

    def _printed(self, quote: str) -> str | None:
        """The file of the child in which the quote stands as it is."""
        text = " ".join(quote.split())
        return self._proof.evidence.wrote(text) if len(text) >= _TELLING_CHARS else None

    def _could_be_elsewhere(self) -> bool:
        """Whether the child could do anything besides working in its folder."""
        tools = self._proof.submission.tools
        effects = self._proof.calls.effects
        return tools is None or any(effects.get(tool.name, "acts") == "acts" for tool in tools)

    # -------------------------------------------------------------------------------------------------------- state

    def _state(self, quote: str) -> Shown | str:
        look, proof, receipt = self._look, self._proof, self._look.receipt
        if failed(receipt):
            return f"the look-up did not succeed ({look.name})"
        if self._part.about == "report":
            return "it asks what the report says, and the quote isn't from the report"
        if self._part.about == "file":
            named = not self._part.files or any(map(proof.is_meant, leaves(receipt.args)))
            return Shown(look.name) if named else f"{look.name} doesn't show {', '.join(self._part.files)}"
        own_number = receipt.model_copy(update={"n": -receipt.n})  # the worker's calls are numbered too
        with_look = Calls((*proof.calls.receipts, own_number), proof.calls.effects, proof.calls.tools)
        if absent := with_look.missing(own_number, proof.names):
            return f"{look.name} doesn't contain {absent[0]!r}"
        if self._is_own_text(quote):
            return Shown(look.name, "own_files")
        return Shown(look.name, "met" if self._was_brought_about() else "unlinked")

    def _is_own_text(self, quote: str) -> bool:
        """Whether the child wrote these words into a file, or into a call that may have written one."""
        text = " ".join(quote.split())
        if len(text) < _TELLING_CHARS:
            return False
        calls = self._proof.calls
        writes = (one for one in calls.receipts if calls.effect(one) in ("files", "commands"))
        said = any(text in " ".join(leaf.split()) for one in writes for leaf in leaves(one.args))
        return said or self._proof.evidence.wrote(text) is not None

    def _was_brought_about(self) -> bool:
        """Whether the record has a call that may have done it. The state could have been so before."""
        if not self._proof.submission.has_receipts:
            return True
        calls = self._proof.calls
        return any(self._may_have_done(one) for one in calls.succeeded)

    def _may_have_done(self, receipt: Receipt) -> bool:
        if self._part.tools:
            return receipt.tool in self._part.tools
        return self._proof.calls.effect(receipt) in ("acts", "commands", None)
