"""The clients, and how each is installed, set up and started headless with a model on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from delegate.cli.input.client_settings import block as block_of
from delegate.cli.mcp_clients import CALL_SECONDS, CLIENTS, Launch
from scripts.clients.wire import How

ROOT = Path(__file__).resolve().parents[2]
CACHE = "DELEGATE_CLIENTS_CACHE"
PROMPT = "Delegate the work to a child agent, and tell me its verdict."
Json = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """What one start of a client needs."""

    home: Path
    project: Path
    model_url: str
    """The address of the scripted model server, without `/v1`."""
    program: str
    """The client's program; for a Python package, the Python of its venv."""
    server_env: Mapping[str, str]
    """The environment of the server, as it is in the client's settings."""
    call_seconds: int | None = CALL_SECONDS
    """The timeout of a call in the client's settings; None: the client's own."""
    args: Sequence[str] = ("mcp",)


@dataclass(frozen=True)
class Driven:
    """A client as it is driven here."""

    name: str
    package: str
    """The npm or PyPI package; for the latter with its version range."""
    argv: Callable[[Setup], list[str]]
    program: str = "python"
    """The name of the npm package's program."""
    settings: str = ""
    """Whose block of configuration is written; empty if the client gets it in `argv`."""
    env: Callable[[Setup], Mapping[str, str]] = lambda setup: {}
    more_settings: Callable[[Setup], Json | str] = lambda setup: {}
    """What else is in the settings file: the model. A text is put before the block."""
    more_files: Callable[[Setup], Mapping[str, str]] = lambda setup: {}
    """Other files, by their path: `~` is the home folder."""
    cut: str = ""
    """What the part of the block begins with that is left out, to see what happens without it."""
    how: How = "function"
    about: str = ""
    """What is special about this way to run it."""
    sets: str = ""
    """What its user has to set besides the block, such as which tools need no approval."""
    notes: tuple[str, ...] = ()
    """What else was found out about it."""
    one_server_per_call: bool = False
    """Whether the client starts a server for each call, and ends it with its answer."""

    @property
    def kind(self) -> Literal["npm", "pypi"]:
        return "pypi" if self.program == "python" else "npm"


def cache() -> Path:
    """The folder that clients are installed in."""
    return Path(os.environ.get(CACHE) or ROOT / ".clients")


def installed(client: Driven) -> tuple[str, str]:
    """The client's program and version. It is installed if it is missing. Raises CalledProcessError if that fails."""
    return _npm(client) if client.kind == "npm" else _pypi(client)


def _npm(client: Driven) -> tuple[str, str]:
    folder = cache() / client.package.replace("@", "_").replace("/", "_")
    program = folder / "node_modules" / ".bin" / client.program
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--prefix", str(folder), client.package], check=True, capture_output=True)
    about = json.loads((folder / "node_modules" / client.package / "package.json").read_text(encoding="utf-8"))
    return str(program), about["version"]


def _pypi(client: Driven) -> tuple[str, str]:
    folder = cache() / f"clients-{client.name}"
    python = folder / "bin" / "python"
    name = client.package.partition("=")[0].partition("<")[0].partition(">")[0]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *_PIP.get(client.name, (client.package,))], check=True
        )
    asked = [str(python), "-c", f"import importlib.metadata as m; print(m.version({name!r}))"]
    return str(python), subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


_PIP: Mapping[str, tuple[str, ...]] = {
    "langchain": ("langchain-mcp-adapters", "langchain", "langchain-openai"),
    "pydantic-ai": ("pydantic-ai-slim[mcp,openai]",),
    "hermes": ("hermes-agent==0.19.0", "--editable", str(ROOT)),  # its plugin is a package, with what that needs
}


def write_settings(client: Driven, setup: Setup) -> str:
    """Write the client's settings, with the block that `delegate mcp install` prints. Returns the block."""
    block = ""
    if client.settings:
        launch = Launch(
            "delegate", setup.args, setup.server_env, keys=("OPENAI_API_KEY",), call_seconds=setup.call_seconds
        )
        known = CLIENTS[client.settings]
        whole = block_of(known, launch)
        block = whole.partition(client.cut)[0] if client.cut else whole
        more = client.more_settings(setup)
        text = f"{more}\n{block}" if isinstance(more, str) else json.dumps({**more, **json.loads(whole)}, indent=2)
        _write(setup, known.path, text)
    for path, text in client.more_files(setup).items():
        _write(setup, path, text)
    return block


def _write(setup: Setup, path: str, text: str) -> None:
    file = setup.home / path[2:] if path.startswith("~/") else setup.project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _codex_settings(model: str) -> Callable[[Setup], str]:
    def settings(setup: Setup) -> str:
        return (
            f'model = "{model}"\nmodel_provider = "scripted"\ncheck_for_update_on_startup = false\n'
            f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{setup.model_url}/v1"\n'
            'env_key = "SCRIPTED_KEY"\nwire_api = "responses"\nsupports_websockets = false\n'
        )

    return settings


