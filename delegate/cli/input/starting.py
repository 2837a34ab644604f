"""What `delegate init` asks, and the files that it writes."""

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from delegate._util.documents import replace_text
from delegate._util.fencing import one_line
from delegate.cli.doctor.diagnostics import toml_lines, undeclared_servers
from delegate.delegator import Delegator
from delegate.models.routing import ChildRequest, choose_child
from delegate.models.tiers import Bounds
from delegate.policy import trust
from delegate.policy.settings import Settings, parse
from delegate.types import TIERS
from delegate.types.errors import CallError, ConfigError

MAX_LOCAL = 5
"""How many models of one local server are offered."""

TASKS_TEXT = """\
# Tasks for `delegate run --file tasks.yaml --out results`. Each one goes to a child, which sees nothing but its task;
# its work is then checked against the criteria. `delegate run --help` explains their forms.
- goal: Write hello.md, a greeting of three lines for somebody who has just installed a tool.
  acceptance_criteria:
    - "file: hello.md" # decided by code: the file exists
    - hello.md has exactly three lines # a sentence is decided by a judge, which must quote its evidence
    # - "shell: test $(wc -l < hello.md) -eq 3" # decided by code: the command exits with 0 in the child's folder
  # context: The reader is new to this and in a hurry. # what else the child should know
  # workspace: {mode: copy, path: .} # the child gets a copy of this folder; by default a new, empty one
  # tier: fast # or deep, standard
  # timeout_seconds: 300
  # max_cost_usd: 0.10
"""


@dataclass(frozen=True, slots=True)
class Start:
    """What the person chose: a model, and the lines that declare its server if it is a local one."""

    model: str | None = None
    endpoint: str = ""


def own_settings() -> Settings:
    """The settings without this folder's file, which may only narrow them. Raises ConfigError."""
    own = trust.read_own()
    return Settings(**parse(own)) if own is not None else Settings()


def ask(allowed: Settings) -> Start:
    """Ask on the terminal for one of the models that can be called here; with none, or without an answer, no model."""
    offers = _offers(Delegator(allowed))
    if not offers:
        return Start()
    print("Which model should children use?", file=sys.stderr)
    print("  Enter: the cheapest one of each task's tier", file=sys.stderr)
    for n, (label, _) in enumerate(offers, start=1):
        print(f"  {n}: {one_line(label, 100)}", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            return Start()
        with suppress(ValueError):
            if 0 < (number := int(answer)) <= len(offers):
                return offers[number - 1][1]
        print(f"answer with a number from 1 to {len(offers)}, or with Enter", file=sys.stderr)


def _offers(delegator: Delegator) -> list[tuple[str, Start]]:
    """The cheapest model of each tier and provider that has a key, and the models of local servers."""
    offers: dict[str, Start] = {}
    bounds = Bounds.under(None, max_tier=delegator.settings.max_tier, min_tier=delegator.settings.min_tier)
    for endpoint in sorted(delegator.connections.available, key=str):
        for tier in reversed(TIERS):
            request = ChildRequest(bounds=bounds, available=frozenset([endpoint]), on=date.today(), tier=tier)
            with suppress(CallError):
                model = choose_child(delegator.catalog, request).id
                offers[f"{model} ({tier}, {endpoint[1] or endpoint[0]})"] = Start(model)
    for name, server in asyncio.run(undeclared_servers(delegator)).items():
        for model in server.models[:MAX_LOCAL]:
            lines = toml_lines({name: replace(server, models=(model,))})
            offers[f"{model} ({name} at {server.url})"] = Start(model, lines)
    return list(offers.items())


def settings_text(allowed: Settings, start: Start) -> str:
    """The settings file. Its values, also in comments, are no wider than `allowed`, so that it loads without trust."""
    model = f"model = {json.dumps(start.model, ensure_ascii=False)}" if start.model else '# model = "gpt-6-luna"'
    text = f"""\
# Settings of delegate in this folder. Whatever isn't here has the value of your own file or its default.
# Without trust, this file may only narrow what your own file allows: {trust.own_file()}
# After `delegate trust`, all of it counts, until it changes.

# The model of all children. Without it, each gets the cheapest model of its tier; `delegate models` lists them.
{model}
# tier = {_value(allowed.tier)} # of tasks that name none: deep, standard or fast

# Limits of one child ...
# timeout_seconds = {_value(min(allowed.timeout_seconds, 600))}
# max_steps = {_value(allowed.max_steps)} # model calls
# max_workspace_mb = {_value(min(allowed.max_workspace_mb or 1_000, 1_000))} # what it may add to its folder
# ... and of all children of a run together
# max_cost_usd = {min(allowed.max_cost_usd or 1.0, 1.0)}
# max_concurrent = {_value(allowed.max_concurrent)} # children at the same time

# What children may do
# commands = {_value(allowed.commands)} # when commands run: deny, sandboxed, ask or allow
# network = {_value(allowed.network)} # of commands in the sandbox: off, loopback or open

# How strictly their work is judged
# escalate = true # ask a second judge where the first can't decide; this adds its cost
# strict_checks = true # refuse criteria that can't fail
"""
    return f"{text}\n{start.endpoint}\n" if start.endpoint else text


def _value(value: object) -> str:
    """A value in TOML."""
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def write(file: Path, text: str, *, replace: bool) -> None:
    """Write a file at once. A link is replaced, not followed: it could lead anywhere. Raises ConfigError."""
    try:
        if replace:
            replace_text(file, text)
        else:
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
    except OSError as error:
        hint = "run it in a folder that you can write"
        raise ConfigError(f"{file} can't be written: {error.strerror}; {hint}") from None
