"""The tool as a parent model sees it: its definition, the reading of its calls, the text of its answer.

    tool()        the definition in a host's dialect      dialects, schemas/delegate_task.json
    parse_call()  a call's arguments to tasks              parse, problems, reading, schema_shape
    render()      a report to the text the parent reads    render
    read_tool(), parse_read(), report_in(), render_slice() the second tool: readback, schemas/read_delegation.json
    think_tool(), parse_think(), render_thought()          the tool for thinking: think, schemas/think.json

No SDK is imported here, and nothing is run: all are pure functions.
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
