"""Tells which files of a workspace decide the result of a check, by their paths alone: tests, configuration, and so on.

The lists are those of the usual test tools. A project's own conventions are named by a criterion's `protect`.
"""

import functools
import glob
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from delegate.sandbox.filesystem.search import glob_pattern

Role = Literal["test", "config", "hook", "environment", "script", "program", "protected"]
"""What a file is to a check. `hook`: a program loads it without being told to. `environment`: installed packages.
`script`: the command runs it. `program`: the same, but it may be what the child works on rather than a check of it."""

_ENVIRONMENTS = frozenset({
    "node_modules", "bower_components", ".yarn", ".pnp", ".venv", "venv", ".tox", ".nox", "site-packages",
    "__pypackages__",
})  # fmt: skip
_TEST_FOLDERS = frozenset({
    "tests", "test", "__tests__", "__mocks__", "__snapshots__", "snapshots", "testdata", "golden", "e2e",
})  # fmt: skip
_TEST_FOLDER = re.compile(r"test_.*|.*_tests?")
_TEST = re.compile(
    # Any suffix after a module's name: Python prefers `test_a.so` and the folder `test_a` to `test_a.py`.
    r"test_.*|.*_tests?\.(py|pyc|.*so|pyd|go|rb|sh|exs|c|cc|cpp|dart|php|lua|jl|R)|tests?\.(py|pyc|[cm]?[jt]sx?|sh|rb|php)"
    r"|.*[._-](test|tests|spec|cy)\.([cm]?[jt]sx?|rb|lua|dart)"
    r"|.*Tests?\.(java|kt|cs|fs|swift|scala|php|groovy)|Test[A-Z].*\.(java|kt|swift)|.*Spec\.(scala|groovy|hs|kt)"
    r"|.*\.(bats|snap|ambr|t|feature)"
    r"|(expected|golden)(\..*)?|.*\.(expected|golden|approved)(\..*)?"
    r"|.*[._-](expected|golden)\.(txt|json|csv|tsv|out|xml|html|md|ya?ml)"
)
_CONFIG = re.compile(
    r"conftest\..*|\.?pytest\.(ini|toml)|tox\.(ini|toml)|setup\.(cfg|py)|pyproject\.toml|noxfile\.py|\.coveragerc"
    r"|(gnu|bsd)?makefile|.*\.ma?k|\.?justfile|taskfile\.ya?ml|rakefile|gemfile|\.rspec|spec_helper\.rb|phpunit\.xml.*"
    r"|package\.json|bunfig\.toml|deno\.jsonc?|(nx|turbo|lerna)\.json|pnpm-workspace\.yaml"
    r"|(jest|vitest|vite|karma|mocha|ava|cypress|playwright|babel|eslint|webpack|rollup|nyc|c8)"
    r"\.(config|conf|setup|workspace)\.[cm]?[jt]s(on)?"
    r"|\.(mocharc|babelrc|eslintrc|nycrc|c8rc|swcrc|taprc).*|[tj]sconfig.*\.json"
    r"|\.?mypy\.ini|\.flake8|\.?ruff\.toml|\.?pylintrc(\.toml)?|pyrightconfig\.json|\.shellcheckrc|\.golangci\..*"
    r"|package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|(poetry|pdm|uv|cargo|flake)\.lock"
    r"|(pipfile|gemfile|composer)\.lock|go\.sum"
    r"|\.(python|node)-version|\.nvmrc|\.tool-versions|\.?mise\.toml|rust-toolchain(\.toml)?"
)
"""Matched against the name in lower case."""
_HOOK = re.compile(
    r"(site|user)customize(\..*)?|.*\.(pth|egg-link)|\.npmrc|\.yarnrc.*|\.pnp\..*|\.pnpmfile\.c?js|\.git"
)
_HOOK_FOLDER = re.compile(r"(site|user)customize|.*\.(dist|egg)-info")
_GIT = re.compile(r"config|config\.worktree|hooks/(?!.*\.sample$).*|info/(attributes|exclude|sparse-checkout)")
MODULE = re.compile(r"(.*/)?([^/.]+)(/__init__)?\.(py|pyc|pyd|(?:[^/]*\.)?so)")
"""A file that Python can import. The groups are the folder to import from, the module's name, and a package's mark."""
_TEST_TOOLS = frozenset({
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "nose", "nose2", "tox",
    "nox", "coverage", "hypothesis", "xdist", "pytest_asyncio", "pytest_cov", "anyio", "mock", "behave", "colorama",
    "pygments", "attr", "attrs", "mypy", "ruff", "flake8", "pylint", "black",
})  # fmt: skip


