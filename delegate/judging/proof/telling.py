"""Takes out of a recorded call what the child worded itself: a name in a message about a deed doesn't show the deed.

What is left are the arguments that say what the call is about, and the tool's own output, where that doesn't repeat the
child's words. Comments in commands and queries go too.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from delegate.judging.proof.literals import fold, is_amount, is_unspaced, stands_in
from delegate.judging.proof.values import scalars, texts, with_texts
from delegate.judging.proof.vocabulary import currencies, formats, tokens_of, words
from delegate.types.ports import Tool

_WORDS = 8
"""A text of more words is worded by the child, whatever its field is called."""
_REPEATED = 12
"""A part of the child's words of this length, found in an output, is a repetition of them."""
_COMMENT = re.compile(r"/\*.*?\*/|(?:^|(?<=[\s;]))(?:#|--\s|//\s|REM\s)[^\n]*", re.DOTALL)
_LIST = re.compile(r"[,;|<>()\n]+")
_ID_OF_LETTERS = re.compile(r"(?=[^\W\d_])(?=\D*\d)[A-Za-z0-9_-]{2,40}")
Worded = Callable[[Sequence[str], str], bool]
"""Whether the text at this path is the child's own words."""


def worded(identifies: Sequence[str] | None, *, runs: bool) -> Worded:
    """What is worded by the child in calls of a tool that declares `identifies`, or of one that `runs` code."""

    def is_worded(path: Sequence[str], text: str) -> bool:
        if runs or _is_called(path, "program") or _is_at(path, identifies or ()):
            return False
        if identifies is not None:
            return len(text.split()) > 1
        return _is_called(path, "free_text") or len(text.split()) > _WORDS

    return is_worded


def own_words(args: Mapping[str, Any], is_worded: Worded) -> list[str]:
    """The texts among the arguments that the child worded."""
    return [text for path, text in texts(args) if text.strip() and is_worded(path, text)]


def telling(args: Any, is_worded: Worded) -> Any:
    """The arguments without what the child worded."""

    def kept(path: Sequence[str], text: str) -> str | None:
        if is_worded(path, text):
            return None
        return _COMMENT.sub(" ", text) if _is_called(path, "program") else text

    return with_texts(args, kept)


def is_title(args: Mapping[str, Any], name: str) -> bool:
    """Whether a name is the whole of a title, as that of an event, or of a text of several words. No id is."""
    if any(char.isdigit() or char == "@" for char in name) and " " not in name.strip():
        return False
    folded = fold(name).strip(" .")
    for path, text in texts(args):
        if len(text) < 4 * len(name) + 20 and fold(text).strip(" .") == folded:
            return _is_called(path, "title") or " " in folded
    return False


def values(args: Any) -> list[tuple[tuple[str, ...], str]]:
    """All texts and numbers in arguments, with the keys that lead to them."""
    return [(path, str(value)) for path, value in scalars(args) if not isinstance(value, bool)]


def is_named(args: Any, name: str, tool: str, known: Collection[str]) -> bool:
    """Whether a name that stands in arguments is the value of one, and isn't mentioned in a longer text.

    Where another argument has a value like it, as in `order: B2` beside `label: A7`, one of them is only mentioned.
    Which one is known only where the field is in the name of the tool. `known` are values that the other may have.
    """
    own = values(args)
    places = [(path, text) for path, text in own if stands_in(name, text)]
    among = [path for path, _ in places]  # the others of a list are no rivals
    has_rivals = any(
        path not in among
        and _shape(name)
        and _shape(text) == _shape(name)
        and not any(stands_in(value, text) for value in known)
        for path, text in own
    )
    verbs = set(tokens_of(tool))
    for path, text in places:
        key = tokens_of(path[-1]) if path else ()
        is_value = _is_called(path, "program") or _is_value(name, text, verbs.union(key))
        if is_value and (not has_rivals or not verbs.isdisjoint(key)):
            return True
    return not places


