"""LangChain and LangGraph: `create_agent`, deepagents, and any graph with a `ToolNode`.

    from langchain.agents import create_agent
    from delegate.hosts import langchain

    agent = create_agent("openai:gpt-6.1-sol", tools=[langchain.tool(model="gpt-6.1-terra")])

Sync and async alike. The whole report is the tool message's `artifact`, and a refused call's status is `error`. What
happens to the children comes in the stream mode `custom` (and in `tools`, as output deltas). Their tokens and those of
judges are told to the run's callbacks as chat model runs, which is how `UsageMetadataCallbackHandler`,
`get_usage_metadata_callback` and tracers count. All calls under one root graph's run share a ledger.

LangChain tells tools of no deadline, and a sync run can't be stopped while a tool is at work; an async one can.
Arguments that are no JSON object reach no tool: LangChain puts them in `invalid_tool_calls`, or fails on them.

Children with the parent's tools, in delegate's own loop or as graphs:

    delegator = Delegator(
        tools=langchain.child_tools(tools),
        runner=langchain.runner(lambda tools: create_agent("openai:gpt-6-luna", tools)),
    )
    agent = create_agent("openai:gpt-6.1-sol", [*tools, langchain.tool(delegator)])
"""

from delegate.hosts.langchain.children import child_tools, runner
from delegate.hosts.langchain.tool import read_tool, think_tool, tool

__all__ = ["child_tools", "read_tool", "runner", "think_tool", "tool"]
