"""A release says where it is from, and PyPI can follow its links."""

import base64
import json
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema

from scripts import registries
from scripts.release import with_absolute_links, with_date, with_version

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/owner/name"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_project_gets_its_version_and_addresses_also_the_second_time() -> None:
    once = with_version(text("pyproject.toml"), "1.2.3", REPOSITORY)
    project = tomllib.loads(once)["project"]
    assert project["version"] == "1.2.3"
    assert project["urls"]["Changelog"] == f"{REPOSITORY}/blob/v1.2.3/CHANGELOG.md"
    assert set(project["scripts"]) == {"delegate", "delegate-task"}
    twice = tomllib.loads(with_version(once, "1.2.4", REPOSITORY))["project"]
    assert (twice["version"], twice["urls"]["Repository"]) == ("1.2.4", REPOSITORY)


def test_no_link_of_the_readme_stays_relative() -> None:
    readme = with_absolute_links(text("README.md"), "1.2.3", REPOSITORY)
    assert f"]({REPOSITORY}/blob/v1.2.3/docs/index.md)" in readme
    assert f"]({REPOSITORY}/raw/v1.2.3/docs/screens/run.svg)" in readme
    assert with_absolute_links(readme, "1.2.3", REPOSITORY) == readme
    assert "](docs" not in readme


def test_the_changelog_names_the_version_and_its_day() -> None:
    changelog = with_date(text("CHANGELOG.md"), "1.2.3", "2030-01-02")
    assert "\n## 1.2.3 (2030-01-02)\n" in changelog
    assert "\n## Unreleased\n" not in changelog


def schema(name: str) -> Any:
    return json.loads(text(f"tests/data/registries/{name}"))


def test_the_entry_of_the_mcp_registry_is_valid_and_named_by_the_readme() -> None:
    entry = registries.server_json("1.2.3", REPOSITORY)
    jsonschema.validate(entry, schema("server.schema.json"))
    assert entry["name"] == "io.github.owner/name"
    (package,) = entry["packages"]
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert package["identifier"] == project["name"]
    assert package["identifier"] in project["scripts"], "uvx runs the command of the package's name"
    readme = registries.with_registry_name(text("README.md"), REPOSITORY)
    assert readme.endswith("<!-- mcp-name: io.github.owner/name -->\n")
    assert registries.with_registry_name(readme, REPOSITORY) == readme


def test_the_bundle_is_valid_and_the_same_bytes_again(tmp_path: Path) -> None:
    path = registries.write_bundle(tmp_path, "1.2.3")
    with zipfile.ZipFile(path) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        project = tomllib.loads(bundle.read("pyproject.toml").decode())["project"]
        assert manifest["server"]["entry_point"] in bundle.namelist()
    jsonschema.validate(manifest, schema("mcpb-manifest.schema.json"))
    assert manifest["license"] == tomllib.loads(text("pyproject.toml"))["project"]["license"]
    assert project["dependencies"] == ["delegate-task[mcp]==1.2.3"]
    asked = {f"${{user_config.{name}}}" for name in manifest["user_config"]}
    assert set(manifest["server"]["mcp_config"]["env"].values()) == asked
    (tmp_path / "again").mkdir()
    assert registries.write_bundle(tmp_path / "again", "1.2.3").read_bytes() == path.read_bytes()


def test_the_links_install_the_server_that_the_registry_names() -> None:
    links = registries.install_links()
    configs = {client: parse_qs(urlsplit(link).query)["config"][0] for client, link in links.items()}
    server = json.loads(base64.b64decode(configs["Cursor"]))
    assert server == json.loads(configs["VS Code"])
    assert server == {"command": "uvx", "args": ["--with", "delegate-task[mcp]", "delegate-task", "mcp"]}
