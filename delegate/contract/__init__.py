"""The tool as a parent model sees it: its definition, the reading of its calls, the text of its answer.

    tool()        the definition in a host's dialect      dialects, schemas/delegate_task.json
    parse_call()  a call's arguments to tasks              parse, problems, reading, schema_shape
    render()      a report to the text the parent reads    render

No SDK is imported here, and nothing is run: all three are pure functions.
"""

from delegate.contract.dialects import DIALECTS, Dialect, Limits, Variant, tool
from delegate.contract.parse import CheckSchema, parse_call
from delegate.contract.render import render

__all__ = ["DIALECTS", "CheckSchema", "Dialect", "Limits", "Variant", "parse_call", "render", "tool"]
