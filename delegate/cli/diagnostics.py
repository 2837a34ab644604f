"""What `delegate doctor` looks at: one function per subject, each giving notes with the mend beside the problem."""

import asyncio
import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from rich.text import Text

from delegate.cli.choice import Choice, choose
from delegate.cli.output import plain
from delegate.cli.probe import ServedModels, ask, ask_local
from delegate.delegator import Delegator
from delegate.models.connections import find_endpoints
from delegate.models.providers import Endpoint
from delegate.models.routing import EndpointKey
from delegate.sandbox.commands import Commands
from delegate.settings import Settings

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
BASE_URLS = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL")
PACKAGES = ("delegate-task", "openai", "anthropic", "google-genai", "pydantic")
_NO_LIST = (404, 405, 501)
"""A server may serve models and no list of them."""
_MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "bold red")}


@dataclass(frozen=True, slots=True)
class DiagnosticCheck:
    """One thing that was looked at. `mend` says what to do, where there is something to do."""

    subject: str
    status: Literal["ok", "note", "problem"]
    text: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """All notes, whether children have a model that answers, and the lines that would declare what was found."""

    notes: tuple[DiagnosticCheck, ...]
    can_call: bool
    toml: str = ""

    def document(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"can_call": self.can_call, "checks": [asdict(note) for note in self.notes], "delegate_toml": self.toml}

    def text(self) -> Text:
        """The same for people."""
        lines = [_line(note) for note in self.notes]
        if self.toml:
            lines += [Text("\nTo use these servers, add to delegate.toml, with the tiers as you see fit:\n", "bold")]
            lines += [plain(self.toml)]
        return Text("\n").join(lines)


async def examine(delegator: Delegator) -> Diagnostics:
    """Look at everything; the servers are asked side by side."""
    settings, environ = delegator.settings, os.environ
    endpoints = find_endpoints(settings.endpoints, environ)
    served, local, mechanism = await asyncio.gather(
        asyncio.gather(*map(ask, endpoints.values())),
        ask_local(),
        Commands(sandbox=settings.sandbox, commands=settings.commands).mechanism(),
    )
    answers = dict(zip(endpoints, served, strict=True))
    choice = choose(delegator)
    fault = _fault(choice, endpoints, answers)
    new = _undeclared(delegator, endpoints, answers, local)
    notes = (
        *_keys(environ),
        *_endpoints(endpoints, answers),
        *(
            DiagnosticCheck(name, "note", f"serves models at {found.url}", "see the lines below")
            for name, found in new.items()
        ),
        *_models(choice, fault),
        _sandbox(mechanism, settings),
        *_versions(),
        _home(settings.home),
    )
    return Diagnostics(notes, choice.worker is not None and fault is None, toml_lines(new))


def _undeclared(
    delegator: Delegator,
    endpoints: Mapping[EndpointKey, Endpoint],
    answers: Mapping[EndpointKey, ServedModels],
    local: Mapping[str, ServedModels],
) -> dict[str, ServedModels]:
    """Servers whose models the catalog doesn't know yet: local ones, and the one that OPENAI_BASE_URL names."""
    found = dict(local)
    own = endpoints.get(("openai", None))
    if own is not None and not own.is_openai_itself and own.url not in {server.url for server in local.values()}:
        found["own-server"] = ServedModels(own.url, answers["openai", None].models)
    declared = {endpoint.base_url.rstrip("/") for endpoint in delegator.settings.endpoints}
    unknown = {name: [id for id in server.models if not delegator.catalog.find(id)] for name, server in found.items()}
    return {
        name: ServedModels(server.url, tuple(unknown[name]))
        for name, server in found.items()
        if unknown[name] and server.url not in declared
    }


def toml_lines(found: Mapping[str, ServedModels]) -> str:
    """The lines of `delegate.toml` that declare these servers. A JSON string is a TOML string."""
    return "\n\n".join(_toml_table(name, server) for name, server in found.items())


def _toml_table(name: str, server: ServedModels) -> str:
    free = 'tier = "standard", input_price = 0, output_price = 0'
    models = [f"    {{ id = {json.dumps(model)}, {free} }}," for model in server.models]
    head = ["[[endpoints]]", f"name = {json.dumps(name)}", f"base_url = {json.dumps(server.url)}", "models = ["]
    return "\n".join([*head, *models, "]"])


# --------------------------------------------------------------------------------------------------------- subjects


def _keys(environ: Mapping[str, str]) -> Iterator[DiagnosticCheck]:
    found = [name for name in KEYS if environ.get(name)]
    if found:
        yield DiagnosticCheck("keys", "ok", f"set: {', '.join(found)}")
    else:
        yield DiagnosticCheck(
            "keys", "note", "none set", f"set one of {', '.join(KEYS)}, or declare a server in delegate.toml"
        )
    for name in BASE_URLS:
        if environ.get(name):
            yield DiagnosticCheck("keys", "ok", f"{name} is set: its provider's models are asked for there")


