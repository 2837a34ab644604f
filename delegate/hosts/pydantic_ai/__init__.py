"""Adapter for Pydantic AI.

    from pydantic_ai import Agent
    from delegate.hosts import pydantic_ai

    agent = Agent("openai:gpt-6.1-sol", tools=[pydantic_ai.tool(model="gpt-6.1-terra")])

The result is the `metadata` of the tool return. Progress is reported as `ChildProgressEvent`s in the event stream.
Tokens and cost of children and judges are added to the run's usage. Their requests aren't, since `requests` limits the
agent's own loop; they are in `usage.details["delegated_requests"]`. Children end before the run's deadline. All calls
of one run share a ledger; an agent that runs inside a tool has a run of its own.

A refused call is an ordinary return with `metadata["error"]`: if it were marked as failed, most providers would send
its text as JSON inside JSON. Arguments that aren't JSON don't reach the tool: the framework asks the model for them
again. `run_sync` works too.

Tools that children call learn their child's folder by `delegate.workspace()`. To give children the parent's
tools, in delegate's own loop or as agents of the framework:

    delegator = Delegator(
        tools=pydantic_ai.child_tools(tools), runner=pydantic_ai.runner(Agent("openai:gpt-6-luna"))
    )
    agent = Agent("openai:gpt-6.1-sol", tools=[*tools, pydantic_ai.tool(delegator)])

An agent that has tools and toolsets of its own does tasks as it is, with receipts of its calls:

    delegator = Delegator(runner=pydantic_ai.child(research_agent))
"""

from delegate.hosts.pydantic_ai.children import child, child_tools, runner
from delegate.hosts.pydantic_ai.tool import ChildProgressEvent, follow_up_tools, read_tool, think_tool, tool

__all__ = ["ChildProgressEvent", "child", "child_tools", "follow_up_tools", "read_tool", "runner", "think_tool", "tool"]
