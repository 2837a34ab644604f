"""The tool `think`, for parents and children. It returns the given acceptance criteria as a checklist.

No model is called and nothing is stored. Nothing refers to a call and its result later, so a host may remove both from
the conversation after the model's next turn (together, because providers require a result for every call). In a child's
run, calls are recorded like those of any tool, but they count as the child's own words and not as evidence.
"""

from typing import NamedTuple, cast

from delegate._util.fencing import one_line
from delegate.contract.reading import MAX_CRITERIA, Arguments, check_size, is_blank, join, kind_of, read_object
from delegate.types.errors import CallError

CRITERION_CHARS = 500
"""Maximum length of a criterion in the checklist."""
_FIELDS = ("thought", "acceptance_criteria")
_EXAMPLE = 'send {"thought": "…", "acceptance_criteria": ["…"]}; acceptance_criteria is optional'
_NOTED = "Noted."
_INSTRUCTIONS = (
    "Now mark each criterion: [x] if it is met, [ ] if it isn't, [?] if you can't tell. Next to each, name the "
    "evidence: a file, a command's result, a tool's output, a quote that can be found. A thought is not evidence, and "
    "a criterion without evidence is not met."
)


class Thought(NamedTuple):
    """The arguments of one call."""

    thought: str
    acceptance_criteria: tuple[str, ...] = ()


def parse_think(arguments: Arguments) -> Thought:
    """Parse the arguments of one call.

    Raises:
        CallError: The arguments are invalid. The error says how to fix them.
    """
    fields = read_object(arguments)
    check_size(fields, "")
    if unknown := [name for name in fields if name not in _FIELDS]:
        name = join("", str(unknown[0]))
        raise CallError("unknown_field", f"`{name}` is not a field of this tool", field=name, hint=_EXAMPLE)
    thought = fields.get("thought")
    if is_blank(thought):
        raise CallError("empty", "`thought` is missing", field="thought", hint=_EXAMPLE)
    if not isinstance(thought, str):
        raise CallError("wrong_type", f"`thought` is {kind_of(thought)}, not a string", field="thought", hint=_EXAMPLE)
    return Thought(thought, _criteria(fields.get("acceptance_criteria")))


def render_thought(thought: Thought) -> str:
    """Return the tool's result: the criteria as a checklist to mark with evidence."""
    if not thought.acceptance_criteria:
        return _NOTED
    boxes = [f"- [ ] c{n}: {one_line(text, CRITERION_CHARS)}" for n, text in enumerate(thought.acceptance_criteria, 1)]
    return "\n".join([f"{_NOTED} {_INSTRUCTIONS}", *boxes])


def _criteria(given: object) -> tuple[str, ...]:
    """Parse the criteria. Models write null or [] for no criteria, and a string for a single criterion."""
    if is_blank(given):
        return ()
    items = [given] if isinstance(given, str) else given
    name = "acceptance_criteria"
    if not isinstance(items, (list, tuple)):
        raise CallError("wrong_type", f"`{name}` is {kind_of(items)}, not a list of strings", field=name, hint=_EXAMPLE)
    listed = list(cast("list[object]", items))
    if len(listed) > MAX_CRITERIA:
        message = f"`{name}` has {len(listed)} items, but at most {MAX_CRITERIA} are allowed"
        raise CallError("too_large", message, field=name, hint="leave out criteria that are certainly met")
    for n, item in enumerate(listed):
        if not isinstance(item, str) or not item.strip():
            what = "empty" if isinstance(item, str) else kind_of(item)
            path = f"{name}[{n}]"
            raise CallError("wrong_type", f"`{path}` is {what}, not a statement in words", field=path, hint=_EXAMPLE)
    return tuple(cast("list[str]", listed))
