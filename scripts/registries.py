"""What registries and clients want of a release: `server.json` of the MCP registry, a bundle, and links that install.

`scripts/release.py` writes them. All of them start the server that the package installs, by uv.
"""

import base64
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

Json = dict[str, Any]
PACKAGE = "delegate-task"
ABOUT = "Hand tasks to child agents and get each back with a PASS/FAIL verdict that rests on evidence."
"""At most 100 characters, which is the registry's limit."""
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_KEYS: Mapping[str, str] = {
    "OPENAI_API_KEY": "OpenAI",
    "ANTHROPIC_API_KEY": "Anthropic",
    "GEMINI_API_KEY": "Google Gemini",
}
_DATE = (1980, 1, 1, 0, 0, 0)
_START = """\
import sys

from delegate.cli import main

sys.argv[1:] = ["mcp"]
main()
"""
"""For a host that starts the entry point by itself."""


def registry_name(repository: str) -> str:
    """The server's name in the MCP registry: for a repository on GitHub, its owner's name space."""
    address = urlsplit(repository)
    owner, _, name = address.path.strip("/").partition("/")
    return f"{'.'.join(reversed(address.netloc.split('.'))).replace('com.github', 'io.github')}.{owner}/{name}"


def server_json(version: str, repository: str) -> Json:
    """The entry of the MCP registry. PyPI's page of the package has to name it, see `with_registry_name`."""
    return {
        "$schema": _SCHEMA,
        "name": registry_name(repository),
        "title": "delegate",
        "description": ABOUT,
        "version": version,
        "repository": {"url": repository, "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": PACKAGE,
                "version": version,
                "runtimeHint": "uvx",
                "runtimeArguments": [{"type": "named", "name": "--with", "value": _requirement(version)}],
                "packageArguments": [{"type": "positional", "value": "mcp"}],
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": key, "description": f"Key for {provider}; one is enough.", "isSecret": True}
                    for key, provider in _KEYS.items()
                ],
            }
        ],
    }


def with_registry_name(readme: str, repository: str) -> str:
    """The README of a release, by which the MCP registry knows that the package is its owner's."""
    mark = f"<!-- mcp-name: {registry_name(repository)} -->"
    return readme if mark in readme else f"{readme.rstrip()}\n\n{mark}\n"


def manifest(version: str) -> Json:
    """The manifest of the bundle that Claude Desktop installs. Its host brings uv."""
    return {
        "manifest_version": "0.4",
        "name": PACKAGE,
        "display_name": "delegate",
        "version": version,
        "description": ABOUT,
        "author": {"name": "delegate"},
        "license": "MIT",
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--project", "${__dirname}", PACKAGE, "mcp"],
                "env": {key: f"${{user_config.{key.lower()}}}" for key in _KEYS},
            },
        },
        "user_config": {
            key.lower(): {
                "type": "string",
                "title": f"Key for {provider}",
                "description": "One key is enough.",
                "sensitive": True,
                "required": False,
                "default": "",
            }
            for key, provider in _KEYS.items()
        },
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
    }


def write_bundle(folder: Path, version: str) -> Path:
    """Write the bundle: the same bytes for the same version."""
    project = (
        f'[project]\nname = "delegate-bundle"\nversion = "{version}"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["{_requirement(version)}"]\n'
    )
    files = {"manifest.json": json.dumps(manifest(version), indent=2), "pyproject.toml": project, "server.py": _START}
    path = folder / f"{PACKAGE}-{version}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in files.items():
            bundle.writestr(zipfile.ZipInfo(name, _DATE), text)
    return path


def install_links() -> Mapping[str, str]:
    """Links that add the server to a client, by the client's name."""
    server = {"command": "uvx", "args": ["--with", f"{PACKAGE}[mcp]", PACKAGE, "mcp"]}
    encoded = base64.b64encode(json.dumps(server).encode()).decode()
    return {
        "Cursor": f"https://cursor.com/en/install-mcp?name=delegate&config={quote(encoded)}",
        "VS Code": f"https://insiders.vscode.dev/redirect/mcp/install?name=delegate&config={quote(json.dumps(server))}",
    }


def _requirement(version: str) -> str:
    return f"{PACKAGE}[mcp]=={version}"
