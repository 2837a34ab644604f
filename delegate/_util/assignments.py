"""Finds secrets that have no known format, but stand next to a name that says what they are: `DB_PASSWORD=…`.

The value has to look like a secret, since code and documentation assign much else to such names: `token: required`,
`api_key = os.environ["X"]`. Where the name alone says little, as in `key: …`, it has to look random.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from delegate._util.secret_names import is_about_a_secret

_QUOTE = r"""\\{0,15}["'`]"""
_QUOTED = r"""(?:[bBuUrR]{0,2}\\{0,15}["'`]{1,3}"""
_BARE = r"""[^\s"'`\\<>&;,(){}\[\]|]|[,;|](?![\s"']|[\w.-]{1,60}[=:]|\Z)"""
_VALUE = rf"""{_QUOTED}(?P<quoted>[^\s"'`\\]{{8,120}})|(?P<bare>(?:{_BARE}){{8,120}}))"""
_LIKELY = rf"""(?=[=>]?\s{{0,6}}{_QUOTED})?(?=[^\s"'`\\<>()]{{8}})[^\s0-9"'`\\<>()]{{0,40}}[0-9])"""
"""Rules out most positions before anything else is looked at. A secret without a digit isn't looked for."""
_SEPARATORS = {
    "=": re.compile(rf"={_LIKELY}>?[ \t]{{0,3}}(?={_VALUE})"),
    ":": re.compile(rf":(?!//){_LIKELY}=?\s{{0,6}}(?={_VALUE})"),
    ",": re.compile(rf""",(?<=["'`],)(?=\s?\\{{0,15}}["'`])\s?(?={_VALUE})"""),
    ">": re.compile(r">(?<=[\w]>)(?P<quoted>[^\s<>]{8,120})(?=</)(?P<bare>(?!))?"),
    "--": re.compile(rf"--(?P<flag>[A-Za-z][\w-]{{1,40}})[ ]{{1,3}}(?={_VALUE})"),
}
_LONGEST_SEEN = 120
"""How much of a value is looked at."""
_REST = re.compile(r"""[^\s"'`\\<>&]*""")
_BEFORE = 120
"""Longest text before a separator in which the name is looked for."""
_NAME_BACKWARD = re.compile(r"""[ \t?|:=]{0,8}\]?["'`]?\\{0,15}(?P<name>[\w.-]{1,80})""")
"""The name right before a separator, in a text that is reversed, since only then `re` starts at the separator."""
_TYPED_BACKWARD = re.compile(r"""[ \t]{0,3}[\w\[\]|. ]{1,40}:(?P<name>\w{1,80})""")
"""The same where its type is between them."""
_ARGUMENT_BACKWARD = re.compile(r"""["'`]\\{0,15}(?P<name>[\w.-]{1,80})["'`]\\{0,15}\s{0,40}\(""")
"""The same for the first argument of a call, `setenv("DB_PASSWORD", …)`: in a list, what is next has no such name."""
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_NAME_BESIDE = re.compile(
    rf"""\b(?:name|key)(?:{_QUOTE})?\s?[:=]\s?(?:{_QUOTE})?(?P<name>[\w.-]{{2,80}})(?:{_QUOTE})?,?(?:\s|\\{{1,4}}[nrt]){{1,20}}(?:{_QUOTE})?\Z""",
    re.IGNORECASE,
)
"""The name in `name: DB_PASSWORD` or `key="DB_PASSWORD"`, right before `value`."""


def assigned_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the secrets are that stand next to a name that says so."""
    for separator, pattern in _SEPARATORS.items():
        if separator not in text or (separator == "," and "(" not in text):  # which `_ARGUMENT_BACKWARD` needs
            continue
        end = 0
        for match in pattern.finditer(text):
            if (span := _assigned(text, match)) and match.start() >= end:
                end = span[1]
                yield span


def _assigned(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    group = "bare" if match["bare"] else "quoted"
    value = match[group].rstrip(".,;:!?") if group == "bare" else match[group]
    if not _looks_like_one(value) or not is_secret_value(_name(text, match), value):
        return None
    if group == "bare" and (text[match.end(group) : match.end(group) + 1] in ("(", "[") or _DOTTED.fullmatch(value)):
        return None  # code
    start, end = match.start(group), match.start(group) + len(value)
    if len(match[group]) >= _LONGEST_SEEN and (rest := _REST.match(text, end)):
        end = rest.end()
    return start, end


def _name(text: str, match: re.Match[str]) -> str:
    if "flag" in match.re.groupindex:
        return match["flag"]
    backward = text[max(0, match.start() - _BEFORE) : match.start()][::-1]
    separator = text[match.start()]
    pattern = _ARGUMENT_BACKWARD if separator == "," else _NAME_BACKWARD
    if not (name_match := pattern.match(backward)):
        return ""
    if backward.startswith("::" if separator == "=" else ":", name_match.end()):
        return ""  # a part of the name of a resource or a class
    name = _forward(backward, name_match)
    if name.lower() in ("value", "val") and (beside := _NAME_BESIDE.search(backward[name_match.end() :][::-1])):
        return beside["name"]
    if separator == "=" and not is_about_a_secret(name) and (typed := _TYPED_BACKWARD.match(backward)):
        return _forward(backward, typed)
    return name


def _forward(backward: str, match: re.Match[str]) -> str:
    """The name, without the letter of an escape, as of a line break, that stands before it."""
    name = match["name"][::-1]
    is_escaped = backward[match.end() : match.end() + 1] == "\\" and name[0] in "bfnrt"
    return name[1:] if is_escaped else name


# ---------------------------------------------------------------------------------------------------- what a value is

_ONE_WORD = re.compile(r"\S{8,}")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
_STANDS_FOR_ONE = re.compile(
    r"^[<$%{\[(@]|\$\{|\{\{|\.\.\.|…|xxxx|\*\*\*|your[-_]|[-_]here|placeholder|changeme|\[redacted\]", re.I
)
_PUBLIC = (
    "AAAAB3Nz", "AAAAC3Nz", "AAAAE2Vj", "MIGfMA0G", "MIIBIjAN", "sha256", "sha384", "sha512", "http:", "https:",
    "data:", "arn:",
)  # fmt: skip
"""How public keys, digests, addresses and names of resources begin."""


def is_secret_value(name: str, value: str) -> bool:
    """Whether what is assigned to `name` is a secret."""
    if not _looks_like_one(value) or not (certainty := is_about_a_secret(name)):
        return False
    return certainty == 2 or is_random(value)


@lru_cache(maxsize=4096)
def _looks_like_one(value: str) -> bool:
    """Whether a value is a secret if its name surely is that of one."""
    return (
        bool(_ONE_WORD.fullmatch(value))
        and not value.isdigit()
        and not value.startswith(_PUBLIC)
        and not _STANDS_FOR_ONE.search(value)
        and _is_no_word(value)
    )


def _pieces_per_character(part: str) -> float:
    """How often the kind of character changes: about 0.6 in random text, below 0.3 in words and names."""
    return len(_PIECE.findall(part)) / max(1, len(part))


def is_random(value: str) -> bool:
    """Whether a value can be nothing but a key: long, of mixed letters and digits, and neither a digest nor a UUID."""
    return any(
        len(part) >= 20 and not _HEX.fullmatch(part) and _pieces_per_character(part) > 0.38
        for part in re.split(r"[^A-Za-z0-9+]", value)
    )


def _is_no_word(value: str) -> bool:
    """Whether a value isn't made of words, numbers and names, such as `db-password-2` or `self.token2`."""
    if _UUID.fullmatch(value):
        return True
    parts = re.split(r"[-_.:/]", value)
    if len(parts) > 1 and not any(len(part) >= 8 for part in parts):
        return False
    return any(
        len(part) >= 8 and len(_PIECE.findall(part)) >= 3
        and (
            _pieces_per_character(part) >= (0.29 if len(part) < 24 else 0.25)
            or (len(part) >= 16 and _HEX.fullmatch(part))
        )
        and any(map(str.isdigit, part)) and not part.isdigit()
        for part in parts
    ) or (len(value) >= 20 and is_random(value))  # fmt: skip
