"""The tools that delegate offers to a parent model: their definitions, the parsing of calls, the text of results.

    tool()                         the definition in a host's dialect     dialects, schemas/delegate_task.json
    parse_call()                   parses a call's arguments into tasks   parse, problems, reading
    render()                       formats a result for the parent        render
    CallProgress                   what a call does while it runs         progress
    read_tool(), stop_tool(), …    `read_delegation` and its neighbors    readback, schemas/read_delegation.json
    think_tool(), …                `think`                                think, schemas/think.json

All functions are pure, and no SDK is imported.
"""

from delegate.contract.dialects import (
    DIALECTS,
    Dialect,
    Limits,
    Variant,
    merge_tool,
    message_tool,
    read_tool,
    stop_tool,
    think_tool,
    tool,
)
from delegate.contract.parse import CheckSchema, parse_call, take_flag
from delegate.contract.progress import CallProgress
from delegate.contract.reading import Arguments
from delegate.contract.render import headline, render, render_result

__all__ = [
    "DIALECTS",
    "Arguments",
    "CallProgress",
    "CheckSchema",
    "Dialect",
    "Limits",
    "Variant",
    "headline",
    "merge_tool",
    "message_tool",
    "parse_call",
    "read_tool",
    "render",
    "render_result",
    "stop_tool",
    "take_flag",
    "think_tool",
    "tool",
]
