"""Decides what a judge's look proves of one part. The runtime made it, after the child was gone.

* A look at a text of the work proves what a quote from that text would prove.
* A command in a copy of the work proves what is in files, and deeds that commands bring about, such as tests that pass.
  What stands in the command itself, and what it prints without the work too, proves nothing. A file that is merely
  printed shows no more than the file itself. An exit code shows as much as the judge makes of it, unless a test runner
  says what ran.
* A look-up proves the state of things: a deed, if it names what the deed is about and a recorded call may have done it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from posixpath import basename
from typing import NamedTuple

from delegate.judging.checks.nothing_ran import ran_nothing, says_failed
from delegate.judging.judge.evidence import EXIT_CODE, Evidence, printed, prints_without_work
from delegate.judging.judge.sources import folded
from delegate.judging.looks.look import Look
from delegate.judging.looks.work import TELLING_CHARS
from delegate.judging.proof import absences
from delegate.judging.proof.calls import Calls, failed
from delegate.judging.proof.files import same_file
from delegate.judging.proof.literals import fold, literals_in, missing
from delegate.judging.proof.values import leaves, records_in
from delegate.judging.submission import Submission
from delegate.types import ReadBy, Receipt, StatementPart
from delegate.types.codes import WorkCode


@dataclass(frozen=True)
class Subject:
    """One part of a criterion about one submission."""

    part: StatementPart
    by: ReadBy
    submission: Submission
    evidence: Evidence
    calls: Calls

    def is_source(self, source: str) -> bool:
        kind, _, path = source.partition(":")
        return kind in ("artifact", "file") and self.is_meant(path)

    def is_meant(self, path: str) -> bool:
        folder = self.submission.folder
        if folder is not None and folder.is_given(path):  # it is another child's work
            return False
        return not self.part.files or any(same_file(path, name) for name in self.part.files)

    @cached_property
    def names(self) -> Sequence[str]:
        """The literals that a call must contain; where no model told them, those that code can tell."""
        is_told = self.is_read and (self.part.names or self.part.tools)
        return self.part.names if is_told else literals_in(self.part.text)

    @property
    def is_read(self) -> bool:
        return self.by in ("model", "stored")


class Shown(NamedTuple):
    """The source that shows a part, and what that is worth: the code is `met`, or that of an unverified criterion."""

    source: str
    code: WorkCode = "met"


class Seen:
    """What one look is worth for a part. `shown_in` says what a quote from another source is worth."""

    def __init__(self, subject: Subject, look: Look, shown_in: Callable[[str, str], Shown | str]) -> None:
        self._subject, self._part, self._look, self._evidence = subject, subject.part, look, subject.evidence
        self._shown_in = shown_in

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

    def _absence(self) -> WorkCode:
        """What the look is worth for an absence: as much as the record of calls, since a state shows what is, and not
        that nothing else was done. It decides only between records that share an id, as one article in two warehouses.
        """
        subject, look, part = self._subject, self._look, self._part
        worth = absences.worth(part, subject.by, subject.submission, subject.calls)
        is_by_calls = subject.submission.has_receipts and bool(part.tools and part.names) and not part.files
        if worth != "incomplete_record" or look.kind != "state" or failed(look.receipt) or not is_by_calls:
            return worth
        if missing(part.names, "\n".join((*leaves(look.receipt.args), look.receipt.whole_output))):
            return worth
        calls = subject.calls
        receipts = [
            receipt
            for receipt in calls.not_refused
            if receipt.tool in part.tools and calls.contains(receipt, part.names)
        ]
        are_others = all(any(self._is_of_another(receipt, name) for name in part.names) for receipt in receipts)
        return "met" if are_others else worth

    def _is_of_another(self, call: Receipt, name: str) -> bool:
        """Whether a call is tied to the name only by ids, and look-ups have these in another record too: with the value
        that the call has in the field in which they have the name.
        """
        calls, args = self._subject.calls, {key: fold(str(value)) for key, value in call.args.items()}
        if not missing([name], "\n".join((*leaves(call.args), call.whole_output))):
            return False
        results = [calls.result(receipt) for receipt in calls.lookups]
        records = [{key: fold(str(value)) for key, value in record.items()} for record in records_in(results)]
        fields = {key for record in records for key, value in record.items() if value == fold(name) and key in args}
        others = [record for record in records if any(record.get(key) == args[key] for key in fields)]
        ids = [fold(id) for id in calls.ids_of(name) if fold(id) in args.values()]
        return bool(ids) and all(any(id in record.values() for record in others) for id in ids)

    def picture(self) -> Shown | None:
        """What an image or a PDF is worth that the judge saw: no quote can be found in it."""
        names = [piece.source for piece in self._look.found.pieces]
        is_meant = self._part.about == "file" and any(map(self._subject.is_source, names))
        return Shown(self._look.name, "seen_by_model") if self._look.found.attachments and is_meant else None

    def _work(self, quote: str) -> Shown | str:
        if self._look.found.attachments:
            return self.picture() or f"{self._look.name} shows another file"
        why = f"{self._look.name} says so, and no source"
        for origin in self._subject.evidence.origins(self._look.name, quote):
            if origin == "files":
                answer = Shown(origin) if self._is_listed(quote) else "the quote is not the line of the file"
            else:
                answer = self._shown_in(origin, quote)
            if isinstance(answer, Shown):
                return Shown(self._look.name, answer.code)
            why = answer
        return why

    def _is_listed(self, quote: str) -> bool:
        """Whether the quote stands in the line of a file that is meant, in the list of unchanged files."""
        texts = [piece.text for piece in self._look.found.pieces if piece.source == "files"]
        lines = [line for line in "\n".join(texts).split("\n") if " ".join(quote.split()) in line]
        is_meant = any(self._subject.is_meant(line.rpartition(" (")[0]) for line in lines)
        return self._part.about == "file" and is_meant

    # ----------------------------------------------------------------------------------------------------- commands

    def _command(self, quote: str) -> Shown | str:
        look, part = self._look, self._part
        if look.found.status != "ok":
            return f"the command did not end ({look.name})"
        if not any(map(str.isalnum, words := printed(look, quote))):
            return f"the quote is the judge's own command ({look.name})"
        says_what_ran = EXIT_CODE.fullmatch(words) is not None and _says_what_ran(self._output)
        if prints_without_work(look, quote, whole=says_what_ran):
            return f"{look.name} prints that whatever the work is"
        lines = [line for line in self._quoted_lines(words) if not prints_without_work(look, line)]
        path = self._evidence.wrote(*lines) if sum(map(len, lines)) >= TELLING_CHARS else None
        if path is not None and (part.about == "deed" or not self._subject.is_meant(path)):
            return f"{look.name} only prints {path}, which the worker wrote"
        work, files = self._evidence.work, filter(self._subject.is_source, sorted(self._evidence.cut))
        if part.whole and work is not None and lines:
            # It may only print lines of a file that the judge saw in part.
            source = next((name for name in files if work.has(name, lines)), None)
            if source is not None:
                return Shown(source)
        match part.about:
            case "file":
                return Shown(look.name, self._worth(words))
            case "report":
                if not any(basename(path) in str(look.receipt.args.get("command")) for path in part.files):
                    return "a command doesn't see what the report says"
                return Shown(look.name, self._worth(words))
            case _:
                return self._deed_by_command(words)

    @property
    def _output(self) -> str:
        """What a command printed, with how it ended."""
        return self._look.receipt.whole_output[len(self._look.header) :]

    def _quoted_lines(self, words: str) -> list[str]:
        """The lines of the output that are quoted; where it is a part of one, that."""
        lines = [line for line in map(folded, self._output.splitlines()) if line and line in words]
        said = EXIT_CODE.sub("", words, count=1).strip() if words.startswith("exit code") else words
        return [line for line in lines if not EXIT_CODE.fullmatch(line)] or [said]

    def _deed_by_command(self, words: str) -> Shown | str:
        look, part = self._look, self._part
        is_code = EXIT_CODE.fullmatch(words) is not None
        output = self._output if is_code else "\n".join(self._quoted_lines(words))
        if ran_nothing(output):
            return f"by its own words, the command ran nothing ({look.name})"
        if is_code and says_failed(output):
            return f"by its own words, something failed ({look.name})"
        by_commands = any(self._subject.calls.effects.get(tool) == "commands" for tool in part.tools)
        if part.tools and not by_commands:
            return "a command in a copy of the work doesn't show that"
        if not part.tools and self._could_be_elsewhere() and self._subject.names:
            return Shown(look.name, "unlinked")
        says_so = _says_what_ran(output) or (not is_code and (by_commands or not self._could_be_elsewhere()))
        return Shown(look.name, self._worth(words) if says_so else "unconfirmed")

    def _worth(self, words: str) -> WorkCode:
        """What a part of what the command printed is worth for what it may show."""
        look, part = self._look, self._part
        if not look.without_work or (EXIT_CODE.fullmatch(words) and part.about != "deed"):
            return "unconfirmed"
        is_file, is_meant = part.about == "file", self._subject.is_meant
        has_own = look.found.own_checks or any(not (is_file and is_meant(path)) for path in look.found.own_programs)
        return "own_tests_only" if has_own else "met"

    def _could_be_elsewhere(self) -> bool:
        """Whether the child could do anything besides working in its folder."""
        tools = self._subject.submission.tools
        effects = self._subject.calls.effects
        return tools is None or any(effects.get(tool.name, "acts") == "acts" for tool in tools)

    # -------------------------------------------------------------------------------------------------------- state

    def _state(self, quote: str) -> Shown | str:
        look, subject, receipt = self._look, self._subject, self._look.receipt
        if failed(receipt):
            return f"the look-up did not succeed ({look.name})"
        if self._part.about == "report":
            return "it asks what the report says, and the quote isn't from the report"
        if self._part.about == "file":
            names_file = not self._part.files or any(map(subject.is_meant, leaves(receipt.args)))
            return Shown(look.name) if names_file else f"{look.name} doesn't show {', '.join(self._part.files)}"
        own_number = receipt.model_copy(update={"n": -receipt.n})  # the worker's calls are numbered too
        with_look = Calls((*subject.calls.receipts, own_number), subject.calls.effects, subject.calls.tools)
        if absent := with_look.missing(own_number, subject.names):
            return f"{look.name} doesn't contain {absent[0]!r}"
        if self._is_own_text(quote):
            return Shown(look.name, "own_files")
        return Shown(look.name, "met" if self._was_brought_about() else "unlinked")

    def _is_own_text(self, quote: str) -> bool:
        """Whether the child wrote these words into a file, or into a call that may have written one."""
        text = " ".join(quote.split())
        if len(text) < TELLING_CHARS:
            return False
        calls = self._subject.calls
        writes = (receipt for receipt in calls.receipts if calls.effect(receipt) in ("files", "commands"))
        is_argument = any(text in " ".join(leaf.split()) for receipt in writes for leaf in leaves(receipt.args))
        return is_argument or self._subject.evidence.wrote(text) is not None

    def _was_brought_about(self) -> bool:
        """Whether the record has a call that may have done it. The state could have been so before.

        Where tools are told, several of their calls may have done it, each a part.
        """
        if not self._subject.submission.has_receipts:
            return True
        calls, names = self._subject.calls, self._subject.names
        if not self._part.tools:
            acts = [receipt for receipt in calls.succeeded if calls.effect(receipt) in ("acts", "commands", None)]
            return any(calls.contains(receipt, names) for receipt in acts)
        by = [receipt for receipt in calls.succeeded if receipt.tool in self._part.tools]
        return bool(by) and all(any(calls.contains(receipt, [name]) for receipt in by) for name in names)


def _says_what_ran(output: str) -> bool:
    """Whether a test runner says that it ran something: then another line that says the opposite doesn't count."""
    return not ran_nothing(f"{output}\nNO TESTS RAN\n")
