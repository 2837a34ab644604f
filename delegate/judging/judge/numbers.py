"""Asks a model which numbers the cited sources say in words, where a report has numbers that no source has in digits.

The model sees the sources alone: neither the report nor the number that is looked for. Code then compares.
"""

from collections.abc import Mapping
from typing import Any, cast

from delegate._util.fencing import clean, fence, new_nonce
from delegate._util.redaction import redactor
from delegate._util.resources import schema, text
from delegate.judging.citations.compare import plain
from delegate.judging.citations.decide import Examination
from delegate.judging.judge.citations import PASSAGE_CHARS, nearest
from delegate.judging.judge.reply import UnparseableReply, one_object
from delegate.judging.judge.session import JudgeQuestion

MOST_AT_ONCE = 20
"""So many sources are read in one request; what others say in words stays unknown."""
_MAX_VALUE = 10**15
_ANSWER_TOKENS = 600


def question(examination: Examination, page_tokens: int) -> tuple[JudgeQuestion, Mapping[str, tuple[str, str]]] | None:
    """The question about all sources that may have a number in words, and by their ids what is shown of each, with the
    whole text; None if there are none.
    """
    shown = {
        nearest(cited): cited.source.text.text
        for cited in examination.cited
        if cited.may_be_in_words and cited.source is not None
    }
    if not shown:
        return None
    most = max(1, min(MOST_AT_ONCE, page_tokens // PASSAGE_CHARS))
    texts = {f"t{n}": item for n, item in enumerate(list(shown.items())[:most], start=1)}
    nonce = new_nonce()
    fenced = "\n\n".join(fence(id, redactor.text(clean(part).text), nonce) for id, (part, _) in texts.items())
    asked = JudgeQuestion(
        system=text("judges", "numbers.md"),
        text=f"{fenced}\n\nList the numbers in words of: {', '.join(texts)}",
        reply_schema=schema("numbers_reply"),
        reply_tokens=_ANSWER_TOKENS * len(texts),
        nonce=nonce,
    )
    return asked, texts


def read_reply(reply: str, texts: Mapping[str, tuple[str, str]]) -> dict[str, frozenset[int]]:
    """The numbers by the texts of their sources, as far as their words stand there. Raises UnparseableReply."""
    items: Any = one_object(reply).get("numbers")
    if not isinstance(items, list):
        raise UnparseableReply("the reply has no list `numbers`")
    shown = {id: plain(part) for id, (part, _) in texts.items()}
    found: dict[str, set[int]] = {}
    for item in cast("list[Any]", items):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        words, value, id = fields.get("words"), fields.get("value"), str(fields.get("id"))
        if not isinstance(words, str) or type(value) is not int or id not in texts or not 0 < value < _MAX_VALUE:
            continue
        is_in_words = any(map(str.isalpha, words)) and not any(map(str.isdecimal, words))
        if is_in_words and plain(words) in shown[id]:
            found.setdefault(texts[id][1], set()).add(value)
    return {source: frozenset(values) for source, values in found.items()}
