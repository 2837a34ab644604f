"""A release says where it is from, and PyPI can follow its links."""

import tomllib
from pathlib import Path

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
