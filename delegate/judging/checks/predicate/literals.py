"""Reads the literals of JavaScript that aren't copied as they are: numbers, texts and regular expressions."""

import re

from delegate.judging.checks.predicate.errors import PredicateError

_DIGITS = "[0-9](?:_?[0-9])*"
_NUMBER = re.compile(
    rf"(?:(?:0|(?!0){_DIGITS})(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
    r"|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+"
)
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,8})\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(\r\n|0(?![0-9])|[^ux0-9]))", re.DOTALL
)
_CONTROLS = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0",
    "\n": "", "\r": "", "\r\n": "", "\u2028": "", "\u2029": "",
}  # fmt: skip


def is_number(text: str) -> bool:
    """Whether `text` is a number in a notation that is allowed: no `017`, no `10n`."""
    return _NUMBER.fullmatch(text) is not None


def unescape(raw: str) -> str | None:
    """The text that the inside of a string or template stands for; None when an escape in it isn't valid."""

    def unescaped(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        return chr(int(code, 16)) if code else _CONTROLS.get(match[4], match[4])

    if "\\" in _ESCAPE.sub("", raw):
        return None
    try:
        return _ESCAPE.sub(unescaped, raw)
    except (ValueError, OverflowError):  # \u{...} beyond the last code point
        return None


# ----------------------------------------------------------------------------------------------- regular expressions

_CODE = r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[tnrfv]|0(?![0-9])"
_BY_FLAG_U = {
    False: rf"{_CODE}|[!-/:-@\[-^`{{-~]",
    True: rf"{_CODE}|u\{{0{{0,2}}(?:10[0-9a-fA-F]{{4}}|[0-9a-fA-F]{{1,5}})\}}|[\^$\\.*+?()\[\]{{}}|/]",
}
"""What may follow a backslash to stand for one character."""
_PARTS = {
    unicode: re.compile(
        rf"""(?P<edge>\\[bB]|[|^$])
        |(?P<char>\\(?:[dDwWsS]|{escaped})|[^\\()\[\]{{}}*+?|^$])
        |(?P<set>\[(?:\\(?:[bdDwWsS-]|{escaped})|[^\\\]])*\])
        |(?P<open>\((?:\?(?::|<?[=!]|<[A-Za-z_][A-Za-z0-9_]*>))?)
        |(?P<close>\))
        |(?P<repeat>(?:[*+?]|\{{[0-9]{{1,9}}(?:,[0-9]{{0,9}})?\}})\??)""",
        re.VERBOSE | re.DOTALL,
    )
    for unicode, escaped in _BY_FLAG_U.items()
}
_SET_ITEM = re.compile(r"(\\(?:u\{\w+\}|u\w{4}|x\w\w|.)|[^\\])(?:-(\\(?:u\{\w+\}|u\w{4}|x\w\w|.)|[^\\]))?", re.DOTALL)


def check_regex(source: str, flags: str) -> None:
    """Raise PredicateError for the first part of `/source/flags` that isn't allowed, such as a back reference."""
    if unknown := [flag for flag in flags if flag not in "gimsu" or flags.count(flag) > 1]:
        raise PredicateError(f"the regular expression flag `{unknown[0]}` is not supported")
    at, opened, names, can_repeat = 0, list[tuple[str, int]](), set[str](), False
    while at < len(source):
        match = _PARTS["u" in flags].match(source, at)
        part, kind = (match[0], match.lastgroup) if match else (source[at : at + 1 + (source[at] == "\\")], None)
        allowed, repeats = kind is not None, kind in ("char", "set")
        if kind == "open":
            allowed = part not in names
            names |= {part} if part[-1] == ">" else set()
            opened.append((part, at))
        elif kind == "close":
            allowed = bool(opened)
            repeats = allowed and opened.pop()[0][-1] not in "=!"
        elif kind == "repeat":
            counts = [int(count) for count in re.findall("[0-9]+", part)]
            allowed = can_repeat and counts == sorted(counts)
        elif kind == "set":
            allowed = all(_is_ascending(*item.groups()) for item in _SET_ITEM.finditer(part[1:-1].removeprefix("^")))
        if not allowed:
            raise _refused(part, at, source)
        at, can_repeat = at + len(part), repeats
    if opened:
        raise _refused(*opened[-1], source)


def _is_ascending(first: str, last: str | None) -> bool:
    """Whether an item of a set is one character or class, or a range of characters in their order."""
    ends = [unescape(end) for end in (first, last) if end is not None]
    is_class = len(ends) == 2 and any(re.fullmatch(r"\\[dDwWsS]", end) for end in (first, last or ""))
    return not is_class and ends == sorted(ends, key=str)


def _refused(part: str, at: int, source: str) -> PredicateError:
    return PredicateError(f"`{part}` at character {at + 1} of the regular expression /{source}/ is not supported")
