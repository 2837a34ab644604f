"""Runs attacks by shell commands on this machine, under each mechanism for running commands that works here.

The attacks are limited and harmless. No attack signals its parent if that is delegate's process.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from delegate.cli.doctor.security.attacks import ATTACKS, CommandAttack
from delegate.cli.doctor.security.scene import CommandScene, open_scene
from delegate.sandbox.commands.commands import SANDBOXES
from delegate.sandbox.commands.confinement import (
    CommandSpec,
    Confinement,
    Network,
    ResourceLimit,
    SandboxFailed,
    execute,
    shell,
    works,
)
from delegate.sandbox.processes.environment import command_environment
from delegate.sandbox.processes.process import ProcessResult
from delegate.sandbox.tampering.git_files import Repository

AttackOutcome = Literal["stopped", "possible", "n/a"]
"""`n/a`: a program that the attack needs is not installed."""

CONCURRENCY = 4


class Row(NamedTuple):
    """The outcome of one attack under one mechanism on this machine."""

    attack: str
    mechanism: str
    outcome: AttackOutcome
    note: str


class MechanismUnderTest(NamedTuple):
    """A mechanism for running commands, as selected by the settings."""

    name: str
    confinement: Confinement
    network: Network
    only_network: bool = False
    """Whether to try only attacks that use the network."""


async def shell_attacks(under: Sequence[MechanismUnderTest] | None = None) -> list[Row]:
    """Run all attacks under each mechanism, by default those that work on this machine. Takes some ten seconds."""
    semaphore = asyncio.Semaphore(CONCURRENCY)
    chosen = await mechanisms() if under is None else under
    tries = [
        _try(attack, mechanism, semaphore)
        for mechanism in chosen
        for attack in ATTACKS
        if attack.uses_network or not mechanism.only_network
    ]
    return await asyncio.gather(*tries)


async def mechanisms() -> list[MechanismUnderTest]:
    """The mechanisms that work on this machine, strongest first."""
    if sys.platform == "win32":
        return []
    subreaper = await works(Confinement(None, subreaper=True))
    mechanisms: list[MechanismUnderTest] = []
    for sandbox in SANDBOXES:
        inside = Confinement(sandbox, subreaper)
        cut_off = await works(inside, "none")
        mechanisms += [MechanismUnderTest(sandbox, inside, "none")] if cut_off else []
        if await works(inside, "host"):
            mechanisms.append(MechanismUnderTest(f"{sandbox}, open network", inside, "host", only_network=cut_off))
    return [*mechanisms, MechanismUnderTest("process", Confinement(None, subreaper), "host")]


async def _try(attack: CommandAttack, mechanism: MechanismUnderTest, semaphore: asyncio.Semaphore) -> Row:
    for program in attack.needs:
        if shutil.which(program) is None:
            return Row(attack.name, mechanism.name, "n/a", f"{program} is not installed")
    async with semaphore, open_scene() as scene:
        succeeded = await asyncio.to_thread(attack.succeeded, scene, await _run(attack, mechanism, scene))
    if succeeded:
        return Row(attack.name, mechanism.name, "possible", attack.possible)
    return Row(attack.name, mechanism.name, "stopped", attack.stopped)


async def _run(attack: CommandAttack, mechanism: MechanismUnderTest, scene: CommandScene) -> ProcessResult:
    host_secrets = {"OPENAI_API_KEY": scene.canary, "LC_TOKEN": scene.canary}
    spec = CommandSpec(
        argv=shell(attack.command.format(**scene.placeholders())),
        cwd=scene.work,
        env=command_environment(os.environ | host_secrets | {"HOME": str(scene.home)}),
        timeout_seconds=attack.timeout_seconds,
        limits=attack.limits,
        max_output_bytes=64_000,
        network=mechanism.network,
        hidden=(scene.delegate_home,),
        repository=Repository.of(scene.work),
        program=(scene.program,),
    )
    try:
        return await execute(spec, mechanism.confinement)
    except (SandboxFailed, ResourceLimit) as failure:
        return ProcessResult(None, "", str(failure), timed_out=False, seconds=0)
