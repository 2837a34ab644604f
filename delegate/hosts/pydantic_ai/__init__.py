"""Pydantic AI.

    from pydantic_ai import Agent
    from delegate.hosts import pydantic_ai

    agent = Agent("openai:gpt-6.1-sol", tools=[pydantic_ai.tool(model="gpt-6.1-terra")])

The whole report is the tool return's `metadata`. The children's steps come as `ChildProgressEvent`s in the stream of
events. The tokens and the cost of children and judges are added to the run's usage. Their requests are not, since
`requests` limits the agent's own loop; they are in `usage.details["delegated_requests"]`. The run's deadline limits the
children, and all calls under one run share a ledger. An agent that is run inside a tool is a run of its own.

A refused call is an ordinary return with `metadata["error"]`: marked as failed, most providers would get its text as
JSON inside JSON. Arguments that aren't JSON reach no tool; the framework asks for them again. `run_sync` works, since
the tool is async.

Children with the parent's tools, in delegate's own loop or as agents of the framework:

    delegator = Delegator(
        tools=pydantic_ai.child_tools(tools), runner=pydantic_ai.runner(Agent("openai:gpt-6-luna"))
    )
    agent = Agent("openai:gpt-6.1-sol", tools=[*tools, pydantic_ai.tool(delegator)])
"""

from delegate.hosts.pydantic_ai.children import child_tools, runner
from delegate.hosts.pydantic_ai.tool import ChildProgressEvent, read_tool, think_tool, tool

__all__ = ["ChildProgressEvent", "child_tools", "read_tool", "runner", "think_tool", "tool"]
