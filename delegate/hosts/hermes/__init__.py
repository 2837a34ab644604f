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
            workspace: auto                  # where children work; see below
            wait_seconds: 380
            also: [read, message, think]     # additional small tools, and `merge`; default: [read], for cut reports
            settings: {max_cost_usd: 2}

No key is needed besides that of Hermes's own provider. Children and judges run on the models whose keys are in the
environment (`OPENAI_API_KEY` and the like). If there is none for children, or none for any judge, Hermes calls the
parent's model for them, under the same rules: the verdict names it, and no judge is above the highest tier allowed. A
parent's model that the catalog doesn't know counts as `standard`, unless the setting `parent_tier` says otherwise. Its
price is unknown, so it isn't used where a cost limit is set. `hermes model` selects another judge, as the auxiliary
model `auxiliary.judge`. While there is neither a key nor a provider, the tools aren't offered; once there is one,
agents created after the next turn get them.

In a terminal, each call leaves a line like `⚖️  verdict   2 of 3 PASS; task 3 FAIL not_met`.

The folder `delegate/hosts/hermes_plugin` is the same plugin as a directory plugin. A plugin of your own can call
`register(ctx, delegator)` with any delegator, such as `Delegator(runner=runner())` or
`Delegator(tools=child_tools([…]))`.

Children work in a git worktree of the repository that Hermes's terminal is in, or else in an empty folder, with
`workspace: auto`. The other values are those of `delegate mcp --workspace`; `fresh` is always an empty folder.

The calls of one user turn share a run and its limits. Differences from other hosts:

* Hermes makes the calls of one turn one after the other.
* Tokens of children and judges are counted in Hermes's usage tables (`hermes insights`), not in the running agent's
  totals, which a plugin can't change.
* The usage of a child that is an agent of Hermes's is recorded when the child ends. It runs on the parent's model,
  whatever tier was requested.
* Such a child works in its workspace if Hermes's terminal runs on this machine, and it isn't confined to it.
* Such a child ends within a second of an interrupt. Hermes leaves the connection of a hanging request open until it
  times out, and a tool that doesn't check for interrupts keeps running.
* A model call that Hermes makes can't be stopped; it ends in the background, and its answer is ignored. A judge has
  120 s, unless `auxiliary.judge.timeout` says otherwise.
"""

from delegate.hosts.hermes.plugin import OWN_NAME, register
from delegate.hosts.hermes.runner import HermesChildren as runner
from delegate.hosts.hermes.runner import child_tools

__all__ = ["OWN_NAME", "child_tools", "register", "runner"]
