"""Tells whether a later call took back what an earlier one did: order A7 was cancelled, and then reopened.

Names of tools say what their calls are to each other, as protocols do: `delete_event` ends what `create_event` made,
`reopen_order` restores what `cancel_order` ended, and a later `set_stock` takes the place of an earlier one. Where a
name isn't understood, such as `reactivar_pedido`, the call may have changed what was done if it is about just that.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from delegate.judging.proof.calls import Calls
from delegate.judging.proof.literals import stands_in
from delegate.judging.proof.values import leaves
from delegate.judging.proof.vocabulary import tokens_of, words
from delegate.types import Receipt

_ROLLBACK = re.compile(r"\s*rollback\b", re.IGNORECASE)
_COMMIT = re.compile(r"(?:^|;)\s*(?:commit|end)\b", re.IGNORECASE)
_OWN_ID = re.compile(r"\S*\d\S*")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d+)?")


def is_undone(receipt: Receipt, names: Sequence[str], calls: Calls) -> bool:
    """Whether a later call, which wasn't refused, may have taken back what this one did about these names."""
    for call in calls.receipts:  # of a database, a transaction that ends without effect
        if call.tool == receipt.tool and call.n >= receipt.n:
            texts = leaves(list(call.args.values()))
            if call.n > receipt.n and any(map(_ROLLBACK.match, texts)):
                return True
            if any(map(_COMMIT.search, texts)):
                break
    for later in calls.not_refused:
        if later.n <= receipt.n or calls.effect(later) in ("reads", "files"):
            continue
        if later.tool == receipt.tool:
            takes_back = _replaces(receipt, later, names, calls)
        else:
            takes_back = _is_opposite(receipt.tool, later.tool) and _is_about_it(receipt, later, names, calls)
        if takes_back:
            return True
    return False


def may_be_changed(receipt: Receipt, calls: Calls) -> bool:
    """Whether a later call, of which it isn't known what it does, may have changed what this one did.

    It is made with nothing but what this one was made with or returned, besides words; and its tool is called after the
    same thing, or the id is one that this call returned. Or it is the same call with another number.
    """
    later = [call for call in calls.not_refused if call.n > receipt.n and calls.effect(call) == "acts"]
    return any(_may_change(receipt, call, calls) for call in later)


def _may_change(receipt: Receipt, later: Receipt, calls: Calls) -> bool:
    if later.tool == receipt.tool:
        before, after = dict(_fields(receipt.args)), dict(_fields(later.args))
        changes = [(before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]]
        is_same = before.keys() == after.keys() and len(before) > 1 and len(changes) == 1
        return is_same and all(_NUMBER.fullmatch(value) for value in changes[0])
    first, second = set(tokens_of(receipt.tool)), set(tokens_of(later.tool))
    if not frozenset().union(*words("verbs").values()).isdisjoint(second):
        return False
    arguments, results = set(leaves(list(receipt.args.values()))), set(leaves(calls.result(receipt)))
    about = {
        text for _, text in _fields(later.args) if len(text.split()) == 1 and text not in ("True", "False", "None")
    }
    ids = {text for text in about if _OWN_ID.fullmatch(text)}
    is_about_it = bool(ids) and about <= arguments | results
    return is_about_it and (any(len(word) > 2 for word in first & second) or bool(ids & (results - arguments)))


def _is_opposite(tool: str, later: str) -> bool:
    """Whether the later tool undoes what the other does, by their names."""
    first, second = tokens_of(tool), tokens_of(later)
    ending, restoring = words("verbs")["ending"], words("verbs")["restoring"]
    undoing = {f"un{word}" for word in first} | {word.removeprefix("un") for word in first if word.startswith("un")}
    if not undoing.isdisjoint(second):
        return True
    against = restoring if not ending.isdisjoint(first) else ending
    verbs = ending | restoring | {first[0] if first else ""}
    about = set(first) - verbs, set(second) - verbs
    return not against.isdisjoint(second) and (not all(about) or bool(set(first) & set(second)))


def _is_about_it(receipt: Receipt, later: Receipt, names: Sequence[str], calls: Calls) -> bool:
    """Whether the later call has a name, or an id that the first one brought about."""
    if any(calls.contains(later, [name], proves=True) for name in names):
        return True
    values = {str(value) for _, value in _fields(later.args)}
    return any(_OWN_ID.fullmatch(text) and text in values for text in leaves([receipt.args, calls.result(receipt)]))


def _replaces(receipt: Receipt, later: Receipt, names: Sequence[str], calls: Calls) -> bool:
    """Whether a later call of the same tool sets the same fields of the same thing to other values."""
    if words("verbs")["replacing"].isdisjoint(tokens_of(receipt.tool)) or calls.contains(later, names, proves=True):
        return False
    before, after = dict(_fields(receipt.args)), dict(_fields(later.args))
    shared = before.keys() & after.keys()
    changes = [before[key] != after[key] for key in shared if any(stands_in(name, str(before[key])) for name in names)]
    return any(changes) and not all(changes)


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a JSON value that aren't objects, by their paths."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, Any]", value).items():
            yield from _fields(part, f"{path}.{key}")
    else:
        yield path, str(cast("object", value))