def _codex(name: str, model: str, about: str, how: How = "function", cut: str = "") -> Driven:
    return Driven(
        name,
        "@openai/codex",
        lambda setup: [setup.program, "exec", "--skip-git-repo-check", "--json", PROMPT],
        program="codex",
        settings="codex",
        env=lambda setup: {"SCRIPTED_KEY": "test"},
        more_settings=_codex_settings(model),
        cut=cut,
        how=how,
        about=about,
        notes=_CODEX if name == "codex" else (),
    )


_CODEX = (
    "Without `required`, it asks its model before the server has started.",
    "Without `direct_only_tool_namespaces`, nothing in its requests names the tool; see codex-code and codex-search.",
    "Of its variables, the server gets only those in `env_vars`, and a few such as `PATH`.",
    "A result of more than about 10,000 characters loses its middle.",
    "Where a result has `structuredContent`, its model reads only that, as JSON.",
)
_CLAUDE = (
    "Without `alwaysLoad`, its first request doesn't list the tool where Claude Code uses its search of tools.",
    "It makes calls of one turn one after the other, unless a tool says that it only reads.",
    "Where a result has `structuredContent`, its model reads only that, as JSON.",
    "It keeps the first 2,048 characters of a tool's description.",
)
_CLINE = (
    "It starts without the tool if the server hasn't answered its first message after about 2.5 s.",
    "Its model reads the whole result as JSON, cut at 8,000 characters.",
    "It ends a conversation whose model makes the same call five times, such as one that waits for a task's end.",
    "It makes calls of one turn one after the other.",
)
_COPILOT = (
    "Where a result has `structuredContent`, its model reads that after the text.",
    "A result of more than about 20 kB is put into a file; its model reads the first 500 characters.",
)
_GEMINI = (
    "It puts results between `<untrusted_context>` tags.",
    "It ends a conversation whose model makes the same call five times, such as one that waits for a task's end.",
    "It offers its model a parameter `wait_for_previous` of its own, and sends it on. The server ignores it.",
)
_QWEN = (
    'Its model finds tools with `tool_search`; with `{"tools": {"exclude": ["tool_search"]}}`, all of them are listed.',
    "After a timeout it starts the server anew and makes the same call again, three times.",
    "It makes calls of one turn one after the other.",
)


def _claude(name: str, about: str, **env: str) -> Driven:
    return Driven(
        name,
        "@anthropic-ai/claude-code",
        lambda setup: [
            *(setup.program, "-p", PROMPT, "--allowedTools", "mcp__delegate"),
            *("--output-format", "stream-json", "--verbose"),
        ],
        program="claude",
        settings="claude",
        env=lambda setup: {
            "ANTHROPIC_BASE_URL": setup.model_url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            **env,
        },
        about=about,
        sets="`--allowedTools mcp__delegate`: no approvals",
        notes=_CLAUDE if name == "claude" else (),
    )


def _opencode_settings(setup: Setup) -> Json:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{setup.model_url}/v1", "apiKey": "test"},
        "models": {"test-model": {"name": "test-model", "limit": {"context": 200_000, "output": 8_000}}},
    }
    return {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"scripted": provider},
        "model": "scripted/test-model",
        "small_model": "scripted/test-model",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
    }


def _continue_settings(setup: Setup) -> str:
    return (
        "name: Local\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: test-model\n    provider: openai\n"
        f"    model: test-model\n    apiKey: test\n    apiBase: {setup.model_url}/v1\n"
        "    roles: [chat]\n    capabilities: [tool_use]\n"
    )


def _cline(setup: Setup) -> list[str]:
    signed_in = f"auth -p openai-compatible -k test -m test-model -b {setup.model_url}/v1"
    return ["sh", "-c", f"{setup.program} {signed_in} && exec {setup.program} --json '{PROMPT}'"]


def _python(name: str, package: str, script: str, about: str = "", *notes: str, sets: str = "") -> Driven:
    path = str(Path(__file__).parent / "loops" / f"{script}.py")
    return Driven(
        name,
        package,
        lambda setup: [setup.program, path, f"{setup.model_url}/v1", json.dumps(dict(setup.server_env)), PROMPT],
        about=about,
        sets=sets,
        notes=notes,
    )


def _one_call_each(name: str, package: str, program: str, settings: str, about: str, *notes: str) -> Driven:
    path = str(Path(__file__).parent / "loops" / "command.py")
    return Driven(
        name,
        package,
        lambda setup: [sys.executable, path, f"{setup.model_url}/v1", setup.program, PROMPT, str(setup.project)],
        program=program,
        settings=settings,
        about=about,
        notes=(
            "Tasks in the background end with the server, so it has to answer at the end: `--answer-within`.",
            *notes,
        ),
        one_server_per_call=True,
    )


