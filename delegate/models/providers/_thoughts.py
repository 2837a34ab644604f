"""Takes out thoughts that a server without a parser leaves in a model's text.

Only where models write them: in front of the text, and after such thoughts also between its paragraphs. A tag anywhere
else may be quoted, and is kept.
"""

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),  # Gemini
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),  # Mistral
)
_END = "</think>"
_QUOTES = "`\"'“”‘’«»"
_FENCES = ("```", "~~~")
_MOST_TAGS = 50
"""How many tags in a text are looked at."""


def without_thoughts(text: str, *, parsed: bool = False) -> str:
    """The text without thoughts; empty if they never end. `parsed`: the server has sent the thoughts elsewhere."""
    rest = text.lstrip()
    begin, end = next((tags for tags in _TAGS if rest.startswith(tags[0])), ("", ""))
    if not begin:
        return text if parsed or _END not in text or rest[:1] in "{[`~" else _after_end(text)
    while rest.startswith(begin):
        _, closed, after = rest.partition(end)
        if not closed:
            return text if rest.startswith(f"{begin} ") else ""  # with a blank, it is a sentence about the tag
        text = rest = after.lstrip()
    text = _between_paragraphs(text, begin, end)
    return _after_end(text) if end == _END else text


def _between_paragraphs(text: str, begin: str, end: str) -> str:
    """The text without blocks that begin and end a line outside of code."""
    kept, at = "", 0
    for _ in range(_MOST_TAGS):
        begins = text.find(f"\n{begin}", at)
        ends = text.find(end, begins)
        if begins < 0 or ends < 0:
            break
        rest = text[ends + len(end) :]
        is_thought = not rest.partition("\n")[0].strip() and not _is_in_code(text[: begins + 1])
        kept += text[at:begins] if is_thought else text[at : ends + len(end)]
        at = ends + len(end)
    return kept + text[at:]


def _after_end(text: str) -> str:
    """What follows the end of thoughts whose beginning was part of the prompt, as in DeepSeek's and Qwen's templates.

    The tag is attached to the thoughts or begins a line. In a sentence about it, there is a blank or a quote before it.
    """
    at = -1
    for _ in range(_MOST_TAGS):
        at = text.find(_END, at + 1)
        if at < 0 or _TAGS[0][0] in text[:at]:
            return text
        before, after = text[:at], text[at + len(_END) :]
        ends_line = not after.partition("\n")[0].strip()
        begins_line = not before.rpartition("\n")[2]
        attached = before[-1:].strip() not in ("", *_QUOTES)
        is_end = (attached and ends_line) or (begins_line and (ends_line or not after[:1].isspace()))
        if is_end and after[:1] not in tuple(_QUOTES) and not _is_in_code(before):
            return after.lstrip()
    return text


def _is_in_code(before: str) -> bool:
    """Whether a text ends inside a block of code."""
    fences = sum(line.lstrip().startswith(_FENCES) for line in before.split("\n"))
    return fences % 2 == 1
