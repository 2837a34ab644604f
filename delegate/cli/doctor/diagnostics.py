"""The checks of `delegate doctor`: one function per subject, each with a fix for every problem."""

import asyncio
import json
import os
import platform
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from rich.text import Text

from delegate.cli.doctor.probe import LOCAL_SERVERS, NO_LIST, ServedModels, ask, ask_local, paths
from delegate.cli.doctor.served_context import served_context
from delegate.cli.input.choice import Choice, choose
from delegate.cli.screen.output import plain
from delegate.contract.amounts import counted
from delegate.delegator import Delegator
from delegate.models.catalog import Model
from delegate.models.connections import find_endpoints
from delegate.models.providers import NO_KEY, Endpoint
from delegate.models.routing import EndpointKey
from delegate.policy import trust
from delegate.policy.settings import Settings
from delegate.sandbox.commands.commands import SANDBOXES, Commands, how_to_get_sandbox
from delegate.types.errors import ConfigError

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
BASE_URLS = {
    "OPENAI_BASE_URL": ("OPENAI_API_KEY",),
    "ANTHROPIC_BASE_URL": ("ANTHROPIC_API_KEY",),
    "GOOGLE_GEMINI_BASE_URL": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""The variables for other addresses, with those of the keys that are sent there."""
PACKAGES = ("delegate-task", "openai", "anthropic", "google-genai", "pydantic")
NEEDED_BYTES = 65_536
"""What new records take up."""
Endpoints = Mapping[EndpointKey, Endpoint]
Answers = Mapping[EndpointKey, ServedModels]
Servers = Mapping[str, ServedModels]
_MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "bold red")}


@dataclass(frozen=True, slots=True)
class DiagnosticCheck:
    """The result of one check. `fix` says what to do if there is a problem."""

    subject: str
    status: Literal["ok", "note", "problem"]
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The results of all checks, whether children can run, and settings that declare the servers that were found."""

    checks: tuple[DiagnosticCheck, ...]
    can_call: bool
    toml: str = ""

    def document(self) -> dict[str, Any]:
        """The diagnostics as JSON data."""
        return {"can_call": self.can_call, "checks": list(map(asdict, self.checks)), "delegate_toml": self.toml}

    def text(self) -> Text:
        """The diagnostics as text."""
        lines: list[Text] = []
        for check in self.checks:
            mark, style = _MARKS[check.status]
            line = Text(mark, style).append(f" {check.subject}: ", "bold").append(plain(check.text))
            lines.append(line.append("\n    → ").append(plain(check.fix)) if check.fix else line)
        if self.toml:
            head = f"\nTo use these servers, add these lines to {trust.own_file()} and adjust the tiers:\n"
            lines += [Text(head, "bold"), plain(self.toml)]
        return Text("\n").join(lines)


_ORIGINS = {"own": "your own file", "named": "named by DELEGATE_CONFIG", "folder": "trusted"}


def settings_files() -> Iterator[DiagnosticCheck]:
    """The settings files that are read, and which of them count in full."""
    for file in trust.settings_files(os.environ):
        origin = _ORIGINS[file.origin] if file.trusted else "not trusted, so it may only narrow your settings"
        yield DiagnosticCheck("settings", "ok" if file.trusted else "note", f"{file.path} is read ({origin})")


def without_settings(error: ConfigError) -> Diagnostics:
    """The diagnostics where the settings can't be loaded."""
    fix = "correct the settings, then run `delegate doctor` again"
    return Diagnostics((*settings_files(), DiagnosticCheck("settings", "problem", str(error), fix)), can_call=False)


async def examine(delegator: Delegator) -> Diagnostics:
    """Run all checks. The servers are queried concurrently."""
    settings, environ = delegator.settings, os.environ
    endpoints = find_endpoints(settings.endpoints, environ)
    served, local, mechanism = await asyncio.gather(
        asyncio.gather(*map(ask, endpoints.values())),
        ask_local(),
        Commands(sandbox=settings.sandbox, commands=settings.commands, network=settings.network).mechanism(),
    )
    answers = dict(zip(endpoints, served, strict=True))
    choice = choose(delegator)
    fault = _fault("model", choice.worker, endpoints, answers)
    new = await _undeclared(delegator, endpoints, answers, local)
    checks = (
        *settings_files(),
        *_keys(environ),
        *_endpoints(endpoints, answers),
        *(
            DiagnosticCheck(name, "note", f"serves models at {server.url}", "declare it with the lines below")
            for name, server in new.items()
        ),
        *_models(choice, fault, _fault("judge", choice.judging.chosen, endpoints, answers)),
        _sandbox(mechanism, settings),
        *_versions(),
        home := _home(settings.home),
    )
    can_call = choice.worker is not None and fault is None and home.status != "problem"
    return Diagnostics(checks, can_call, toml_lines(new))


async def undeclared_servers(delegator: Delegator) -> Servers:
    """Servers with models that aren't in the catalog: local ones, and the one that OPENAI_BASE_URL names."""
    endpoints = find_endpoints(delegator.settings.endpoints, os.environ)
    own = {key: one for key, one in endpoints.items() if key == ("openai", None) and not one.is_openai_itself}
    served, local = await asyncio.gather(asyncio.gather(*map(ask, own.values())), ask_local())
    return await _undeclared(delegator, own, dict(zip(own, served, strict=True)), local)


async def _undeclared(delegator: Delegator, endpoints: Endpoints, answers: Answers, local: Servers) -> Servers:
    """As `undeclared_servers`, from what was asked already."""
    servers = dict(local)
    own = endpoints.get(("openai", None))
    if own is not None and not own.is_openai_itself and own.url not in {server.url for server in local.values()}:
        key_env = None if own.api_key == NO_KEY else "OPENAI_API_KEY"
        servers["own-server"] = ServedModels(own.url, answers["openai", None].models, key_env=key_env)
    addresses = {endpoint.base_url.rstrip("/") for endpoint in delegator.settings.endpoints if endpoint.base_url}
    unknown = {
        name: replace(server, models=tuple(id for id in server.models if not delegator.catalog.find(id)))
        for name, server in servers.items()
    }
    new = {name: server for name, server in unknown.items() if server.models and server.url not in addresses}
    key = own.api_key if own else NO_KEY
    return {name: await _with_contexts(server, key if server.key_env else NO_KEY) for name, server in new.items()}


async def _with_contexts(server: ServedModels, key: str) -> ServedModels:
    listing, _, headers = paths(endpoint := Endpoint("openai", server.url, key), key)
    said = await asyncio.gather(*(served_context(endpoint, listing, headers, model) for model in server.models))
    return replace(server, contexts={model: one.tokens for model, one in zip(server.models, said, strict=True) if one})


def toml_lines(servers: Servers) -> str:
    """The lines of `delegate.toml` that declare these servers. JSON strings are valid TOML strings."""
    tables: list[str] = []
    for name, server in servers.items():
        fields = {"name": name, "base_url": server.url} | ({"key_env": server.key_env} if server.key_env else {})
        lines = ["[[endpoints]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items()), "models = ["]
        for model in server.models:
            context = f"context_tokens = {server.contexts[model]}, " if model in server.contexts else ""
            free = f'tier = "standard", {context}input_price = 0, output_price = 0'
            lines.append(f"    {{ id = {json.dumps(model)}, {free} }},")
        tables.append("\n".join([*lines, "]"]))
    return "\n\n".join(tables)


def _keys(environ: Mapping[str, str]) -> Iterator[DiagnosticCheck]:
    names = [name for name in KEYS if environ.get(name)]
    if names:
        yield DiagnosticCheck("keys", "ok", f"set: {', '.join(names)}")
    elif not environ.get("OPENAI_BASE_URL"):
        fix = f"set one of {', '.join(KEYS)}; or, for a local model, set OPENAI_BASE_URL to its server, such as "
        fix += f"http://127.0.0.1:{LOCAL_SERVERS['ollama']}/v1 for Ollama, or declare it in your own delegate.toml"
        yield DiagnosticCheck("keys", "note", "none set", fix)
    for name in filter(environ.get, BASE_URLS):
        keys = BASE_URLS[name]
        lacking = "" if set(keys) & set(names) else ", without a key"
        if not lacking or name == "OPENAI_BASE_URL":
            yield DiagnosticCheck("keys", "ok", f"{name} is set: the models of its provider are called there{lacking}")
        else:
            yield DiagnosticCheck("keys", "note", f"{name} is set, but without a key", f"set {' or '.join(keys)}")


def _endpoints(endpoints: Endpoints, answers: Answers) -> Iterator[DiagnosticCheck]:
    for (provider, name), endpoint in endpoints.items():
        served, where = answers[provider, name], f"{name or provider} ({endpoint.url})"
        if endpoint.platform is not None:
            yield DiagnosticCheck("endpoint", "note", f"{where} is called with the credentials that the SDK finds")
        elif served.fault is not None:
            fix = served.fix or "check the address and the network"
            yield DiagnosticCheck("endpoint", "problem", f"{where} {served.fault}", fix)
        elif served.status in NO_LIST:
            yield DiagnosticCheck("endpoint", "note", f"{where} answers, but lists no models (HTTP {served.status})")
        else:
            yield DiagnosticCheck("endpoint", "ok", f"{where} answers, {counted(len(served.models), 'model')}")


def _fault(subject: str, model: Model | None, endpoints: Endpoints, answers: Answers) -> DiagnosticCheck | None:
    """The problem with the model of children, or with the judge, as far as the lists of models show."""
    if model is None or (endpoint := endpoints[model.provider, model.endpoint]).platform is not None:
        return None
    served = answers[model.provider, model.endpoint]
    fault, fix = f"its endpoint {served.fault}", served.fix
    if served.fault is None:
        # The lists of the providers themselves are paginated and contain snapshot names.
        is_complete = endpoint.protocol == "openai" and not endpoint.is_openai_itself and served.status not in NO_LIST
        if not is_complete or model.id in served.models:
            return None
        variable = "DELEGATE_MODEL" if subject == "model" else "DELEGATE_JUDGE_MODEL"
        names = ", ".join(served.models[:5]) or "a model that the server lists"
        fix = f"set {variable} to {names}, and declare it in your own delegate.toml if need be"
        fault = f"{endpoint.url} doesn't serve it"
    text = f"children would run on {model.id}" if subject == "model" else f"{model.id} would judge"
    return DiagnosticCheck(subject, "problem", f"{text}, but {fault}", fix)


def _models(
    choice: Choice, fault: DiagnosticCheck | None, judge_fault: DiagnosticCheck | None
) -> Iterator[DiagnosticCheck]:
    if choice.problem is not None:
        yield DiagnosticCheck("model", "problem", choice.problem.message, choice.problem.hint or "")
    elif fault is not None:
        yield fault
    elif choice.worker is not None:
        yield DiagnosticCheck("model", "ok", f"children run on {choice.worker.id}")
    if judge_fault is not None:
        yield judge_fault
    elif choice.judging.chosen is not None:
        yield DiagnosticCheck("judge", "ok", f"{choice.judging.chosen.id} judges criteria that checks can't decide")
    elif choice.worker is not None:
        yield DiagnosticCheck("judge", "problem", "no model can judge", "run `delegate models` for the reasons")


def _sandbox(mechanism: str | None, settings: Settings) -> DiagnosticCheck:
    if mechanism in SANDBOXES:
        name = "Landlock" if mechanism == "landlock" else mechanism
        both = f'commands = "{settings.commands}", network = "{settings.network}"'
        return DiagnosticCheck("sandbox", "ok", f"{name} works; {both}")
    if mechanism is None and platform.system() == "Windows":
        text = "commands can't run on Windows: shell criteria and the shell tool are refused"
        return DiagnosticCheck("sandbox", "note", text)
    if mechanism is None:
        fix = f'{how_to_get_sandbox()}, or set sandbox = "auto" in your own delegate.toml'
        return DiagnosticCheck("sandbox", "problem", 'sandbox = "require", but no sandbox works here', fix)
    off = 'sandbox = "off"' if settings.sandbox == "off" else "no sandbox works here"
    consequence = {
        "sandboxed": "commands written by a model are refused, and so are shell checks of a child's work "
        "(commands_not_allowed)",
        "allow": "all commands run as ordinary processes, which don't protect against a hostile command",
        "deny": "commands written by a model are refused, as set, and so are shell checks of a child's work",
    }[settings.commands]
    fix = f'{how_to_get_sandbox(settings.sandbox)}, or set commands = "allow" in your own delegate.toml'
    fix = "" if settings.commands == "allow" else fix
    return DiagnosticCheck("sandbox", "note", f"{off}: {consequence}", fix)


def _versions() -> Iterator[DiagnosticCheck]:
    yield DiagnosticCheck("python", "ok", platform.python_version())
    yield DiagnosticCheck("sqlite", "ok", sqlite3.sqlite_version)
    for package in PACKAGES:
        try:
            yield DiagnosticCheck(package, "ok", version(package))
        except PackageNotFoundError:
            yield DiagnosticCheck(package, "problem", "not installed", f"pip install {package}")


def _home(home: Path) -> DiagnosticCheck:
    """Whether something can be written in the home folder, or where it would be created. Leaves nothing there."""
    existing = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".delegate-") as file:
            file.write(bytes(NEEDED_BYTES))
            file.flush()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        fix = "free some space there, or set DELEGATE_HOME to a writable folder"
        return DiagnosticCheck("home", "problem", f"{home} can't be written: {why}", fix)
    return DiagnosticCheck("home", "ok", f"records and workspaces are stored in {home}")