_LANGCHAIN = "`client.get_tools()` starts a server for each call, which ends its tasks; `client.session` keeps one."
_FEATURES = "\n[features"
_UNLISTED = "without `direct_only_tool_namespaces` in its settings"
ALL: tuple[Driven, ...] = (
    _codex("codex", "gpt-6.1-sol", "with its default model"),
    _codex("codex-gpt-5.5", "gpt-5.5", "with a model that calls all tools directly"),
    _codex("codex-unknown", "test-model", "with a model that Codex doesn't know"),
    _codex("codex-code", "gpt-6.1-sol", f"{_UNLISTED}: tools are called from JavaScript", "code", _FEATURES),
    _codex("codex-search", "gpt-5.5", f"{_UNLISTED}: tools are found by a search", "search", _FEATURES),
    _claude("claude", "with its search of tools, as with Anthropic's own API", ENABLE_TOOL_SEARCH="true"),
    _claude("claude-functions", "without a search of tools, as with other addresses of the API"),
    Driven(
        "opencode",
        "opencode-ai",
        lambda setup: [setup.program, "run", "--print-logs", "--log-level", "WARN", PROMPT],
        program="opencode",
        sets='`"permission": {"*": "allow"}`: no approvals',
        settings="opencode",
        notes=("Progress extends its timeout of a call.",),
        env=lambda setup: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
        more_settings=_opencode_settings,
    ),
    Driven(
        "gemini",
        "@google/gemini-cli",
        lambda setup: [setup.program, "--skip-trust", "-m", "gemini-2.5-pro", "-p", PROMPT],
        program="gemini",
        sets="`--skip-trust`: the folder counts as trusted; the block's `trust` needs no approvals",
        settings="gemini",
        notes=_GEMINI,
        env=lambda setup: {
            "GEMINI_API_KEY": "test",
            "GOOGLE_GEMINI_BASE_URL": setup.model_url,
            "GEMINI_TELEMETRY_ENABLED": "false",
        },
        more_settings=lambda setup: {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        },
    ),
    Driven(
        "qwen",
        "@qwen-code/qwen-code",
        lambda setup: [setup.program, "--auth-type", "openai", "-m", "test-model", "-p", PROMPT],
        program="qwen",
        sets="nothing; the block's `trust` needs no approvals",
        settings="qwen",
        notes=_QWEN,
        env=lambda setup: {
            "OPENAI_BASE_URL": f"{setup.model_url}/v1",
            "OPENAI_MODEL": "test-model",
        },
        more_settings=lambda setup: {
            "security": {"auth": {"selectedType": "openai"}},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        },
    ),
    Driven(
        "copilot",
        "@github/copilot",
        lambda setup: [
            *(setup.program, "-p", PROMPT, "--allow-all-tools", "--disable-builtin-mcps"),
            *("--disable-client-telemetry", "--no-auto-update"),
        ],
        program="copilot",
        sets="`--allow-all-tools`: no approvals",
        settings="copilot",
        notes=_COPILOT,
        env=lambda setup: {
            "COPILOT_PROVIDER_BASE_URL": f"{setup.model_url}/v1",
            "COPILOT_PROVIDER_API_KEY": "test",
            "COPILOT_MODEL": "test-model",
            "COPILOT_OFFLINE": "true",
        },
    ),
    Driven(
        "cline",
        "cline",
        _cline,
        program="cline",
        sets="nothing: without a screen, it asks for no approvals",
        settings="cline",
        notes=_CLINE,
        env=lambda setup: {"CLINE_NO_AUTO_UPDATE": "1", "CLINE_TELEMETRY_DISABLED": "1"},
    ),
    Driven(
        "continue",
        "@continuedev/cli",
        lambda setup: [setup.program, "-p", PROMPT, "--auto", "--config", str(setup.home / ".continue/config.yaml")],
        program="cn",
        sets="`--auto`: no approvals",
        settings="continue",
        notes=("It gives up after 60 s, which can't be changed.",),
        env=lambda setup: {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_ENABLE_TELEMETRY": "0"},
        more_settings=_continue_settings,
    ),
    _one_call_each(
        "mcporter", "mcporter", "mcporter", "mcporter", "`mcporter call`, once per call; it starts a server each time"
    ),
    _one_call_each(
        "inspector",
        "@modelcontextprotocol/inspector",
        "mcp-inspector",
        "inspector",
        "`mcp-inspector --cli`, once per call; it starts a server each time",
        "It gives up after 60 s, which can't be changed.",
        "Its command line can't pass an empty text on.",
    ),
    _python("mcp-1", "mcp>=1,<2", "sdk", "the SDK's `ClientSession` in a loop of one's own"),
    _python("mcp-2", "mcp>=2,<3", "sdk", "the SDK's `Client` in a loop of one's own"),
    _python("fastmcp", "fastmcp", "fast", "`fastmcp.Client` in a loop of one's own"),
    _python(
        "openai-agents",
        "openai-agents",
        "openai_agents",
        "`MCPServerStdio`",
        "Without `client_session_timeout_seconds`, it gives up after 5 s.",
        sets="`client_session_timeout_seconds=3600`",
    ),
    _python(
        "pydantic-ai",
        "pydantic-ai-slim",
        "pydantic_agent",
        "`MCPToolset`",
        "After its second refused call it would end the run, so it gets refusals as usual results.",
        sets="`read_timeout=3600`",
    ),
    _python(
        "langchain",
        "langchain-mcp-adapters",
        "langchain_agent",
        "`MultiServerMCPClient` with `create_agent`",
        _LANGCHAIN,
    ),
)
