"""The tool `think`, for parents and children: a thought, and the criteria it is held against, as a checklist.

No model is called and nothing is kept. A call and its answer are a scratchpad: nothing later refers to them, so a host
may drop both from the conversation once the model's next turn is there (a provider wants every call with its answer:
drop them together). In a child's run they are on record as every tool call is, but count as its own words: no thought
is evidence of a deed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from delegate._util.fencing import one_line
from delegate.contract.reading import MAX_CRITERIA, is_blank, join, kind_of, read_object, weigh
from delegate.errors import CallError

CRITERION_CHARS = 500
"""Of one criterion in the checklist."""
_FIELDS = ("thought", "acceptance_criteria")
_EXAMPLE = 'send {"thought": "…", "acceptance_criteria": ["…"]}; the criteria may be left out'
_NOTED = "Noted."
_ASKED = (
    "Now mark each criterion: [x] where it is met, [ ] where it isn't, [?] where you can't tell. Beside each, name the "
    "evidence: a file, a command's result, a tool's answer, words that can be found. A thought is no evidence, and "
    "what has none is not met."
)


class Thought(NamedTuple):
    """One call of the tool."""

    thought: str
    acceptance_criteria: tuple[str, ...] = ()


def parse_think(arguments: Mapping[str, Any] | str | bytes) -> Thought:
    """The arguments of one call. Raises CallError, which says how to mend them."""
    fields = read_object(arguments)
    weigh(fields, "")
    if unknown := [name for name in fields if name not in _FIELDS]:
        name = join("", str(unknown[0]))
        raise CallError("unknown_field", f"there is no field {name}", field=name, hint=_EXAMPLE)
    thought = fields.get("thought")
    if is_blank(thought):
        raise CallError("empty", "`thought` is missing", field="thought", hint=_EXAMPLE)
    if not isinstance(thought, str):
        raise CallError("wrong_type", f"`thought` is {kind_of(thought)}, not text", field="thought", hint=_EXAMPLE)
    return Thought(thought, _criteria(fields.get("acceptance_criteria")))


def render_thought(thought: Thought) -> str:
    """What the model reads: the criteria as a checklist, to be marked with evidence."""
    if not thought.acceptance_criteria:
        return _NOTED
    boxes = [f"- [ ] c{n}: {one_line(text, CRITERION_CHARS)}" for n, text in enumerate(thought.acceptance_criteria, 1)]
    return "\n".join([f"{_NOTED} {_ASKED}", *boxes])


def _criteria(given: object) -> tuple[str, ...]:
    """Models write null or [] for none, and a single text for a list of one."""
    if is_blank(given):
        return ()
    items = [given] if isinstance(given, str) else given
    name = "acceptance_criteria"
    if not isinstance(items, (list, tuple)):
        raise CallError("wrong_type", f"`{name}` is {kind_of(items)}, not a list of texts", field=name, hint=_EXAMPLE)
    listed = list(cast("list[object]", items))
    if len(listed) > MAX_CRITERIA:
        message = f"`{name}` has {len(listed)} items, at most {MAX_CRITERIA} are taken"
        raise CallError("too_large", message, field=name, hint="leave out those that are sure")
    for n, item in enumerate(listed):
        if not isinstance(item, str) or not item.strip():
            what = "empty" if isinstance(item, str) else kind_of(item)
            place = f"{name}[{n}]"
            raise CallError("wrong_type", f"`{place}` is {what}, not a statement in words", field=place, hint=_EXAMPLE)
    return tuple(cast("list[str]", listed))
