"""Reads from its words what a statement is about, by fixed English patterns with the words of `judges/subjects.toml`.

The same criterion is always read the same way. Whatever the patterns don't recognize, other languages included, counts
as a deed: a criterion that is read too strictly fails with a hint, while one that is read too leniently would pass on
the child's word. Imported on first use, since the patterns take some time to compile.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from delegate.judging.judge.subject import Subject, statement_of
from delegate.judging.words import WordPattern
from delegate.judging.words import any_of as _any
from delegate.types import AboutFile, AnyCriterion, QuestionCriterion, TextCriterion


def subject_of(criterion: AnyCriterion, files: Collection[str] = (), *, can_act: bool | None = None) -> Subject:
    """What the criterion is about: as it says itself, else as its statement reads.

    `files` are the paths of the child's artifacts. `can_act` is whether the child had a tool that can change anything;
    None if that isn't known.
    """
    about = criterion.about if isinstance(criterion, (TextCriterion, QuestionCriterion)) else None
    if isinstance(about, AboutFile):
        return Subject("file", (about.file,))
    if about is not None:
        return Subject(about)
    return read_statement(statement_of(criterion), frozenset(files), can_act)


@lru_cache(maxsize=1024)
def read_statement(statement: str, files: frozenset[str] = frozenset(), can_act: bool | None = None) -> Subject:
    """What a statement is about, by its words."""
    said = _Statement.of(statement)
    if (noun := _report_noun(said)) is not None:
        return Subject("report", noun=noun)
    if _ABSENCE.search(said.marked) and not _PASSIVE_TEXT.search(said.plain):
        return Subject("absence")
    if paths := _named_files(statement, files):
        return Subject("deed" if _OUTSIDE.search(said.plain) else "file", paths)
    if _is_about_text(said):
        return Subject("report")
    if _is_about_files(said):
        return Subject("file")
    if can_act is False and not said.actions:
        return Subject("report")
    return Subject("deed", lookup=bool(said.actions) and all(_LOOKUP.match(said.plain, at) for at in said.actions))


def names_a_deed(statement: str) -> bool:
    """Whether a statement names an action or a state of the world that isn't only spoken of."""
    said = _Statement.of(statement)
    return bool(said.actions) and _report_noun(said) is None and not _is_about_text(said)


def is_about_existence(statement: str) -> bool:
    """Whether a statement says only that something was done to a file, or that it exists, is empty or has a size."""
    said = _Statement.of(statement)
    return bool(said.actions) or _EXISTENCE.search(said.plain) is not None


def _report_noun(said: "_Statement") -> str | None:
    """What the report is called where it is the subject ("the summary is short").

    Empty if the statement starts with a verb of saying ("names three risks"); None if it isn't about the report.
    """
    if _second_clause_acts(said):
        return None
    if _STARTS_WITH_TEXT_VERB.match(said.plain):
        return ""
    subject = _REPORT_SUBJECT.match(said.plain)
    return None if subject is None or _acts_first(said, subject.end()) else subject["noun"]


def _is_about_text(said: "_Statement") -> bool:
    """Whether it says only what a text contains, or in which form, without naming the report."""
    if _second_clause_acts(said) or _acts_first(said):
        return False
    if _PASSIVE_TEXT.search(said.plain) or _TEXT_SUBJECT_SAYS.match(said.plain):
        return True
    if said.actions or _WORLD.search(said.plain):
        return False
    patterns = (_TEXT_SUBJECT, _WEAK_TEXT, _WEAK_PASSIVE_TEXT, _FORM, _QUALITY)
    return any(pattern.search(said.plain) for pattern in patterns)


def _is_about_files(said: "_Statement") -> bool:
    """Whether it is about code or documents without naming a file, and about nothing outside them."""
    if not _FILE_NOUN.search(said.plain) or _OUTSIDE.search(said.plain):
        return False
    on_files = all(_FILE_ACTION.match(said.plain, start) for start in said.actions)
    return not said.actions or (on_files and not _OUTSIDE_NOUN.search(said.plain))


def _acts_first(said: "_Statement", start: int = 0) -> bool:
    """Whether the first verb is a deed: "the summary was sent", not "the summary says what was sent"."""
    text = [
        found.start()
        for found in (_ANY_TEXT_VERB.search(said.plain, start), _PASSIVE_TEXT.search(said.plain, start))
        if found
    ]
    deeds = [deed for deed in said.actions if deed >= start]
    return bool(deeds) and deeds[0] < min(text, default=len(said.plain))