@functools.lru_cache(maxsize=16_384)
def role_of_name(name: str) -> Role | None:
    """The role of a file that its name alone tells."""
    if _HOOK.fullmatch(name):
        return "hook"
    if _CONFIG.fullmatch(name.lower()):
        return "config"
    return "test" if _TEST.fullmatch(name) else None


@dataclass(frozen=True)
class Machinery:
    """The files that decide the checks of one task. `scripts` are files that its commands run, by path."""

    protect: Sequence[str] = ()
    may_change: Sequence[str] = ()
    scripts: Mapping[str, Role] = field(default_factory=dict[str, Role])
    on_path: frozenset[str] = frozenset()
    """Folders of the workspace in which programs are looked up, relative to it."""

    def folder_role(self, folder: str, name: str) -> Role | None:
        """The role of everything in the folder `name`, which is in `folder` (with a slash at the end, or empty)."""
        if name in _ENVIRONMENTS or folder + name in self.on_path:
            return "environment"
        if _HOOK_FOLDER.fullmatch(name):
            return "hook"
        return "test" if name in _TEST_FOLDERS or _TEST_FOLDER.fullmatch(name) else None

    def file_role(self, folder: str, name: str, inherited: Role | None) -> Role | None:
        """The role of a file, where `inherited` is that of its folder."""
        path = folder + name
        if self.may_change and self._may_change(path):
            return None
        if self.protect and self._protect(path):
            return "protected"
        if inherited == "environment":
            return inherited
        own = role_of_name(name)
        if own in ("hook", "config"):
            return own
        return inherited or own or self.scripts.get(path)

    def git_role(self, path: str) -> Role | None:
        """The role of a file in `.git`, by its path there. What was committed is work, and has none."""
        if not _GIT.fullmatch(path) or (self.may_change and self._may_change(f".git/{path}")):
            return None
        return "hook"

    @functools.cached_property
    def _protect(self) -> "Globs":
        return Globs(self.protect)

    @functools.cached_property
    def _may_change(self) -> "Globs":
        return Globs(self.may_change)


class Globs:
    """Matches a path that one of the globs names, or that is in a folder that one names."""

    def __init__(self, globs: Sequence[str]) -> None:
        patterns = "|".join(glob_pattern(pattern.removesuffix("/")) for pattern in globs) or "(?!)"
        self._match = re.compile(rf"(?s)(?:{patterns})(?:/.*)?").fullmatch

    def __call__(self, path: str) -> bool:
        return self._match(path) is not None


def folders_on_path(root: str, path: str) -> frozenset[str]:
    """The folders of `path`, a list as in `PATH`, that are in the workspace `root`, relative to it."""
    inside = (os.path.relpath(os.path.realpath(folder or "."), root) for folder in path.split(os.pathsep))
    return frozenset(folder for folder in inside if folder != "." and not folder.startswith(".."))


def shadows(module: str, root: str) -> bool:
    """Whether a module of this name hides one of the standard library, of a test tool or of an installed package."""
    if module in sys.stdlib_module_names or module in _TEST_TOOLS:
        return True
    folders = (*_site_folders(), *glob.glob(f"{glob.escape(root)}/.venv/lib/python*/site-packages"))
    return any(os.path.exists(os.path.join(folder, module + suffix)) for folder in folders for suffix in ("", ".py"))


@functools.cache
def _site_folders() -> tuple[str, ...]:
    """Where packages of this Python, and of the one on the PATH, are installed."""
    folders = [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    for name in ("python3", "python"):
        if program := shutil.which(name):
            for binary in (program, os.path.realpath(program)):
                prefix = os.path.dirname(os.path.dirname(binary))
                folders += glob.glob(f"{glob.escape(prefix)}/lib/python3*/*-packages")
                folders += glob.glob(f"{glob.escape(prefix)}/lib/python3/dist-packages")
    return tuple(dict.fromkeys(folders))
