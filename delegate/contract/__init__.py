"""The tools that delegate offers to a parent model: their definitions, the parsing of calls, the text of results.

    tool()        the definition in a host's dialect        dialects, schemas/delegate_task.json
    parse_call()  parses a call's arguments into tasks      parse, problems, reading
    render()      formats a report for the parent           render
    read_tool(), parse_read(), report_in(), render_slice()  `read_delegation`: readback, schemas/read_delegation.json
    think_tool(), parse_think(), render_thought()           `think`: think, schemas/think.json

All functions are pure, and no SDK is imported.
"""

from delegate.contract.dialects import DIALECTS, Dialect, Limits, Variant, read_tool, think_tool, tool
from delegate.contract.parse import CheckSchema, parse_call
from delegate.contract.readback import Slice, parse_read, render_slice, report_in
from delegate.contract.render import render
from delegate.contract.think import Thought, parse_think, render_thought

__all__ = [
    "DIALECTS",
    "CheckSchema",
    "Dialect",
    "Limits",
    "Slice",
    "Thought",
    "Variant",
    "parse_call",
    "parse_read",
    "parse_think",
    "read_tool",
    "render",
    "render_slice",
    "render_thought",
    "report_in",
    "think_tool",
    "tool",
]
