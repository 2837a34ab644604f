"""Decides which sources of evidence can prove a criterion, by what the criterion is about.

The judge may quote anything that it saw. Its quote counts only if it stands in a source that can show the matter:

* The report, for what the report says.
* A file, its entry in the list of files, or a check on it, for what a file contains.
* The receipt of a successful call that can change things, or a check, for a deed. All names in the criterion stand in
  that one receipt or check, and so does one of its other words, or a word for the same thing.

What the child merely wrote down never shows a deed: its report, its files, a command that only prints, output whose
words it had written before.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from delegate.judging.effects import acting_part, command_of, failed, writes_files
from delegate.judging.judge import names
from delegate.judging.judge.evidence import Evidence
from delegate.judging.judge.subject import Subject
from delegate.judging.submission import Submission
from delegate.types import FileCriterion, Receipt, ShellCriterion

HINT = (
    "write `the report …` for what the text must say; let a `receipt`, `file` or `shell` criterion show everything else"
)
_OWN_WORDS = ("output", "said")
"""Sources that are only the child's statements."""
_CHECKS_OF_DEEDS = ("shell", "receipt", "probe")
_FREE_TEXT_WORDS = 8
"""An argument with more words is text that the child wrote, such as the body of a message."""
_RUN_OF_WORDS = 3


@dataclass(frozen=True)
class Proof:
    """What can prove one statement about one submission."""

    statement: str
    subject: Subject
    submission: Submission
    evidence: Evidence

    def find(self, quote: str, preferred: str = "") -> tuple[str | None, str | None]:
        """The source in which the quote counts, or else the one in which it stands and why it doesn't count there.

        (None, None) if the quote stands nowhere.
        """
        first: tuple[str | None, str | None] = (None, None)
        for source in self.evidence.find_all(quote, preferred):
            fault = self._fault(source, quote)
            if fault is None:
                return source, None
            if first == (None, None):
                first = source, fault
        return first

    def unseen(self, quoted: str) -> Sequence[str]:
        """The sources that the judge saw only in part and that could contradict a statement about a whole.

        The `quoted` one comes first.
        """
        match self.subject.kind:
            case "report":
                cut = [source for source in self.evidence.cut if source == "output"]
            case "file":
                cut = [source for source in self.evidence.cut if source == "artifacts" or self._is_file(source)]
            case _:
                cut = [source for source in self.evidence.cut if source.startswith("receipt")]
        return sorted(cut, key=lambda source: (source != quoted, source))

    def _fault(self, source: str, quote: str) -> str | None:
        """Why this source can't prove the statement; None if it can."""
        match self.subject.kind:
            case "report":
                return self._report_fault(source)
            case "file":
                return self._file_fault(source, quote)
            case "deed":
                return self._deed_fault(source, quote)
            case "absence":
                return "no quote shows that something was not done"

    def _report_fault(self, source: str) -> str | None:
        """The report may also be a file: `summary.md` for "the summary", any file for what a text says."""
        is_file = source.startswith("artifact:") and self.subject.noun.rstrip("s") in _base(source).lower()
        if source == "output" or is_file:
            return None
        return "the criterion is about the report, and the quote isn't from it"

    # ------------------------------------------------------------------------------------------------------- files

    def _file_fault(self, source: str, quote: str) -> str | None:
        kind, _, detail = source.partition(":")
        if source in _OWN_WORDS:
            return f"only the report says so, and not {self._files_in_words}"
        if kind == "check":
            shows = self._check_shows(detail, self.evidence.sources[source])
            return None if shows else f"the check {detail} doesn't show that of {self._files_in_words}"
        if kind == "receipt":
            return self._written_fault(self._receipt(detail))
        if kind == "artifact" and not self._is_meant(detail):
            return f"the quote is from {detail}, and not from {self._files_in_words}"
        if source == "artifacts" and not (self._is_listed(quote) and _is_about_existence(self.statement)):
            return f"the list of files doesn't show what {self._files_in_words} contains"
        if names.repeats(self.statement, quote):
            return f"{source} only repeats the criterion"
        if not self.subject.paths and (
            missing := names.missing_names(self._identifiers, self.evidence.sources[source])
        ):
            return f"{source} does not contain {missing[0]!r}"
        return None

    @cached_property
    def _names(self) -> list[names.Name]:
        return names.names_in(self.statement)

    @cached_property
    def _identifiers(self) -> list[names.Name]:
        """The names that have to stand in a file: those that aren't plain numbers."""
        return [name for name in self._names if not re.fullmatch(r"[\d.,:]+", name[0])]

    @property
    def _files_in_words(self) -> str:
        return ", ".join(self.subject.paths) or "a file that the child left"

    def _is_file(self, source: str) -> bool:
        kind, _, path = source.partition(":")
        return kind == "artifact" and self._is_meant(path)

    def _is_meant(self, path: str) -> bool:
        return not self.subject.paths or any(same_file(path, named) for named in self.subject.paths)

    def _is_listed(self, quote: str) -> bool:
        """Whether the quote stands in the line of a file that is meant."""
        folded = " ".join(quote.split())
        lines = zip(self.submission.run.artifacts, self.evidence.sources["artifacts"].splitlines(), strict=False)
        return any(folded in line and self._is_meant(artifact.path) for artifact, line in lines)

    def _check_shows(self, id: str, text: str) -> bool:
        """Whether a check shows the statement: a `file` check that a file is there, a command what it is about."""
        criterion = next((one for one in self.submission.task.criteria if one.id == id), None)
        if isinstance(criterion, FileCriterion):
            return self._is_meant(criterion.path) and _is_about_existence(self.statement)
        if not isinstance(criterion, ShellCriterion):
            return False
        if self.subject.paths:
            return any(_base(path) in criterion.command for path in self.subject.paths)
        return names.same_matter(self.statement, text)

    def _written_fault(self, receipt: Receipt) -> str | None:
        """Without a workspace, the call that wrote the file is the only trace of it."""
        if self.submission.folder is not None:
            return "a tool call doesn't show what the file contains; the quote must be from the file"
        written = [text for text in names.leaves(receipt.args) if self._is_meant(text)] if self.subject.paths else [""]
        writes = writes_files(receipt) or bool(command_of(receipt))
        if failed(receipt) or not writes or not written:
            return f"the call of {receipt.tool} did not write {self._files_in_words}"
        return None

    # ------------------------------------------------------------------------------------------------------- deeds

    def _deed_fault(self, source: str, quote: str) -> str | None:
        kind, _, detail = source.partition(":")
        if kind == "receipt":
            return self._call_fault(self._receipt(detail), quote)
        if kind == "check":
            if self.evidence.checks[source] not in _CHECKS_OF_DEEDS:
                return f"the check {detail} doesn't show that it was done"
            return self._unnamed_fault(source, self.evidence.sources[source], self.evidence.sources[source])
        if source in _OWN_WORDS:
            return "only the report says that it was done"
        return f"a file doesn't show that it was done: {source}"

    def _call_fault(self, receipt: Receipt, quote: str) -> str | None:
        source = f"receipt:{receipt.n}"
        if failed(receipt):
            return f"the call of {receipt.tool} did not succeed ({source})"
        if self.submission.only_looks_up(receipt.tool) and not self.subject.lookup:
            return f"{receipt.tool} only looks something up ({source})"
        if writes_files(receipt):
            return f"{receipt.tool} only writes a file ({source})"
        args, output = receipt.args, receipt.output
        if command := command_of(receipt):
            args = acting_part(command)
            if not args and not self.subject.lookup:
                return f"the command only prints or looks something up ({source})"
            written = self._written_before(receipt)
            if _is_own_wording(quote, output, written):
                return f"the child wrote these words itself ({source})"
            output = "\n".join(line for line in output.splitlines() if not _is_own_wording(line, line, written))
        if names.repeats(self.statement, quote) and any(_holds(text, quote) for text in names.leaves(receipt.args)):
            return f"the call of {receipt.tool} only says so ({source})"
        texts = names.leaves(args)
        short = [text for text in texts if len(text.split()) <= _FREE_TEXT_WORDS or command]
        return self._unnamed_fault(
            source, "\n".join((receipt.tool, *texts, output)), "\n".join((receipt.tool, *short, output))
        )

    def _unnamed_fault(self, source: str, whole: str, told: str) -> str | None:
        if missing := names.missing_names(self._names, whole):
            return f"{source} does not contain {missing[0]!r}"
        if not self.subject.lookup and not names.same_matter(self.statement, told):
            return f"{source} shows something else"
        return None

    def _receipt(self, n: str) -> Receipt:
        return next(receipt for receipt in self.submission.run.receipts if str(receipt.n) == n)

    def _written_before(self, receipt: Receipt) -> str:
        """What the child wrote until this call ended, as the arguments of its calls."""
        calls = (one for one in self.submission.run.receipts if one.n <= receipt.n)
        return _folded("\n".join(text for one in calls for text in names.leaves(one.args)))


