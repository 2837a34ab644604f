"""Takes out of a recorded call what the child worded itself: a name in a message about a deed doesn't show the deed.

What is left are the arguments that say what the call is about, and the tool's own output, where that doesn't repeat the
child's words. Comments in commands and queries go too.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from delegate.judging.proof.literals import fold, is_amount, is_unspaced, stands_in
from delegate.judging.proof.vocabulary import currencies, formats, tokens_of, words
from delegate.ports import Tool

_WORDS = 8
"""A text of more words is worded by the child, whatever its field is called."""
_REPEATED = 12
"""A part of the child's words of this length, found in an output, is a repetition of them."""
_COMMENT = re.compile(r"/\*.*?\*/|(?:^|(?<=[\s;]))(?:#|--\s|//\s|REM\s)[^\n]*", re.DOTALL)
_LIST = re.compile(r"[,;|<>()\n]")
_ID_OF_LETTERS = re.compile(r"(?=[^\W\d_])(?=\D*\d)[A-Za-z0-9_-]{2,40}")
Worded = Callable[[Sequence[str], str], bool]
"""Whether the text at this path is the child's own words."""


def worded(identifies: Sequence[str] | None, *, runs: bool) -> Worded:
    """What is worded by the child in calls of a tool that declares `identifies`, or of one that `runs` code."""

    def is_worded(path: Sequence[str], text: str) -> bool:
        if identifies is not None and any(_is_at(path, declared_path) for declared_path in identifies):
            return False
        if _is_program(path) or runs:
            return False
        if identifies is not None:
            return len(text.split()) > 1
        key = tokens_of(path[-1]) if path else ()
        return bool(key and key[-1] in words("fields")["free_text"]) or len(text.split()) > _WORDS

    return is_worded


def own_words(args: Mapping[str, Any], is_worded: Worded) -> list[str]:
    """The texts among the arguments that the child worded."""
    return [text for path, text in _texts(args) if text.strip() and is_worded(path, text)]


def telling(args: Any, is_worded: Worded) -> Any:
    """The arguments without what the child worded."""
    return _kept(args, (), is_worded)


def _kept(value: Any, path: tuple[str, ...], is_worded: Worded) -> Any:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: _kept(part, (*path, str(key)), is_worded) for key, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(part, path, is_worded) for part in cast("Sequence[Any]", value)]
    if not isinstance(value, str):
        return value
    if is_worded(path, value):
        return None
    return _COMMENT.sub(" ", value) if _is_program(path) else value


def is_title(args: Mapping[str, Any], name: str) -> bool:
    """Whether a name is the whole of a title, as that of an event, or of a text of several words. No id is."""
    if any(char.isdigit() or char == "@" for char in name) and " " not in name.strip():
        return False
    folded = fold(name).strip(" .")
    for path, text in _texts(args):
        if len(text) < 4 * len(name) + 20 and fold(text).strip(" .") == folded:
            key = tokens_of(path[-1]) if path else ()
            return bool(key and key[-1] in words("fields")["title"]) or " " in folded
    return False


def texts(args: Any) -> list[str]:
    """All texts and numbers in arguments."""
    return [text for _, text in _values(args)]


def is_named(args: Any, name: str, tool: str, known: Collection[str]) -> bool:
    """Whether a name that stands in arguments is the value of one, and isn't mentioned in a longer text.

    Where another argument has a value like it, as in `order: B2` beside `label: A7`, one of them is only mentioned.
    Which one is known only where the field is in the name of the tool. `known` are values that the other may have.
    """
    values = list(_values(args))
    places = [(path, text) for path, text in values if stands_in(name, text)]
    if not places:
        return True
    among = [path for path, _ in places]  # the others of a list are no rivals
    rivals = [
        path
        for path, text in values
        if path not in among
        and _shape(name)
        and _shape(text) == _shape(name)
        and not any(stands_in(value, text) for value in known)
    ]
    verbs = set(tokens_of(tool))
    return any(
        (_is_program(path) or _is_value(name, text, {*verbs, *(tokens_of(path[-1]) if path else ())}))
        and (not rivals or (bool(path) and not verbs.isdisjoint(tokens_of(path[-1]))))
        for path, text in places
    )


