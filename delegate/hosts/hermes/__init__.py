"""Adapter for Hermes Agent: a plugin that registers the tool. For version 0.19; it tolerates changes in newer versions.

    pip install /path/to/delegate                # a clone, into Hermes's own environment
    hermes plugins enable delegate-task

Hermes's model then has the tool `delegate_verified`. The plugin's options are in Hermes's config.yaml:

    plugins:
      enabled: [delegate-task]
      entries:
        delegate-task:
          allow_tool_override: true          # for takeover only
          config:
            children: hermes                 # Hermes's agents, with the parent's model and tools; default: own
            takeover: true                   # answer delegate_task itself
            wait_seconds: 380
            also: [read, think]              # additional small tools
            settings: {max_cost_usd: 2}

`hermes model` selects the judge's model, as the auxiliary model `auxiliary.judge`. The folder
`delegate/hosts/hermes_plugin` is the same plugin as a directory plugin. A plugin of your own can call `register(ctx,
delegator)` with any delegator, such as `Delegator(runner=runner())` or `Delegator(tools=child_tools([…]))`.

The calls of one user turn share a run and its limits. Differences from other hosts:

* Hermes makes the calls of one turn one after the other.
* Tokens of children and judges are counted in Hermes's usage tables (`hermes insights`), not in the running agent's
  totals, which a plugin can't change.
* The usage of a child that is an agent of Hermes's is recorded when the child ends. It runs on the parent's model,
  whatever tier was requested.
* Such a child works in its workspace if Hermes's terminal runs on this machine, and it isn't confined to it.
* Such a child ends within a second of an interrupt. Hermes leaves the connection of a hanging request open until it
  times out, and a tool that doesn't check for interrupts keeps running.
* A judge that Hermes calls (`auxiliary.judge`, with Hermes's children) can't be stopped during a call; its answer is
  ignored.
"""

from delegate.hosts.hermes.plugin import OWN_NAME, register
from delegate.hosts.hermes.runner import HermesChildren as runner
from delegate.hosts.hermes.tools import child_tools

__all__ = ["OWN_NAME", "child_tools", "register", "runner"]