def _second_clause_acts(said: "_Statement") -> bool:
    """Whether a deed is coordinated with the rest: "names the customer and the refund was issued".

    After a conjunction such as "that", the rest is what the text says: "says that it was built and tested".
    """
    clause = _SECOND_CLAUSE.search(said.marked)
    return clause is not None and _SUBORDINATOR.search(said.marked[: clause.start()]) is None


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement in lower case as a declarative sentence, with quoted text replaced, since only its words count."""

    plain: str
    actions: tuple[int, ...]
    """Where verbs of action and words for a state of the world start."""
    marked: str
    """`plain` with a mark before each of these, so that patterns needn't repeat the long list of verbs."""

    @classmethod
    def of(cls, statement: str) -> "_Statement":
        text = " ".join(_QUOTED.sub(" quoted ", statement.replace("\u2019", "'")).split()).strip(" -*\u2022").lower()
        plain = _AUXILIARY.sub("", text) if text.endswith("?") else text
        actions = tuple(found.start() for found in _ACTION.finditer(plain))
        return cls(plain, actions, _ACTION.sub(rf"{_MARK}\g<0>", plain))


def _named_files(statement: str, files: Collection[str]) -> tuple[str, ...]:
    """The files that a statement names, by path, by an artifact's base name, or by a well-known name."""
    named = [name for name in _FILE_NAME.findall(_URL.sub(" ", statement)) if not _NO_FILE.fullmatch(name)]
    for path in files:
        base = path.rpartition("/")[2]
        stem = re.escape(base.partition(".")[0]) or "-"
        whole = rf"(?<![\w./-]){re.escape(base)}(?![\w-])"
        if re.search(rf"{whole}|\b[Tt]he {stem}(?![\w.-])", statement) and base not in named:
            named.append(base)
    return tuple(dict.fromkeys(named))