def _is_value(name: str, text: str, labels: Collection[str]) -> bool:
    """Whether a text is the name, a list with it, or something of one word that contains it, such as a path.

    Words of the field and of the tool can stand beside it, as in `Room A7`, and fewer others than the name has.
    """
    words_of_name = fold(name).split()
    beside_it = {*words_of_name, *labels, *currencies()[0]}
    for part in _LIST.split(text):
        if not stands_in(name, part):
            continue
        beside = fold(part).split()
        if is_unspaced(part):
            beside = re.findall(r"[^\W\d_]+", fold(part).replace(fold(name), " "))
        elif len(part.split()) == 1:
            return True
        others = [word for word in beside if word.isalpha() and word not in beside_it]
        if len(others) < len(words_of_name) + is_amount(name):
            return True
    return False


def _shape(text: str) -> str:
    """What an id of one word looks like, the same for A7 and B2, or CMD-7781 and CMD-9020. Empty for other texts."""
    if not _ID_OF_LETTERS.fullmatch(text):
        return ""
    return re.sub(r"(?<![a-z])[a-z](?![a-z])", "?", re.sub(r"\d", "9", text.lower()))


def without_words(text: str, own: Sequence[str]) -> str:
    """A text without what repeats these words, or is a part of them."""
    for phrase in sorted(own, key=len, reverse=True):
        text = text.replace(phrase, " ")
    bare = text.strip().rstrip(".\u2026")
    return "" if len(bare) >= _REPEATED and any(bare in phrase for phrase in own) else text


def at(args: Mapping[str, Any], paths: Sequence[str]) -> list[Any]:
    """The values at these paths."""
    found: list[Any] = []
    for path in paths:
        value: Any = args
        for key in path.split("."):
            value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
        found.append(value)
    return found


def runs_commands(args: Mapping[str, Any], identifies: Sequence[str] | None) -> bool:
    """Whether a call runs code that the child wrote, unless the tool says that it is identified by that code."""
    return any(
        len(text.split()) > 1 and len(path) == 1 and _is_called(path, "shell") and not _is_at(path, identifies or ())
        for path, text in texts(args)
    )


def only_looks(args: Mapping[str, Any]) -> bool:
    """Whether a request or a query asks for something and changes nothing: `GET`, `SELECT`."""
    own = [(tokens_of(path[-1]), text) for path, text in texts(args) if len(path) == 1]
    if methods := [text.strip().upper() for key, text in own if key[-1:] in (("method",), ("verb",))]:
        return all(method in ("GET", "HEAD", "OPTIONS") for method in methods)
    queries = [text for key, text in own if key[-1:] in (("sql",), ("query",), ("statement",))]
    looks = all(any(pattern.match(query) for pattern in formats("looks")) for query in queries)
    return bool(queries) and looks and not any(p.search(query) for p in formats("writes") for query in queries)


def amounts_in_hundredths(value: Any, tool: Tool | None = None) -> list[str]:
    """The amounts that fields give in cents or the like, in full: by their names, or as the tool's description says."""
    minor = words("fields")["minor"]
    by_tool = tool is not None and not minor.isdisjoint(re.findall(r"[^\W\d_]+", tool.description.lower()))
    return [
        str(number / 100)
        for path, number in scalars(value)
        if isinstance(number, int) and not isinstance(number, bool)
        if path and (by_tool or not minor.isdisjoint(tokens_of(path[-1])))
    ]


def _is_at(path: Sequence[str], declared_paths: Sequence[str]) -> bool:
    """Whether a path is one of the declared ones, or inside of it."""
    declared = (declared_path.split(".") for declared_path in declared_paths)
    return any(list(path[: len(keys)]) == keys for keys in declared)


def _is_called(path: Sequence[str], kind: str) -> bool:
    """Whether the last word of a field is one of this kind in the vocabulary."""
    return bool(path) and not words("fields")[kind].isdisjoint(tokens_of(path[-1])[-1:])
