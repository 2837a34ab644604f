"""Adapter for CrewAI (`crewai`): the tool as a `BaseTool`.

    from crewai import LLM, Agent
    from delegate.hosts import crewai

    llm = LLM(model="openai/gpt-6.1-sol")
    agent = Agent(role="lead", goal="…", backstory="…", llm=llm, tools=[crewai.tool(llm=llm)])

CrewAI tells a tool nothing about the agent that calls it. Pass the agent's `llm`: then tokens of children and judges
are added to its totals, and so to the crew's, and children and judges stay within the tier of its model. Calls of one
kickoff share a ledger. Progress and the result are emitted as `DelegationProgressEvent` and `DelegationResultEvent` on
CrewAI's event bus. A refused call is a `ToolFailure`. No call is answered from CrewAI's result cache.

CrewAI has no way to stop a run: its tools run in threads, which keep running after an agent's `max_execution_time`.
Limit children with the settings `timeout_seconds` and `run_timeout_seconds`. CrewAI itself refuses arguments that
aren't a JSON object.

Tools given to children by `child_tools` learn their child's folder by `delegate.workspace()`. An agent or a crew that
has tools of its own does tasks as it is, with receipts of its calls. A crew is told the task by the placeholder
`{prompt}` in the description of one of its tasks:

    delegator = Delegator(runner=crewai.child(research_crew))
"""

from delegate.hosts.crewai.children import child, child_tools
from delegate.hosts.crewai.tool import (
    DelegationProgressEvent,
    DelegationResultEvent,
    follow_up_tools,
    read_tool,
    think_tool,
    tool,
)

__all__ = [
    "DelegationProgressEvent",
    "DelegationResultEvent",
    "child",
    "child_tools",
    "follow_up_tools",
    "read_tool",
    "think_tool",
    "tool",
]
