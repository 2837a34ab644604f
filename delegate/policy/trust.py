"""Decides whose word a settings file is: the operator's, or only that of the folder it lies in.

A cloned repository can bring a `delegate.toml`. So a file in the working folder may narrow what the operator allows,
but widens it only after `delegate trust`, which notes the file's path and digest. These always count in full: the
operator's own file, and the file that `DELEGATE_CONFIG` names. Files of tasks are on the same list.
"""

import hashlib
import json
import math
import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from delegate._util.documents import replace_text
from delegate.models.tiers import Bounds, is_above
from delegate.types import LEVELS, TIERS
from delegate.types.errors import ConfigError

NAME = "delegate.toml"
MCP_NAME = ".mcp.json"
"""MCP servers, in a file that other clients read too. It doesn't count at all without trust."""
ROLE_FOLDERS = ("agents", ".claude/agents", ".codex/agents")
"""Where a repository may have roles. They don't count at all without trust."""
_LIST = "trusted.json"
LARGEST_BYTES = 1_000_000
"""A file in the working folder that is larger is refused unread."""
Origin = Literal["own", "named", "folder"]

# ----------------------------------------------------------------------------------------------------- the files


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file as it was read. `origin` is `own`, `named` (by DELEGATE_CONFIG) or `folder`."""

    path: Path
    origin: Origin
    data: bytes
    trusted: bool

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.path.name if self.origin == "folder" else str(self.path)


def own_folder() -> Path:
    """The operator's folder for configuration. A relative XDG_CONFIG_HOME is ignored, as its specification demands."""
    return _own_folder(os.environ.get("XDG_CONFIG_HOME") or "", os.path.expanduser("~"))


@lru_cache(16)
def _own_folder(configured: str, home: str) -> Path:
    if os.path.isabs(configured):
        return Path(configured, "delegate")
    # Without a home, it is a folder that can't exist.
    return Path(home, ".config", "delegate") if os.path.isabs(home) else Path(os.devnull, "delegate")


def own_file() -> Path:
    """The operator's own settings file, whether or not it exists."""
    return own_folder() / NAME


def named_file(environ: Mapping[str, str]) -> Path | None:
    """The settings file that `DELEGATE_CONFIG` names, whether or not it exists."""
    named = environ.get("DELEGATE_CONFIG")
    return Path(os.path.expanduser(named)) if named else None


def settings_files(environ: Mapping[str, str]) -> tuple[SettingsFile, ...]:
    """The settings files that exist, lowest precedence first. `DELEGATE_CONFIG` replaces the working folder's file.

    Raises:
        ConfigError: A file can't be read, or `DELEGATE_CONFIG` names one that doesn't exist.
    """
    named = named_file(environ)
    found: list[SettingsFile] = [] if named else _trusted_roles()
    roles = sorted(filter(is_role, own_folder().joinpath("agents").glob("*.*")))
    found += [SettingsFile(path, "own", _bytes_of(path), trusted=True) for path in roles]
    if (own := read_own()) is not None:
        found.append(own)
    if named:
        try:
            found.append(SettingsFile(named, "named", _bytes_of(named), trusted=True))
        except FileNotFoundError:
            raise ConfigError(f"DELEGATE_CONFIG names {named}, which does not exist; correct the path") from None
        return tuple(found)
    found += _trusted_as_they_are([Path(MCP_NAME)])
    with suppress(FileNotFoundError):
        path = _key(_folder_file())
        if not os.path.exists(own_file()) or not os.path.samefile(path, own_file()):
            data = _regular_bytes_of(path)
            found.append(SettingsFile(path, "folder", data, trusted=_digest(data) == trusted().get(path)))
    return tuple(found)


def _folder_file() -> Path:
    """The settings file of the working folder, which in a repository may lie above it; the file needn't exist."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return Path(NAME)
    above = [here, *here.parents]
    top = next((n for n, folder in enumerate(above) if os.path.lexists(folder / ".git")), 0)
    return next((file for folder in above[: top + 1] if os.path.lexists(file := folder / NAME)), here / NAME)


def is_role(path: Path) -> bool:
    """Whether a file is one of a role, by its name and folder."""
    return path.parent.name == "agents" and path.suffix in (".md", ".toml") and path.name != NAME


def _trusted_roles() -> list[SettingsFile]:
    """The roles of the working folder that are trusted as they are now."""
    folders = {_key(Path(folder, NAME)).parent for folder in ROLE_FOLDERS}
    return _trusted_as_they_are([path for path in sorted(trusted()) if path.parent in folders and is_role(path)])


def _trusted_as_they_are(paths: Iterable[Path]) -> list[SettingsFile]:
    there = [path for path in paths if path.exists() and _key(path) in trusted()]
    return [file for file in map(read, there) if file.trusted]


def read_own() -> SettingsFile | None:
    """The operator's own settings file, if there is one. Raises ConfigError if it can't be read."""
    if not os.path.exists(own_file()):  # also if HOME is another user's, as in some containers
        return None
    return SettingsFile(own_file(), "own", _bytes_of(own_file()), trusted=True)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error


def _regular_bytes_of(path: Path) -> bytes:
    """The file's content. Pipes, which may never end, and huge files are refused: anyone may have put them there."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_BYTES:
        raise ConfigError(f"{path} is not a regular file of at most {LARGEST_BYTES:,} bytes; remove it, or replace it")
    return _bytes_of(path)