_MARK = "\x01"
_FLAGS = re.VERBOSE
_QUOTED = re.compile(r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|`[^`]*`|(?<!\w)'[^']*'(?!\w)")
_AUXILIARY = re.compile(r"^(?:do|does|did|is|are|was|were|has|have|had|can|could|will|would|should)\s+")
_URL = re.compile(r"\b[a-z][a-z+.-]*://\S+|\S+@\S+", re.IGNORECASE)
_FILE_NAME = re.compile(
    r"(?<![\w/@.-])(?:[\w.-]+/)*(?:[\w-][\w.-]*\.[a-z][a-z0-9]{0,5}|README|Makefile|Dockerfile|LICENSE|CHANGELOG)\b"
    r"(?!\.?\w*@)|(?<![\w/@.-])(?:[\w.-]+/)+[\w.-]*\w"
)
_NO_FILE = re.compile(
    r"(?:e\.g|i\.e|etc|vs|u\.s|u\.k|a\.m|p\.m|ph\.d)\.?|[a-z]+\.(?:com|org|net|io|dev|ai)|\w*/\w{1,4}|[\d.]+"
    r"|(?:and|or|his|he|she|him|her|client|server|read|write|yes|no|pass|true|input|either)/\w+",
    re.IGNORECASE,
)
_NOT_A_NAME = r"(?![./-]\w)"
"""After a noun: `report.md` and `answer-bot` are names."""
_START = rf"^(?:in\s+)?(?:{_any('determiners')}\s+)*(?:{_any('adjectives')}\s+)*"
_THING = r"(?!\s+(?:files?|scripts?|server|folder|page|tool|endpoint)\b)"
_REPORT_SUBJECT = WordPattern(
    rf"{_START}(?P<noun>{_any('report_nouns')})(?:'s\s+(?:\w+\s+)?\w+)?\b{_NOT_A_NAME}{_THING}"
)
_TEXT_SUBJECT = WordPattern(
    rf"^(?:there\s+(?:is|are)\s+|with\s+|has\s+|have\s+)?{_START[1:]}"
    rf"{_any('text_nouns', 'report_nouns')}\b{_NOT_A_NAME}"
)
_TEXT_SUBJECT_SAYS = WordPattern(rf"{_TEXT_SUBJECT.pattern}\s+(?:{_any('adverbs')}\s+)?{_any('text_verbs')}\b")
_ANY_TEXT_VERB = WordPattern(rf"\b{_any('text_verbs', 'weak_text_verbs')}\b")
_MODAL = (
    rf"^(?:(?:it|they)\s+)?(?:{_any('adverbs')}\s+)?(?:(?:must|should|does|do|doesn't|don't)\s+)?"
    r"(?:(?:not|never)\s+)?"
)
_STARTS_WITH_TEXT_VERB = WordPattern(rf"{_MODAL}{_any('text_verbs')}\b{_NOT_A_NAME}")
_WEAK_TEXT = WordPattern(rf"{_MODAL}{_any('weak_text_verbs')}\b")
_PASSIVE = rf"\b(?:is|are|was|were|be|been)\s+(?:(?:not|never|also|all|each|both|{_any('adverbs')})\s+)*"
_PASSIVE_TEXT = WordPattern(rf"{_PASSIVE}{_any('text_participles')}\b(?!\s+(?:on|to|at)\b)")
_WEAK_PASSIVE_TEXT = WordPattern(rf"{_PASSIVE}{_any('weak_text_participles')}\b(?!\s+to\b)")
_SUBORDINATOR = re.compile(r"\b(?:that|how|what|when|why|which|whether|who|whom|where|if|because|as)\b")
_SECOND_CLAUSE = re.compile(
    r"(?:[,;]|\b(?:and|but|then)\b)\s+(?:[\w'@.-]+\s+){0,5}?"
    r"(?:(?:was|were|is|are|has\s+been|have\s+been|gets?|got|been)\s+(?:\w+\s+)?)?"
    rf"{_MARK}"
)
_FORM = WordPattern(
    rf"""
    ^(?:(?:is|are|be|stays?|no)\s+)?(?:(?:written|phrased|formatted|answered)\s+)?(?:(?:entirely|only|all)\s+)?
        (?:in|as)\s+(?:(?:plain|british|american|simple|valid|formal|fluent)\s+)*{_any("languages")}\b
    | \b(?:at\s+most|at\s+least|no\s+more\s+than|fewer\s+than|less\s+than|under|over|within|exactly|up\s+to|between
        |maximum|minimum|more\s+than|about|around|roughly|below|\d+\s+(?:to|and|or))\b[^.]{{0,30}}?\b{_any("lengths")}\b
    | ^(?:a\s+)?(?:single|one|two|three|four|five|six|\d+)(?:-|\s)
        (?:word|sentence|paragraph|bullet|line|page|section)s?\b
    | \b(?:all|entire|in)\s+(?:your\s+)?(?:lower|upper|capital)\s*-?\s*(?:case|letters)\b
    | ^for\s+(?:each|every|all)\b[^.]*[:,]
    | \bno\s+(?:commas?|jargon|markdown|bullet|emojis?|headings?)\b
    """,
    _FLAGS,
)
_QUALITY = WordPattern(
    rf"""
    ^(?:{_any("determiners")}\s+)*(?:\w+\s+){{0,3}}?(?:tone|style|wording|language|writing|spelling|grammar|structure|length
        |format|formatting|reasoning|logic|argument)\b
    | ^(?:is|are|be|reads?|sounds?|stays?|remains?|avoids?|keeps?)\b
        (?!\s+(?:\w+\s+)?(?:running|available|reachable|up|live|online|open|closed|on|off|set|ready|valid|working)\b)
    | ^(?:easy|clear|concise|short|brief|polite|friendly|formal|neutral|readable|understandable|free\s+of|suitable\s+for
        |appropriate)\b
    """,
    _FLAGS,
)
_OUTSIDE = WordPattern(rf"\b{_any('outside_verbs')}\b")
_LOOKUP = WordPattern(rf"\b{_any('lookup_verbs')}\b")
_FILE_ACTION = WordPattern(rf"\b{_any('file_verbs')}\b")
_ACTION = re.compile(
    rf"""
    (?<![\w-]){_any("deed_verbs", "state_words")}\b
    | \b(?:returns?|responds?|answers?|exits?)\s+(?:with\s+)?(?:a\s+)?(?:status\s+|code\s+)?\d{{1,3}}\b
    | \b(?:tests?|suite|build|linter|lint|ci|pipeline|type\s?check\w*)\b.{{0,40}}
        \b(?:pass(?:es|ed)?|succeeds?|green|clean|ok|fails?)\b
    """,
    _FLAGS,
)
_WORLD = WordPattern(rf"\b{_any('world_nouns')}\b")
_OUTSIDE_NOUN = WordPattern(rf"\b{_any('outside_nouns')}\b")
_FILE_NOUN = WordPattern(rf"\b{_any('code_nouns', 'document_nouns')}\b|\b[a-z]+_\w+\b|\w\(\)")
_EXISTENCE = re.compile(r"\b(?:exists?|there\s+is|empty|present|bytes|kb|mb|size)\b")
_ABSENCE = WordPattern(
    rf"""
    \bnothing\b(?!\s+but\b) | \bno\s+(?:other|one|further|additional|new|existing|more(?!\s+than))\b
    | \b(?:no|none\s+of|neither)\b.{{0,60}} (?:{_MARK}|\b(?:fail(?:s|ed)?|breaks?|broke|broken|errors?)\b)
    | \b(?:not|never|\w+n't|avoids?|avoided)\b.{{0,30}}
        (?:{_MARK}|\b(?:(?:chang|delet|modif|send|break|fail|touch|remov|call|edit)\w*|us(?:e|es|ing))\b)
    | \b(?:untouched|unchanged|unmodified|intact)\b | \bwithout\s+(?:\w+ly\s+)?\w+ing\b
    | \bonly\b.{{0,40}}\b(?:was|were|is|are|has|have|been|changes?|touches)\b.{{0,20}}(?:{_MARK}|\btouched\b)
    | (?:{_MARK}\w+|\b(?:changes?|touches))\s+only\b
    """,
    _FLAGS,
)
