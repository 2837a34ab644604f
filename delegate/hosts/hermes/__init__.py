"""Hermes Agent: a plugin that puts the tool in its registry. For 0.19, and guarded where newer versions differ.

    pip install /path/to/delegate                # a clone, into Hermes's own environment
    hermes plugins enable delegate-task

Hermes's model then has the tool `delegate_verified`. It is configured in Hermes's config.yaml:

    plugins:
      enabled: [delegate-task]
      entries:
        delegate-task:
          allow_tool_override: true          # for takeover only
          config:
            children: hermes                 # Hermes's agents, with the parent's model and tools; default: our own
            takeover: true                   # answer delegate_task itself
            wait_seconds: 380
            also: [read, think]              # the two further tools
            settings: {max_cost_usd: 2}

A user picks the judge's model with `hermes model`, among the side models (`auxiliary.judge`). The folder
`delegate/hosts/hermes_plugin` is the same as a directory plugin. A plugin of your own may call `register(ctx,
delegator)` with any delegator, such as `Delegator(runner=runner())` or `Delegator(tools=child_tools([…]))`.

All calls in one turn of a user share a run and its limits. Where Hermes can't do what other hosts do:

* Hermes always makes the calls of one turn one after the other.
* Tokens of children and judges are counted in Hermes's usage tables (`hermes insights`), but not in the sums of the
  running agent, which a plugin can't reach.
* A child that is an agent of Hermes is charged for when it ends, and runs on the parent's model, whatever tier was
  asked for.
* It works in its workspace where Hermes's terminal is this machine, and nothing confines it there.
* It ends within a second of an interrupt. Hermes keeps the connection of a request that hangs until it times out, and a
  tool that doesn't check for interrupts goes on.
* A judge that Hermes calls (`auxiliary.judge`, with Hermes's children) can't be stopped during a call; its answer is
  dropped.
"""

from delegate.hosts.hermes.plugin import OWN_NAME, register
from delegate.hosts.hermes.runner import HermesChildren as runner
from delegate.hosts.hermes.tools import child_tools

__all__ = ["OWN_NAME", "child_tools", "register", "runner"]
