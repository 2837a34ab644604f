"""The setting `roles`: how a child works, by a file per role. A role only narrows what its task may do."""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, StringConstraints

from delegate._util.documents import loads
from delegate._util.similar import most_similar
from delegate.policy.rules import Policy
from delegate.types import Criterion, Text, Tier
from delegate.types.base import Input

RoleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
MAX_ROLES = 20
"""The names and descriptions of all of them are in the tool's definition."""


def _listed(names: object) -> object:
    """Claude Code's files have names in one text, separated by commas."""
    return (
        [name.strip() for name in re.split(r",(?![^(]*\))", names) if name.strip()] if isinstance(names, str) else names
    )


class Role(Input):
    """A role that a task may name. What it leaves out is as for any task."""

    description: Text
    """When to choose it, for the parent's model, which reads its beginning."""
    instructions: Annotated[str, StringConstraints(max_length=50_000)] = ""
    """What its children read in their system prompt, after delegate's own rules."""
    tools: Annotated[tuple[Text, ...] | None, BeforeValidator(_listed)] = None
    """The names of the tools that its children may use. None: those of the task."""
    without_tools: Annotated[tuple[Text, ...], BeforeValidator(_listed)] = ()
    """The names of tools that they may not use."""
    read_only: bool = False
    """Whether they get only tools that change nothing."""
    tier: Tier | None = None
    """Their tier. The parent's ceiling and the settings bound it, and a weaker one in the task counts."""
    model: Text | None = None
    """Their model, if it can be called and the bounds of tiers allow it. Otherwise the tier or the usual model."""
    acceptance_criteria: tuple[Criterion, ...] = ()
    """What the work must meet besides the task's own criteria."""
    policy: Policy | None = None
    """Where it is stricter than the settings' policy, it counts."""
    max_steps: int | None = Field(default=None, ge=1)
    timeout_seconds: float | None = Field(default=None, gt=0)
    max_cost_usd: float | None = Field(default=None, gt=0)

    @property
    def limits_tools(self) -> bool:
        """Whether only a child whose tools are delegate's can be held to it."""
        return self.tools is not None or bool(self.without_tools) or self.read_only or self.policy is not None


# ----------------------------------------------------------------------------------------------- files of other tools

_OF_OTHERS = {"maxTurns": "max_steps", "disallowedTools": "without_tools", "developer_instructions": "instructions"}
"""Fields of Claude Code and Codex, with ours."""
_TIERS = {"opus": "deep", "sonnet": "standard", "haiku": "fast", "inherit": None}
_TOOLS = {
    "Read": ("read_file",), "Write": ("write_file",), "Edit": ("edit_file",), "MultiEdit": ("edit_file",),
    "Glob": ("list_files", "search_files"), "Grep": ("search_files",), "LS": ("list_files",), "Bash": ("run_shell",),
    "WebFetch": ("fetch_url",), "WebSearch": ("search_web",), "TodoWrite": (), "LSP": (),
}  # fmt: skip
"""The tools of Claude Code, with those that do the same. Others are left out: they have no equal here."""
_WIDER = frozenset({
    "mcpservers", "hooks", "endpoint", "endpoints", "baseurl", "url", "apikey", "keyenv", "tokenenv", "modelprovider",
    "modelproviders", "env", "commands", "sandbox", "network", "fetchhosts", "workspace", "settings",
})  # fmt: skip
"""Fields that would let a child reach or run more, without `_` and `-`, in small letters."""
_MAX_FIELDS = 100
_WIDER_MODES = {"permissionMode": "bypassPermissions", "sandbox_mode": "danger-full-access"}


def read_role(path: PurePath, text: str) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a role, from a Markdown file with front matter or a TOML file.

    Files of Claude Code and Codex are read as they are. Fields that concern nothing here, such as a color, are ignored.

    Raises:
        ValueError: It isn't such a file, or it asks for more than a task may have.
    """
    given, body = (cast("dict[str, Any]", loads(text, "toml")), "") if path.suffix == ".toml" else _split(text)
    _refuse_wrong_fields(given)
    fields = {_OF_OTHERS.get(name, name): value for name, value in given.items() if value is not None}
    fields = {name: value for name, value in fields.items() if name in Role.model_fields}
    if body:
        fields["instructions"] = body
    if given.get("permissionMode") == "plan" or given.get("sandbox_mode") == "read-only":
        fields["read_only"] = True
    if str(fields.get("model")) in _TIERS and (tier := _TIERS[fields.pop("model")]):
        fields.setdefault("tier", tier)
    for field in ("tools", "without_tools"):
        if field in fields:
            fields[field] = _tools(_listed(fields[field]), denied=field == "without_tools")
    name = str(given.get("name", ""))
    return (name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) else path.stem), fields


def _refuse_wrong_fields(given: Mapping[str, Any]) -> None:
    """Raise ValueError for a field that would widen, or that is meant to narrow but misspelled."""
    for name, value in given.items():
        if name.replace("_", "").replace("-", "").lower() in _WIDER or _WIDER_MODES.get(name, "") == value:
            raise ValueError(
                f"`{name}` would give its children more than a task has, and a role only narrows; remove it"
            )
    if len(given) > _MAX_FIELDS:
        raise ValueError(f"it has more than {_MAX_FIELDS} fields")
    for name in given.keys() - Role.model_fields.keys() - _OF_OTHERS.keys() - {"name"}:
        if meant := most_similar(name, Role.model_fields):
            raise ValueError(f"`{name}` is no field of a role; did you mean `{meant}`?")


def _split(text: str) -> tuple[dict[str, Any], str]:
    """The front matter of a Markdown file, and what follows it."""
    found = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)(.*)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError("it has no front matter between two lines `---`")
    try:
        fields = loads(found[1], "yaml")
    except ValueError as error:  # as where a description has colons, which Claude Code accepts
        fields = _lines(found[1], error)
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in cast("dict[Any, Any]", fields)):
        raise ValueError("its front matter isn't `name: value` lines")
    return cast("dict[str, Any]", fields), found[2].strip()


def _lines(front: str, error: ValueError) -> dict[str, Any]:
    """The fields of lines `name: value` that aren't YAML. Any other line could narrow, so it can't be left out."""
    lines = [re.fullmatch(r"([A-Za-z_-]+):[ \t]*(\S.*)", line.rstrip()) for line in front.splitlines() if line.strip()]
    read = {line[1]: line[2].strip("\"' []") for line in lines if line}
    if len(read) < len(lines):
        raise error
    return read


def _tools(names: object, *, denied: bool) -> object:
    """The names of tools as they are here. A pattern such as `Bash(git *)`, which can't be kept, gives no tool, and
    takes away the whole tool.
    """
    if isinstance(names, dict):  # opencode's: whether each may be used
        names = [name for name, used in cast("Mapping[str, Any]", names).items() if bool(used) is not denied]
    if not isinstance(names, (list, tuple)):
        return names
    found: list[str] = []
    for name in map(str, cast("list[Any]", names)):
        plain, has_pattern, _ = name.partition("(")
        if has_pattern and not denied:
            continue
        server = re.fullmatch(r"mcp__(.+?)__(.+)", plain)
        if plain[:1].isupper() and plain not in _TOOLS and (meant := most_similar(plain, _TOOLS)):
            raise ValueError(f"there is no tool `{plain}`; did you mean `{meant}`?")
        found += [f"{server[1]}.{server[2]}"] if server else _TOOLS.get(plain, () if plain[:1].isupper() else (plain,))
    return list(dict.fromkeys(found))