# ------------------------------------------------------------------------------------------------- the trusted files


def trusted() -> dict[Path, str]:
    """The trusted files with the SHA-256 that each had.

    Raises:
        ConfigError: The list can't be read.
    """
    return _listed(_list_file())


def _listed(path: Path) -> dict[Path, str]:
    if not os.path.lexists(path):  # as for most, and faster than an attempt to read it
        return {}
    try:
        listed = json.loads(path.read_bytes())
        return {Path(file): str(digest) for file, digest in listed.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"the list of trusted files {path} can't be read ({error}); correct or delete it") from None


def read(path: Path) -> SettingsFile:
    """The settings file at `path`, or in the folder `path`.

    Raises:
        ConfigError: There is no such file, or it can't be read.
    """
    key = _key(path / NAME if path.is_dir() else path)
    try:
        data = _regular_bytes_of(key)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {key}; name a settings file, or a folder with a {NAME}") from None
    return SettingsFile(key, "folder", data, trusted=_digest(data) == trusted().get(key))


def trust(file: SettingsFile) -> None:
    """Trust this file with the content that was read; any change of it ends the trust."""
    _store({**trusted(), file.path: _digest(file.data)})


def trust_tasks(path: Path, digest: str) -> None:
    """Trust a file of tasks with the content that had this digest; any change of it ends the trust."""
    _store({**trusted(), _key(path): digest})


def is_trusted(path: Path) -> bool:
    """Whether any file is trusted as it is now.

    Raises:
        ConfigError: There is no such file, or it can't be read.
    """
    listed = trusted().get(_key(path))
    return listed is not None and listed == digest_of(path)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file of any size.

    Raises:
        ConfigError: There is no such file, or it can't be read.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigError(f"{path} is not a regular file; name one")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}; name a file that exists") from None


def revoke(path: Path) -> bool:
    """End the trust in the file at `path`, or in what the folder `path` has. Whether there was any."""
    listed, folder = trusted(), Path(os.path.realpath(path))
    ended = {file for file in listed if file.parent == folder and is_role(file)} | {_key(path), _key(path / NAME)}
    kept = {file: digest for file, digest in listed.items() if file not in ended}
    if kept != listed:
        _store(kept)
    return kept != listed


