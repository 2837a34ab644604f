"""One module per host framework, each with the same verbs. None is imported before it is asked for by name.

    tool(delegator)           the tool, as an object of the framework
    think_tool(delegator), read_tool(delegator)    two small ones beside it, for those who want them
    child_tools(tools)        the framework's tools as `Delegator(tools=…)` takes them: children use what the parent has
    runner(…)                 where there is one: children as agents of the framework, for `Delegator(runner=…)`

What they share is in `host_tool`; `docs/write-your-own-host.md` shows how little a further one needs.
"""
