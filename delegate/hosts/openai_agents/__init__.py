"""Adapter for the OpenAI Agents SDK.

    from agents import Agent
    from delegate.hosts import openai_agents

    agent = Agent(name="lead", tools=[openai_agents.tool(model="gpt-6.1-terra")])

Progress is recorded in the SDK's traces, as spans under the call's span. The result is the `custom_data` of the call's
output item: `item.custom_data["result"]`. Tokens of children and judges are added to the run's usage. Children end
before the tool's own `timeout_seconds`. All calls under one `Runner.run` share a ledger.

The SDK has no mark for a result that is an error: the model reads the error in the text. It doesn't wait for tools that
it cancels, so children end shortly after `Runner.run` has raised.

Tools that children call learn their child's folder by `delegate.workspace()`. To give children the parent's
tools, in delegate's own loop or as agents of the SDK:

    child = Agent(name="child", model="gpt-6-luna")
    delegator = Delegator(tools=openai_agents.child_tools(tools), runner=openai_agents.runner(child))
    agent = Agent(name="lead", tools=[*tools, openai_agents.tool(delegator)])

An agent that has tools, handoffs or MCP servers of its own does tasks as it is, with receipts of its calls:

    delegator = Delegator(runner=openai_agents.child(triage_agent))
"""

from delegate.hosts.openai_agents.children import child, child_tools, runner
from delegate.hosts.openai_agents.tool import follow_up_tools, read_tool, think_tool, tool

__all__ = ["child", "child_tools", "follow_up_tools", "read_tool", "runner", "think_tool", "tool"]
