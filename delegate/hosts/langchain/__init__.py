"""Adapter for LangChain and LangGraph: `create_agent`, deepagents, and any graph with a `ToolNode`.

    from langchain.agents import create_agent
    from delegate.hosts import langchain

    agent = create_agent("openai:gpt-6.1-sol", tools=[langchain.tool(model="gpt-6.1-terra")])

It works in sync and async runs. The result is the tool message's `artifact`, and a refused call has the status `error`.
Progress is streamed in the mode `custom`, and in `tools` as output deltas. Tokens of children and judges are reported
to the run's callbacks as chat model runs, so `UsageMetadataCallbackHandler`, `get_usage_metadata_callback` and tracers
count them. All calls under the run of one root graph share a ledger.

LangChain doesn't tell tools about deadlines. A sync run can't be stopped while a tool is running; an async run can.
Arguments that aren't a JSON object don't reach the tool: LangChain puts them in `invalid_tool_calls` or raises.

Tools that children call learn their child's folder by `delegate.workspace()`. To give children the parent's
tools, in delegate's own loop or as graphs:

    delegator = Delegator(
        tools=langchain.child_tools(tools),
        runner=langchain.runner(lambda tools: create_agent("openai:gpt-6-luna", tools)),
    )
    agent = create_agent("openai:gpt-6.1-sol", [*tools, langchain.tool(delegator)])

A compiled graph, such as an agent with tools of its own, does tasks as it is, with receipts of its calls:

    delegator = Delegator(runner=langchain.child(research_agent))
"""

from delegate.hosts.langchain.children import child, child_tools, runner
from delegate.hosts.langchain.tool import follow_up_tools, read_tool, think_tool, tool

__all__ = ["child", "child_tools", "follow_up_tools", "read_tool", "runner", "think_tool", "tool"]
