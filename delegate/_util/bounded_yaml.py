"""PyYAML's safe loader with bounds on depth, aliases and what they stand for, checked before anything is built."""

from typing import Any

import yaml

MAX_ALIASES = 1_000
MAX_MERGED = 1_000
"""Most keys of a mapping into which others are merged with `<<`."""
_MERGE = "tag:yaml.org,2002:merge"
MAX_VALUES = 1_000_000
MAX_CHARS = 64 << 20
"""Most values, and characters in them, once every alias is replaced by what it names."""


def load(text: str, max_depth: int) -> Any:
    """The value of a document. Raises ValueError that says in one line what is wrong, and where."""
    try:
        return _Loader(text, max_depth).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(_problem(error)) from None
    except (LookupError, AttributeError, TypeError, OverflowError) as error:  # of values such as `!!int ''`
        raise ValueError(f"a value doesn't fit its tag: {error}") from None


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str, max_depth: int) -> None:
        super().__init__(text)
        self._max_depth = max_depth
        self._aliases = self._depth = self._values = self._chars = 0
        self._sizes = dict[int, tuple[int, int]]()
        """Of each part that was composed, by its identity: how many values and characters it stands for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        events: Any = self
        if events.check_event(yaml.AliasEvent):
            return self._alias(super().compose_node(parent, index))
        self._depth += 1
        if self._depth > self._max_depth:
            raise self._marked(f"nested more than {self._max_depth} levels deep")
        values, chars = self._values, self._chars
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        self._add(1, len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        self._sizes[id(node)] = self._values - values, self._chars - chars
        seen, pairs = set[tuple[str, str]](), node.value if isinstance(node, yaml.MappingNode) else ()
        for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE):
            if (key.tag, key.value) in seen:  # only the last value would be kept
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node

    def _alias(self, node: Any) -> Any:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise self._marked(f"more than {MAX_ALIASES:,} aliases")
        if id(node) not in self._sizes:
            raise self._marked("an alias of what contains it")
        self._add(*self._sizes[id(node)])
        return node

    def _add(self, values: int, chars: int) -> None:
        self._values += values
        self._chars += chars
        if self._values > MAX_VALUES or self._chars > MAX_CHARS:
            raise self._marked(f"it stands for more than {MAX_VALUES:,} values or {MAX_CHARS >> 20} MB of text")

    def flatten_mapping(self, node: Any) -> None:
        merges = any(key.tag == _MERGE for key, _ in node.value)
        super().flatten_mapping(node)
        if merges and len(node.value) > MAX_MERGED:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_MERGED:,} merged keys", problem_mark=node.start_mark)

    def _marked(self, problem: str) -> yaml.MarkedYAMLError:
        events: Any = self
        return yaml.MarkedYAMLError(problem=problem, problem_mark=events.peek_event().start_mark)


def _problem(error: Exception) -> str:
    """What is wrong, and where: the library's own text also quotes the line, below each other."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem or mark is None:
        return " ".join(str(error).split())
    context, begin = getattr(error, "context", None), getattr(error, "context_mark", None)
    text = f"{problem}: line {mark.line + 1} column {mark.column + 1}"
    return f"{text} ({context} from line {begin.line + 1} column {begin.column + 1})" if context and begin else text
