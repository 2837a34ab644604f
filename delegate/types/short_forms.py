"""Criteria written as one text: a sentence for the judge, or a short form such as `shell: make test`.

There is one parser for the command line, files, tool calls and `Task`. A text that looks like a mistyped short form is
refused, since a judge would otherwise decide on the words of a command that nobody ran.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from delegate._util.documents import loads
from delegate.types.errors import CallError

JsonObject = dict[str, Any]
SHORT_FORMS: Mapping[str, Callable[[str], JsonObject]] = {
    "shell": lambda rest: {"kind": "shell", "command": rest},
    "file": lambda rest: {"kind": "file", "path": rest},
    "regex": lambda rest: {"kind": "regex", "pattern": rest},
    "json": lambda rest: {"kind": "json_predicate", "expr": rest},
    "called": lambda rest: {"kind": "receipt", "mode": "at_least", "calls": [{"tool": rest}]},
    "never called": lambda rest: {"kind": "receipt", "mode": "none", "calls": [{"tool": rest}]},
    "rubric": lambda rest: {"kind": "rubric", "rubric": rest},
    "question": lambda rest: {"kind": "question", "question": rest},
    "manual": lambda rest: {"kind": "manual", "text": rest},
    "text": lambda rest: {"kind": "text", "text": rest},
}
"""The short forms `word: …` and the criteria that they stand for."""
_ABOUT = ("report", "deed", "absence")
"""Words before a colon that say what the sentence after it is about."""
_ABOUT_FILE = re.compile(
    r"\s*file\s+(?:`([^`\n]+)`|\"([^\"\n]+)\"|(?=[^\s:]*[./*{])((?:\{[^{}\n]+\}|[^\s{])+?))\s*:\s+(\S.*)",
    re.DOTALL | re.IGNORECASE,
)
"""The path may have placeholders, such as `{column}` of a batch."""
_UNQUOTED = re.compile(
    r"""\s*file\s+(?:(?:[a-z]|(?=\S*[/_(){}"])[^\s:,;.]+)\s+)+[^\s:,;]+\.(?=\d*[a-z])\w{1,8}\s*:\s+\S""", re.IGNORECASE
)
"""`file`, a path with spaces whose words aren't those of a sentence, and a statement."""

_MEANT = {
    **dict.fromkeys(("cmd", "command", "bash", "sh", "zsh"), "shell"),
    **dict.fromkeys(("json_predicate", "json-predicate", "json predicate"), "json"),
    **dict.fromkeys(("receipt", "tool call", "tool_call"), "called"),
    **dict.fromkeys(("never call", "never calls", "not called", "nevercalled", "never_called"), "never called"),
}  # fmt: skip
"""Words that people and models write before a colon, and the short form that is meant."""
_OBJECTS = ("probe", "json_schema", "json-schema", "json schema", "jsonschema")
"""Kinds that have no short form."""
_ORDINARY = frozenset({
    "shall", "shells", "shelf", "smell", "spell", "swell", "sell", "hell", "shelly",
    "files", "filed", "filer", "fine", "fill", "fire", "five", "film", "tile", "pile", "mile", "vile", "wile",
    "jason", "jon", "son", "jsonl", "jsonp", "bson",
    "caller", "callee", "galled", "balled", "rubrics", "questions", "manuals",
    "questioned", "test", "next", "texts", "ext", "tent", "exit",
})  # fmt: skip
"""Words that begin honest sentences, or name something else, and are one typing error away from a short form."""
_ARGUMENTS = {"file": re.compile(r"\S*[./]\w+"), "json": re.compile(r".*(?:[=!]==?|[<>]=?) .*", re.DOTALL)}
"""What can only be the argument of a short form, whichever word is before it."""
_PREFIX = re.compile(r"\s*([A-Za-z]+(?:[ \t_-]+[A-Za-z]+)?)\s*:(?!//)(.*)", re.DOTALL)
LOOKS_LIKE_JSON = re.compile(r"""\s*\{\s*(?:["'}]|(?:kind|type)\b)""")
"""How a text begins that is meant as a JSON object."""
_SENTENCE_WORDS = 3
"""From this number of words on, what follows `file:` is a sentence, unless it ends like a path."""


def expand(text: str) -> JsonObject | None:
    """The typed criterion that a short form stands for; None for a sentence.

    Raises:
        CallError: The text looks like a mistyped short form.
    """
    if about_file := _ABOUT_FILE.fullmatch(text):
        path = about_file[1] or about_file[2] or about_file[3]
        return {"kind": "text", "text": about_file[4].strip(), "about": {"file": path}}
    if _UNQUOTED.match(text):
        hint = 'write `file "PATH": …`, or begin a sentence with `text: `'
        raise CallError("invalid_criterion", f"a path with spaces needs quotes: {_start(text)}", hint=hint)
    if not (found := _PREFIX.fullmatch(text)):
        return None
    word, rest = " ".join(found[1].lower().split()), found[2].strip()
    if word in _ABOUT:
        return {"kind": "text", "text": rest, "about": word}
    if form := SHORT_FORMS.get(word):
        if word == "file":
            _refuse_sentence(rest)
        return form(rest)
    if meant := _meant(word, rest):
        hint = f"did you mean `{meant}: …`? To have a judge decide the whole sentence, write `text: {_start(text)}`"
    elif word in _OBJECTS:
        kind = "probe" if word == "probe" else "json_schema"
        hint = f'write an object with its fields, such as {{"kind": "{kind}", …}}; a sentence is `text: …`'
    else:
        return None
    raise CallError("invalid_criterion", f"`{word}:` is not a short form of a criterion", hint=hint)


def criterion_of(text: str) -> JsonObject:
    """The criterion that one text stands for: a short form, the JSON of a typed criterion, or a sentence.

    Raises:
        CallError: The text looks like a mistyped short form, or like JSON and isn't.
    """
    if LOOKS_LIKE_JSON.match(text):
        try:
            return cast("JsonObject", loads(text, "json"))  # what begins with a brace is an object
        except ValueError as error:
            hint = "write it as an object, or begin a sentence with `text: `"
            message = f"criterion {_start(text)!r} starts with a brace but is not valid JSON: {error}"
            raise CallError("invalid_json", message, hint=hint) from None
    return expand(text) or {"kind": "text", "text": text}


def _refuse_sentence(path: str) -> None:
    words = path.split()
    if len(words) >= _SENTENCE_WORDS and not re.search(r"[/\\]|\.\w{1,8}$", words[-1]):
        hint = 'for a statement about a file write `file PATH: …`; for such a path write {"kind": "file", "path": …}'
        raise CallError("invalid_criterion", f"`file:` takes a path, not a sentence: {_start(path)}", hint=hint)


def _meant(word: str, rest: str) -> str | None:
    """The short form that a word before a colon was probably meant to be."""
    if known := _MEANT.get(word):
        return known
    near = [name for name in (*SHORT_FORMS, *_MEANT) if len(name) > 3 and _edits(word, name) <= 1 + (len(name) >= 8)]
    if not near:
        return None
    form = _MEANT.get(near[0], near[0])
    if word in _ORDINARY and not (form in _ARGUMENTS and _ARGUMENTS[form].fullmatch(rest)):
        return None
    return form


def _edits(word: str, other: str) -> int:
    """How many letters were added, left out or replaced, or neighbors swapped."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, start=1):
            least = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                least = min(least, last[j - 2] + 1)
            row.append(least)
    return row[-1]


def _start(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 50 else f"{words[:49]}…"