def _is_value(name: str, text: str, labels: Collection[str]) -> bool:
    """Whether a text is the name, a list with it, or something of one word that contains it, such as a path.

    Words of the field and of the tool can stand beside it, as in `Room A7`, and fewer others than the name has.
    """
    words_of_name = fold(name).split()
    for part in re.split(r"[,;|<>()\n]+", text) if _LIST.search(text) else [text]:
        if not stands_in(name, part):
            continue
        beside = (
            re.findall(r"[^\W\d_]+", fold(part).replace(fold(name), " ")) if is_unspaced(part) else fold(part).split()
        )
        others = [word for word in beside if word.isalpha() and word not in words_of_name and word not in labels]
        others = [word for word in others if word not in currencies()[0]]
        is_word = len(part.split()) == 1 and not is_unspaced(part)
        if is_word or len(others) < len(words_of_name) + is_amount(name):
            return True
    return False


def _shape(text: str) -> str:
    """What an id of one word looks like, the same for A7 and B2, or CMD-7781 and CMD-9020. Empty for other texts."""
    if not _ID_OF_LETTERS.fullmatch(text):
        return ""
    return re.sub(r"(?<![a-z])[a-z](?![a-z])", "?", re.sub(r"\d", "9", text.lower()))


def without(value: Any, own: Sequence[str]) -> Any:
    """A result without what repeats these words."""
    if isinstance(value, Mapping):
        return {key: without(part, own) for key, part in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [without(part, own) for part in cast("Sequence[Any]", value)]
    return without_words(value, own) if isinstance(value, str) else value


def without_words(text: str, own: Sequence[str]) -> str:
    """A text without what repeats these words, or is a part of them."""
    for phrase in sorted(own, key=len, reverse=True):
        text = text.replace(phrase, " ")
    bare = text.strip().rstrip(".\u2026")
    return "" if len(bare) >= _REPEATED and any(bare in phrase for phrase in own) else text


def at(args: Mapping[str, Any], paths: Sequence[str]) -> list[Any]:
    """The values at these paths."""
    values: list[Any] = []
    for path in paths:
        value: Any = args
        for key in path.split("."):
            value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
        values.append(value)
    return values


def runs_commands(args: Mapping[str, Any], identifies: Sequence[str] | None) -> bool:
    """Whether a call runs code that the child wrote, unless the tool says that it is identified by that code."""
    shell = words("fields")["shell"]
    return any(
        len(text.split()) > 1 and len(path) == 1 and tokens_of(path[0])[-1:] and tokens_of(path[0])[-1] in shell
        for path, text in _texts(args)
        if not any(_is_at(path, declared_path) for declared_path in identifies or ())
    )


def only_looks(args: Mapping[str, Any]) -> bool:
    """Whether a request or a query asks for something and changes nothing: `GET`, `SELECT`."""
    texts = [(tokens_of(path[-1]), text) for path, text in _texts(args) if len(path) == 1]
    methods = [text.strip().upper() for key, text in texts if key[-1:] in (("method",), ("verb",))]
    if methods:
        return all(method in ("GET", "HEAD", "OPTIONS") for method in methods)
    queries = [text for key, text in texts if key[-1:] and key[-1] in ("sql", "query", "statement")]
    return bool(queries) and all(map(_only_selects, queries))


def _only_selects(query: str) -> bool:
    looks, writes = formats("looks"), formats("writes")
    return any(pattern.match(query) for pattern in looks) and not any(pattern.search(query) for pattern in writes)


def amounts_in_hundredths(value: Any, tool: Tool | None = None) -> list[str]:
    """The amounts that fields give in cents or the like, in full: by their names, or as the tool's description says."""
    minor = words("fields")["minor"]
    by_tool = tool is not None and not minor.isdisjoint(re.findall(r"[^\W\d_]+", tool.description.lower()))
    return [
        str(number / 100)
        for path, number in _numbers(value)
        if path and (by_tool or not minor.isdisjoint(tokens_of(path[-1])))
    ]


def _numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            yield from _numbers(part, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from _numbers(part, path)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value


def _is_at(path: Sequence[str], declared_path: str) -> bool:
    """Whether a path is the declared one, or inside of it."""
    keys = declared_path.split(".")
    return list(path[: len(keys)]) == keys


def _is_program(path: Sequence[str]) -> bool:
    key = tokens_of(path[-1]) if path else ()
    return bool(key) and key[-1] in words("fields")["program"]


def _texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            yield from _texts(part, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from _texts(part, path)
    elif isinstance(value, str):
        yield path, value


def _values(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """All texts and numbers, with the fields in which they are."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            yield from _values(part, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield from _values(part, path)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield path, str(value)
