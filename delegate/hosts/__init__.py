"""Adapters for host frameworks: one module or package per framework, with the same functions in each.

    tool(delegator)           delegate_task, as the framework's tool object
    read_tool(delegator), think_tool(delegator), follow_up_tools(delegator)    small optional tools
    child_tools(tools)        converts the framework's tools for `Delegator(tools=…)`, so that children can use them
    runner(…)                 where available: runs children as agents of the framework, for `Delegator(runner=…)`

No adapter is imported until it is requested by name. What they share is in `host_tool`;
`docs/write-your-own-host.md` shows how to write another one.
"""
