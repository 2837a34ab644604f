"""Prepares and builds a release: `make release VERSION=0.1.0 REPOSITORY=https://github.com/OWNER/NAME`.

It commits the version, the addresses, the date and the entry of the MCP registry; builds and tests the packages; checks
how PyPI would show them; and writes an SBOM of what a user would install now, and a bundle for Claude Desktop. It
publishes nothing: see .github/RELEASING.md.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from scripts import registries, write_plugins

ROOT = Path(__file__).resolve().parent.parent
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_REPOSITORY = re.compile(r"https://[\w.-]+(/[\w.-]+){2}")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")
_TOOLS = ("twine>=6,<8", "cyclonedx-bom>=7,<8")


def with_version(pyproject: str, version: str, repository: str) -> str:
    """The pyproject.toml of a release."""
    pyproject = re.sub(r'^version = ".*"$', f'version = "{version}"', pyproject, count=1, flags=re.MULTILINE)
    pyproject = re.sub(r"\[project\.urls\]\n(?:.+\n)+\n", "", pyproject)
    urls = f"""[project.urls]
Repository = "{repository}"
Documentation = "{repository}/blob/v{version}/docs/index.md"
Changelog = "{repository}/blob/v{version}/CHANGELOG.md"
Issues = "{repository}/issues"

"""
    return pyproject.replace("[project.scripts]\n", f"{urls}[project.scripts]\n", 1)


def with_absolute_links(readme: str, version: str, repository: str) -> str:
    """The README as PyPI shows it, which resolves no relative links."""

    def absolute(link: re.Match[str]) -> str:
        is_picture, text, target = link.groups()
        kind = "raw" if is_picture else "blob"
        return f"{is_picture}[{text}]({repository}/{kind}/v{version}/{target})"

    return _LINK.sub(absolute, readme)


def with_date(changelog: str, version: str, date: str) -> str:
    """The changelog of a release, whose latest section gets its name."""
    return re.sub(r"^## Unreleased$", f"## {version} ({date})", changelog, count=1, flags=re.MULTILINE)


def main() -> None:
    """Prepare, commit, build and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("repository")
    options = parser.parse_args()
    version, repository = options.version, options.repository.rstrip("/")
    if not _VERSION.fullmatch(version):
        parser.error(f"{version} is not a version such as 0.1.0 or 0.1.0rc1")
    if not _REPOSITORY.fullmatch(repository):
        parser.error(f"{repository} is not the address of a repository, such as https://github.com/OWNER/NAME")
    if _output("git", "status", "--porcelain"):
        sys.exit("commit or remove what has changed first: the sdist takes all files")
    _rewrite("pyproject.toml", lambda text: with_version(text, version, repository))
    _rewrite("README.md", lambda text: with_absolute_links(text, version, repository))
    _rewrite(
        "CHANGELOG.md", lambda text: with_date(text, version, datetime.datetime.now(datetime.UTC).date().isoformat())
    )
    _rewrite("README.md", lambda text: registries.with_registry_name(text, repository))
    entry = registries.server_json(version, repository)
    (ROOT / "server.json").write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")
    write_plugins.main()
    _run("git", "add", "server.json")
    _run("git", "commit", "--all", "--quiet", "--message", f"Release {version}")
    _run("make", "wheel")
    wheel, sbom = _checked(version)
    bundle = registries.write_bundle(ROOT / "build", version)
    print(f"{wheel} is ready, {sbom} says what it is installed with, and {bundle} is for Claude Desktop.")
    for client, link in registries.install_links().items():
        print(f"{client}: {link}")
    print("Next: .github/RELEASING.md, Audit.")


def _checked(version: str) -> tuple[Path, Path]:
    """The wheel, once PyPI would take it, and the SBOM of what is installed with it."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    tools, installed = ROOT / "build" / "tools", ROOT / "build" / "installed"
    for folder, packages in ((tools, _TOOLS), (installed, (str(wheel),))):
        venv.create(folder, clear=True, with_pip=True)
        _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    _run(tools / "bin" / "twine", "check", "--strict", *(ROOT / "dist").iterdir())
    _run(installed / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "pip")
    sbom = ROOT / "build" / f"delegate_task-{version}.cdx.json"
    command = ("environment", "--output-reproducible", "--output-file", sbom, installed / "bin" / "python")
    _run(tools / "bin" / "cyclonedx-py", *command)
    return wheel, sbom


def _rewrite(name: str, change: Callable[[str], str]) -> None:
    path = ROOT / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
