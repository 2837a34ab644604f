"""Adapter for Google's Agent Development Kit (`google-adk`): the tool as a `BaseTool`.

    from google.adk.agents import LlmAgent
    from delegate.hosts import google_adk

    agent = LlmAgent(name="lead", model="gemini-3.5-pro", tools=[google_adk.tool()])

A call is a node of the agent's run. Progress, and at the end the run's result (`custom_metadata`) and the tokens of
children and judges (`usage_metadata`), are partial events of the run with the author `delegate`. ADK keeps no totals: a
program that adds up the run's events counts these tokens. Partial events aren't stored in the session. An
`abort_signal` stops the children.

ADK doesn't tell tools about deadlines, and marks a failed call only by the key `error` in its response.

Tools given to children by `child_tools` learn their child's folder by `delegate.workspace()`. An agent
that has tools and sub-agents of its own does tasks as it is, with receipts of its calls:

    delegator = Delegator(runner=google_adk.child(research_agent))
"""

from delegate.hosts.google_adk.children import child, child_tools
from delegate.hosts.google_adk.tool import follow_up_tools, read_tool, think_tool, tool

__all__ = ["child", "child_tools", "follow_up_tools", "read_tool", "think_tool", "tool"]
