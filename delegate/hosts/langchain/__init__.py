"""LangChain and LangGraph: `create_agent`, deepagents, and any graph with a `ToolNode`.

    from langchain.agents import create_agent
    from delegate.hosts import langchain

    agent = create_agent("openai:gpt-6.1-sol", tools=[langchain.tool(model="gpt-6.1-terra")])

It works sync and async. The whole report is the tool message's `artifact`, and a refused call has the status `error`.
The children's steps come in the stream mode `custom` (and in `tools`, as output deltas). The tokens of children and
judges are passed to the run's callbacks as chat model runs, so `UsageMetadataCallbackHandler`,
`get_usage_metadata_callback` and tracers count them. All calls under one run of the root graph share a ledger.

LangChain tells tools about no deadline. An async run can be stopped while a tool is running, a sync one can't.
Arguments that aren't a JSON object reach no tool: LangChain puts them in `invalid_tool_calls`, or fails.

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
