"""Arbitrary values, and a mutator that damages valid ones."""

import json
from random import Random
from typing import Any, cast

from hypothesis import strategies as st

ANY_CHARACTER = st.characters(exclude_categories=())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(2**63), 1e308, float("nan"), float("inf"), -0.0])
    | st.floats()
    | st.text(ANY_CHARACTER, max_size=20)
    | st.sampled_from(["", " ", "\ud800", "\u202e\n`", "{", '{"kind": "shell"}', "[[", '"x"'])
    | st.sampled_from(["x" * 100_001, "(?:a{1000}){1000}"])
)  # fmt: skip
JUNK: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(ANY_CHARACTER, max_size=8), inner, max_size=4)
        | inner.map(lambda value: json.dumps(value))
    ),
    max_leaves=12,
)


class Mutator:
    """Changes a few parts of a value."""

    def __init__(self, seed: int, junk: list[Any]) -> None:
        self.random = Random(seed)
        self.junk = junk

    def changed(self, value: Any) -> Any:
        """Return the value with one part replaced, renamed, duplicated or removed."""
        if value and self.random.random() < 0.95:
            if isinstance(value, dict):
                return self._object(dict(cast("dict[str, Any]", value)))
            if isinstance(value, list):
                return self._list(list(cast("list[Any]", value)))
        return self.random.choice([*self.junk, json.dumps(value), [value], {"kind": value}, value])

    def _object(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = self.random.choice(list(fields))
        match self.random.randint(0, 14):
            case 0:
                del fields[name]
            case 1:
                fields[self._odd(name)] = fields.pop(name)
            case 2:
                fields[self._odd("x")] = self.random.choice(self.junk)
            case _:
                fields[name] = self.changed(fields[name])
        return fields

    def _list(self, items: list[Any]) -> list[Any]:
        n = self.random.randrange(len(items))
        match self.random.randint(0, 14):
            case 0:
                del items[n]
            case 1:
                items *= self.random.choice([2, 60])
            case _:
                items[n] = self.changed(items[n])
        return items

    def _odd(self, name: str) -> str:
        text = next((one for one in self.junk if isinstance(one, str)), "")
        return self.random.choice([text, name.upper(), name + "s", f"{name}\u200b", "\u043a\u0456nd", "a\nb", "`"])