def is_own_word(statement: str, quote: str, evidence: Evidence) -> bool:
    """Whether a statement names a deed, as a rubric's dimension may, and the quote stands only in the child's words."""
    from delegate.judging.judge.statements import names_a_deed

    return names_a_deed(statement) and all(source in _OWN_WORDS for source in evidence.find_all(quote))


def same_file(path: str, named: str) -> bool:
    """Whether a path is the file that a criterion names: by path, base name or glob, or as README for README.md."""
    path, named = path.removeprefix("./"), named.removeprefix("./")
    if path == named or path.endswith(f"/{named}") or fnmatchcase(path, named):
        return True
    return "." not in named and _base(path).partition(".")[0] == _base(named)


def _is_about_existence(statement: str) -> bool:
    from delegate.judging.judge.statements import is_about_existence

    return is_about_existence(statement)


def _is_own_wording(quote: str, output: str, written: str) -> bool:
    """Whether the quote is from the output, and a run of its words was written by the child before."""
    if not _holds(output, quote):
        return False
    words = _folded(quote).split()
    if len(words) <= _RUN_OF_WORDS:
        return " ".join(words) in written
    runs = (" ".join(words[n : n + _RUN_OF_WORDS]) for n in range(len(words) - _RUN_OF_WORDS + 1))
    return any(run in written for run in runs)


def _holds(text: str, quote: str) -> bool:
    return _folded(quote) in _folded(text)


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _base(path: str) -> str:
    return path.rpartition("/")[2]