def _endpoints(
    endpoints: Mapping[EndpointKey, Endpoint], answers: Mapping[EndpointKey, ServedModels]
) -> Iterator[DiagnosticCheck]:
    for (provider, name), endpoint in endpoints.items():
        served, where = answers[provider, name], f"{name or provider} ({endpoint.url})"
        if served.fault is None:
            yield DiagnosticCheck("endpoint", "ok", f"{where} answers, {len(served.models)} models")
        elif served.status in _NO_LIST:
            yield DiagnosticCheck("endpoint", "note", f"{where} answers, but lists no models (HTTP {served.status})")
        elif served.status in (401, 403):
            yield DiagnosticCheck("endpoint", "problem", f"{where} {served.fault}", "set the right key in its variable")
        else:
            yield DiagnosticCheck("endpoint", "problem", f"{where} {served.fault}", "check its address and the network")


def _fault(
    choice: Choice, endpoints: Mapping[EndpointKey, Endpoint], answers: Mapping[EndpointKey, ServedModels]
) -> str | None:
    """Why the children's model would not answer, as far as lists of models tell."""
    if choice.worker is None:
        return None
    place = next(place for place in endpoints if place == (choice.worker.provider, choice.worker.endpoint))
    endpoint, served = endpoints[place], answers[place]
    if served.fault is not None:
        return None if served.status in _NO_LIST else f"its endpoint {served.fault}"
    # The providers' own lists come in pages, and name snapshots.
    is_complete = endpoint.protocol == "openai" and not endpoint.is_openai_itself
    return f"{endpoint.url} doesn't serve it" if is_complete and choice.worker.id not in served.models else None


def _models(choice: Choice, fault: str | None) -> Iterator[DiagnosticCheck]:
    if choice.problem is not None:
        yield DiagnosticCheck("model", "problem", choice.problem.message, choice.problem.hint or "")
    elif choice.worker is not None and fault is not None:
        mend = (
            "set DELEGATE_MODEL to a model that is served; one that isn't in the catalog is declared in delegate.toml"
        )
        yield DiagnosticCheck("model", "problem", f"children would run on {choice.worker.id}, but {fault}", mend)
    elif choice.worker is not None:
        yield DiagnosticCheck("model", "ok", f"children run on {choice.worker.id}")
    if choice.judging.chosen is not None:
        yield DiagnosticCheck("judge", "ok", f"{choice.judging.chosen.id} judges what checks can't decide")
    elif choice.worker is not None:
        yield DiagnosticCheck("judge", "problem", "no model may judge", "`delegate models` says why, for each")


def _sandbox(mechanism: str | None, settings: Settings) -> DiagnosticCheck:
    if mechanism == "bubblewrap":
        return DiagnosticCheck("sandbox", "ok", f'bubblewrap works; commands = "{settings.commands}"')
    if mechanism is None and platform.system() == "Windows":
        return DiagnosticCheck(
            "sandbox", "note", "no commands on Windows: shell criteria and the shell tool are refused"
        )
    if mechanism is None:
        mend = 'install it, or set sandbox = "auto"'
        return DiagnosticCheck("sandbox", "problem", 'sandbox = "require", but bubblewrap doesn\'t work here', mend)
    off = 'sandbox = "off"' if settings.sandbox == "off" else "bubblewrap doesn't work here"
    follows = {
        "sandboxed": "commands that a model writes are refused; yours run as ordinary processes",
        "allow": "all commands run as ordinary processes, which is no wall against a hostile one",
        "deny": "commands that a model writes are refused, as the setting says",
    }[settings.commands]
    mend = 'install bubblewrap, or set commands = "allow" in delegate.toml' if settings.commands == "sandboxed" else ""
    return DiagnosticCheck("sandbox", "note", f"{off}: {follows}", mend)


def _versions() -> Iterator[DiagnosticCheck]:
    yield DiagnosticCheck("python", "ok", platform.python_version())
    yield DiagnosticCheck("sqlite", "ok", sqlite3.sqlite_version)
    for package in PACKAGES:
        try:
            yield DiagnosticCheck(package, "ok", version(package))
        except PackageNotFoundError:
            yield DiagnosticCheck(package, "problem", "not installed", f"pip install {package}")


def _home(home: Path) -> DiagnosticCheck:
    """Looked at without making anything: the nearest folder that exists decides."""
    place = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return DiagnosticCheck("home", "ok", f"records and workspaces lie in {home}")
    return DiagnosticCheck("home", "problem", f"{home} can't be written", "set DELEGATE_HOME to a folder of yours")


def _line(note: DiagnosticCheck) -> Text:
    mark, style = _MARKS[note.status]
    line = Text(mark, style).append(f" {note.subject}: ", "bold").append(plain(note.text))
    return line.append("\n    → ").append(plain(note.mend)) if note.mend else line