def _store(listed: Mapping[Path, str]) -> None:
    path = _list_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digests = {str(file): digest for file, digest in sorted(listed.items())}
        replace_text(path, json.dumps(digests, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"the list of trusted files {path} can't be written: {error.strerror}") from error


def _list_file() -> Path:
    return own_folder() / _LIST


def _key(path: Path) -> Path:
    """The path under which a file is trusted. A link is trusted as a link: what it leads to was trusted elsewhere."""
    return Path(os.path.realpath(path.parent)) / path.name


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ------------------------------------------------------------------------------------- what a child must not write


def is_protected(real: Path) -> bool:
    """Whether `real`, a path without links, holds settings or trust of the operator, or a copy of a trusted file."""
    folded, own_files = str(real).casefold(), own_folder()
    own = _without_links(own_files, folded)
    if own is not None and (folded == own or folded.startswith(own.rstrip(os.sep) + os.sep)):
        return True
    listed: Mapping[Path, str] = {}
    with suppress(ConfigError):
        listed = _listed(own_files / _LIST)
    named = named_file(os.environ)
    here = _folder_file() if real.name.casefold() == NAME else Path(NAME)
    files = (here, *([named] if named else []), *listed)
    return any(_without_links(file, folded) == folded for file in files) or (
        (real.name.casefold() in (NAME, MCP_NAME) or is_role(real)) and _is_trusted_copy(real, listed)
    )


def _without_links(path: Path, folded: str) -> str | None:
    """The case-folded path without links; None if such a path, `folded`, can't be at it or below it."""
    if path.name.casefold() not in folded.split(os.sep) and not os.path.islink(path):
        return None  # without links in its folders, it would still end in its name
    return os.path.realpath(path).casefold()


def _is_trusted_copy(real: Path, listed: Mapping[Path, str]) -> bool:
    """As in a worktree of a repository whose file is trusted: what a child changed there is merged later."""
    try:
        return bool(listed) and _digest(_regular_bytes_of(real)) in listed.values()
    except (OSError, ConfigError):
        return False


# -------------------------------------------------------------------------------------------- what needs trust

FREE = frozenset({"model", "tier", "min_tier", "effort", "csv_bom"})
"""These choose among what the operator's keys and limits allow, as any task may, or how a file looks."""
LIMITS = frozenset({
    "max_concurrent", "max_children", "max_depth", "max_steps", "max_tokens", "timeout_seconds", "max_cost_usd",
    "default_max_cost_usd", "max_run_model_calls", "max_run_tokens", "run_timeout_seconds", "max_output_tokens",
    "call_timeout_seconds", "result_chars", "max_workspace_mb", "ask_above_usd",
    "parent_answer_seconds",
})  # fmt: skip
"""A lower value narrows; None is no limit, with one exception."""
LEAST_CALL_SECONDS = 180.0
"""What `call_timeout_seconds` is by default, or more where a reply may be long."""
ORDERS: Mapping[str, tuple[object, ...]] = {
    "commands": ("deny", "sandboxed", "ask", "allow"),
    "sandbox": ("require", "auto", "off"),
    "network": ("off", "loopback", "open"),
    "gate": (True, False),
    "strict_checks": (True, False),
    "min_level": (*LEVELS, None),
    "escalate": (True, False),
    "project_notes": (False, True),
    "merge_tool": (False, True),
}
"""Values from the narrowest to the widest."""
NARROWEST: Mapping[str, object] = {"web_search": "off"}
"""Values that anyone may choose, of fields whose other values can't be ordered."""
LISTS = frozenset({"endpoints", "models", "fetch_hosts", "call_fields"})
"""A part of what the operator lists narrows."""


def widens(field: str, value: Any, allowed: Any) -> bool:
    """Whether `value` reaches further than `allowed`, the operator's own value of this setting.

    Any other value of a field that isn't named above counts as wider: tool names that a host's rules may know, the
    judge, its accuracy, and where and how long records are kept.
    """
    if field in FREE or value == allowed:
        return False
    if field in LIMITS:
        unlimited = LEAST_CALL_SECONDS if field == "call_timeout_seconds" else math.inf
        return not (math.inf if value is None else value) <= (unlimited if allowed is None else allowed)
    if field == "parent_tier":  # without it, a model counts as `standard`, and a person's tasks have no ceiling
        is_lost = value is None and allowed is not None
        return is_lost or is_above(value or "standard", allowed or "standard")
    if field in ORDERS:
        return ORDERS[field].index(value) > ORDERS[field].index(allowed)
    if field in LISTS:
        return any(one not in allowed for one in value)
    if field == "max_false_pass":
        return value is None or (allowed is not None and value > allowed)
    if field == "policy":
        return value.widens(allowed)
    if field == "min_judge_accuracy":
        return value is None or not value >= (allowed or 0)
    if field == "max_tier":
        ceilings = [(Bounds.under(one, max_tier=value), Bounds.under(one, max_tier=allowed)) for one in (None, *TIERS)]
        return any(is_above(wanted.ceiling, limit.ceiling) for wanted, limit in ceilings)
    return field not in NARROWEST or value != NARROWEST[field]


_OTHER_SERVICES = "AWS_|AZURE_(?!OPENAI)|GITHUB_|GITLAB_|STRIPE_|NPM_|PYPI_"
_MODEL_KEY = re.compile(rf"(?!{_OTHER_SERVICES})[A-Z][A-Z0-9_]{{0,60}}_API_(?:KEY|TOKEN)")


def is_model_key(variable: str) -> bool:
    """Whether a variable's name is like those of model servers' keys, such as OPENAI_API_KEY."""
    return _MODEL_KEY.fullmatch(variable) is not None


def refusal(file: SettingsFile, fields: list[str]) -> ConfigError:
    """The error for fields of an untrusted file."""
    trusting = f"delegate trust {shlex.quote(str(file.path))}"
    return ConfigError(
        f"{file.path} sets {', '.join(fields)}, which a file in the working folder may do only once you trust it: read "
        f"it, then run `{trusting}`. Or remove these fields, or name a file of your own with DELEGATE_CONFIG, which is "
        "then read in its place"
    )
