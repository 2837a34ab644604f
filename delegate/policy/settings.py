"""Settings, loaded from keyword arguments, `DELEGATE_…` environment variables and `delegate.toml`, in this order.

`delegate.toml` is read from the working folder, or from the path in `DELEGATE_CONFIG`; then the operator's own one from
the configuration folder. Its keys are the fields of `Settings`. The variable of a field is `DELEGATE_` and the field's
name in capitals. A file in the working folder that isn't trusted may only narrow (see `trust.py`).
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypedDict, Unpack, cast, get_origin

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from delegate._util.documents import loads
from delegate._util.similar import most_similar
from delegate.models.catalog import JudgeAccuracy, Model, Price, hint_for
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.policy import trust
from delegate.policy.mcp_servers import McpServer, ServerName, read_mcp_json
from delegate.policy.roles import MAX_ROLES, Role, RoleName, read_role
from delegate.policy.rules import Policy, Rule
from delegate.types.base import CallField, Effort, Input, Level, Text, Tier, TierBound, Value
from delegate.types.errors import ConfigError

_PREFIX = "DELEGATE_"
Sandbox = Literal["auto", "require", "off"]
CommandPolicy = Literal["sandboxed", "ask", "allow", "deny"]
NetworkPolicy = Literal["off", "loopback", "open"]
_Folder = Annotated[Path, AfterValidator(lambda path: Path(os.path.expanduser(path)))]


class Settings(Input):
    """The operator's settings. A parent model can ask for less than these limits, but never for more."""

    tool_name: Text = "delegate_task"
    """Name of the tool. Change it if the host already has a tool called `delegate_task`."""
    model: Text | None = None
    """The model for all children, regardless of the requested tier. Default: the cheapest model of the task's tier."""
    judge_model: Text | None = None
    """The only model that may judge. Default: the cheapest eligible model."""
    escalate: bool = False
    """Whether to ask a second judge, of another family, about criteria that the first can't decide or prove. This
    happens at most once per verdict and adds the second judge's cost."""
    min_judge_accuracy: float | None = Field(default=None, ge=0, le=1)
    """Minimum measured accuracy of a judge, 0 to 1. None also allows models without a measured accuracy."""
    judge_accuracy: dict[str, JudgeAccuracy] = Field(default_factory=dict)
    """Measured accuracy of judges by model, overriding the catalog (only in `delegate.toml` or Python)."""
    max_false_pass: float | None = Field(default=None, gt=0, le=1)
    """Highest rate, 0 to 1, at which a judge may find a criterion met that isn't. A judge decides alone only if the
    upper limit of the 95 % interval of its rate, as rulings measured it, is below this. What any other judge finds met,
    a second judge of another family (`escalate`) has to confirm; otherwise it is `not_confident`. None: any judge
    decides alone."""
    judge_looks: int = Field(default=8, ge=0, le=100)
    """How often a judge may look at more than its page before it answers: at the work, at what a command prints in a
    copy of it, at what look-up tools say. 0: never."""
    judge_turns: int = Field(default=4, ge=0, le=20)
    """In how many turns it may do so. Each adds a model call of the judge."""
    judge_page_tokens: int = Field(default=60_000, ge=1_000, le=1_000_000)
    """Length of the page that a judge gets first, in tokens, or half of what the largest judge can read if that is
    less. What doesn't fit is cut, and can be looked at."""
    criteria_per_call: int | None = Field(default=None, ge=1)
    """How many criteria in words a judge is asked about in one request. None: all that are left."""
    tier: Tier = "standard"
    """Tier of tasks that don't name one, or the nearest tier that the parent may use."""
    parent_tier: Tier | None = None
    """The parent's tier, if its host doesn't report it or the catalog doesn't know its model. None: `standard`; for
    calls by a person, only `max_tier` limits the children."""
    max_tier: TierBound = "parent"
    """Highest tier of a child: a tier, the parent's own (`parent`), or one or two below it (`parent-1`, `parent-2`)."""
    min_tier: TierBound = "fast"
    """Lowest tier of a child, unless its parent's is lower: a tier, `parent`, `parent-1` or `parent-2`."""
    max_concurrent: int = Field(default=3, ge=1)
    """Maximum number of children running concurrently, per run."""
    max_children: int = Field(default=12, ge=0)
    """Maximum number of children requested by models, per run, including the children of children."""
    max_depth: int = Field(default=1, ge=1, le=4)
    """Maximum depth of delegation. With 1, children can't delegate."""
    max_steps: int = Field(default=30, ge=1)
    """Maximum number of model calls per child."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Maximum number of input and output tokens per child, including the tasks that it delegates. None: no limit."""
    timeout_seconds: float = Field(default=600, gt=0)
    """Maximum wall time per child, in seconds, without waits for a rate limit, a repeated call, the budget, an approval
    or an answer."""
    parent_answer_seconds: float = Field(default=600, ge=0, le=86_400)
    """How long a child waits for its parent's answer to a question, in seconds, or half of the time that the call has
    left if that is less. Then it decides itself. 0: children can't ask."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """Maximum cost per run in US dollars, for children and judges together. None: no limit, except that of
    `default_max_cost_usd`."""
    default_max_cost_usd: float | None = Field(default=5, gt=0)
    """Maximum cost in US dollars, as far as prices are known, of a run in which a model makes a call, if `max_cost_usd`
    isn't set. Calls by people and batches aren't limited by it. None or `inf`: no limit."""
    ask_above_usd: float | None = Field(default=None, gt=0)
    """A model's call that will likely cost more, in US dollars, or whose cost can't be estimated, needs a person's
    approval. None: none does."""
    max_run_model_calls: int | None = Field(default=None, ge=1)
    """Maximum number of model calls per run, by children and judges together. None: no limit."""
    max_run_tokens: int | None = Field(default=None, gt=0)
    """Maximum number of tokens per run, for children and judges together. None: no limit."""
    run_timeout_seconds: float | None = Field(default=None, gt=0)
    """Maximum wall time per run in seconds, starting with its first call. None: no limit."""
    max_workspace_mb: float | None = Field(default=1_000, gt=0)
    """Maximum size in megabytes that a child may add to its workspace; more ends it. In a shared folder, what others
    add meanwhile counts too. None or `inf`: no limit."""
    max_output_tokens: int = Field(default=32_000, ge=256)
    """Maximum number of output tokens per model call of a child, including its reasoning; or the model's own maximum,
    if that is less."""
    effort: Effort | None = None
    """Reasoning effort of children, for models that have one: none, minimal, low, medium, high, xhigh or max. A model
    that doesn't know it gets the nearest. Not set: the provider's default."""
    call_timeout_seconds: float | None = Field(default=None, gt=0)
    """Timeout of one model call in seconds, without the wait for a rate limit. None: until the first text of the
    reply, 180 s, or the time that the call's output limit takes at 30 tokens per second if that is longer; then 120 s
    for each pause of a reply that is streamed."""
    gate: bool = True
    """Whether the gate can fail a task before it is judged. If false, the gate's reasons are only counted."""
    min_level: Level | None = None
    """The least level of a criterion that counts as met, in tasks that don't name one: `proven`, `seen`, `own_checks`,
    `said` or `trusted`. None: as much as the criterion asks for, and no command that needs other changes of the child
    than what it was asked for."""
    project_notes: bool = True
    """Whether a child reads the `AGENTS.md` or `CLAUDE.md` of the project that delegate runs in, if it works there. It
    is data from the project's owner, up to 32 kB of it."""
    strict_checks: bool = False
    """Whether to try each criterion before a child starts, and refuse those that cannot fail: commands in an empty
    folder and on a copy of the workspace, schemas and probes on reports that say nothing. Patterns, expressions and
    files are always tried. If false, a command that succeeds there adds a finding to the verdict."""
    sandbox: Sandbox = "auto"
    """`auto`: use bubblewrap if it works, or else Landlock. `require`: refuse commands if neither works. `off`: use
    neither."""
    commands: CommandPolicy = "sandboxed"
    """When to run commands written by a model: only in a sandbox (`sandboxed`), also without one if a person approves
    each (`ask`), always (`allow`) or never (`deny`)."""
    policy: Policy = Field(default_factory=Policy)
    """What a child may do alone, what a person has to approve, and what is refused (only in `delegate.toml` or Python).
    The default changes nothing."""
    network: NetworkPolicy = "off"
    """The network of commands in a sandbox. `off`: none, or a loopback of their own. `loopback`: always a loopback of
    their own; refuse commands where that can't be had. `open`: the machine's. A command without a sandbox has the
    machine's."""
    call_fields: tuple[CallField, ...] = ()
    """What the tool's definition offers to parents' models besides: `needs` (tasks of one call that build on others),
    `scratch` (texts that its children share) and `attempts` (several children for one task). A call may have these in
    any case."""
    merge_tool: bool = False
    """Whether parents' models get the tool `merge_delegation`, which changes the checkout, where a host or `delegate
    mcp` offers tools for handles."""
    fetch_hosts: tuple[Annotated[str, StringConstraints(pattern=r"^[^\s/@?#]{1,260}$")], ...] = ()
    """Hosts (`name` or `name:port`) that `fetch_url` may reach even if their address is private."""
    result_chars: int = Field(default=6_000, ge=500)
    """Maximum length of a child's report in the result. The whole report can be read by its handle."""
    home: _Folder = Field(default_factory=lambda: _default_home())
    """Folder for records and kept workspaces. Default: `delegate` in the XDG data folder."""
    keep_days: float | None = Field(default=30, gt=0)
    """Days after which records and their kept workspaces are removed. None or `inf`: never."""
    keep_mb: float | None = Field(default=1_000, gt=0)
    """Size of all records in megabytes above which the oldest are removed. None or `inf`: no limit."""
    csv_bom: bool | None = None
    """Whether a `.csv` of results begins with a byte order mark, without which Excel shows `é` as `Ã©`. None: on
    Windows."""
    endpoints: tuple[DeclaredEndpoint, ...] = ()
    """Additional model servers (only in `delegate.toml` or Python)."""
    models: tuple[Model, ...] = ()
    """Models that the catalog lacks, or entries that replace the catalog's (only in `delegate.toml` or Python)."""
    mcp_servers: dict[ServerName, McpServer] = Field(default_factory=dict)
    """MCP servers whose tools the built-in child may call, as `SERVER.TOOL`, by name (only in `delegate.toml` or
    Python). A `.mcp.json` in the working folder adds to them once it is trusted."""
    web_search: str = "off"
    """Who searches the web for the tool `search_web` of the built-in child. `off`: it has no such tool. `provider`: the
    provider of the child's model, at the provider's price per search, if it has one and the catalog has its price.
    `SERVER.TOOL`: this tool of an MCP server, which is then called `search_web`."""
    roles: Annotated[dict[RoleName, Role], Field(max_length=MAX_ROLES)] = Field(default_factory=dict)
    """Roles that tasks may name (only in files or Python): those of `agents/` beside your own `delegate.toml`, and
    trusted ones of the working folder."""

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, fields: Any, validate: Callable[[Any], Self], info: ValidationInfo) -> Self:
        """Raise ConfigError for the first error. The context is where the fields are from."""
        try:
            return validate(fields)
        except ValidationError as error:
            source, first = info.context or "the arguments", error.errors(include_url=False)[0]
            path = _format_path(first["loc"], fields)
            name = variable(path) if source == "the environment" else path
            hint = _hint_for_table(path, fields) or hint_for(first, _known_keys(first))
            raise ConfigError(f"{name} (in {source}): {hint}") from None

    @field_validator("web_search")
    @classmethod
    def _check_web_search(cls, value: str) -> str:
        server, _, tool = value.partition(".")
        if value not in ("off", "provider") and not (server and tool):
            raise ValueError(
                f"{value!r:.80} is none of off, provider, and SERVER.TOOL of an MCP server; use one of them"
            )
        return value


class SettingsOptions(TypedDict, total=False):
    """The fields of `Settings` as keywords, for type checkers and editors. Lists and tables may be plain ones."""

    tool_name: str
    model: str | None
    judge_model: str | None
    escalate: bool
    min_judge_accuracy: float | None
    judge_accuracy: Mapping[str, float | JudgeAccuracy | Mapping[str, Any]]
    max_false_pass: float | None
    judge_looks: int
    judge_turns: int
    judge_page_tokens: int
    criteria_per_call: int | None
    tier: Tier
    parent_tier: Tier | None
    max_tier: TierBound
    min_tier: TierBound
    max_concurrent: int
    max_children: int
    max_depth: int
    max_steps: int
    max_tokens: int | None
    timeout_seconds: float
    parent_answer_seconds: float
    max_cost_usd: float | None
    default_max_cost_usd: float | None
    ask_above_usd: float | None
    max_run_model_calls: int | None
    max_run_tokens: int | None
    run_timeout_seconds: float | None
    max_workspace_mb: float | None
    max_output_tokens: int
    effort: Effort | None
    call_timeout_seconds: float | None
    gate: bool
    min_level: Level | None
    project_notes: bool
    strict_checks: bool
    sandbox: Sandbox
    commands: CommandPolicy
    policy: Policy | Mapping[str, Any]
    network: NetworkPolicy
    call_fields: Sequence[CallField]
    merge_tool: bool
    fetch_hosts: Sequence[str]
    result_chars: int
    home: Path | str
    keep_days: float | None
    keep_mb: float | None
    csv_bom: bool | None
    endpoints: Sequence[DeclaredEndpoint | Mapping[str, Any]]
    models: Sequence[Model | Mapping[str, Any]]
    mcp_servers: Mapping[str, McpServer | Mapping[str, Any]]
    web_search: str
    roles: Mapping[str, Role | Mapping[str, Any]]


ONLY_IN_FILES = ("judge_accuracy", "endpoints", "models", "policy", "mcp_servers", "roles")
"""Structured fields, which can't be set by an environment variable."""


NO_FIELDS = frozenset({
    "DELEGATE_CONFIG", "DELEGATE_HOOK", "DELEGATE_MCP_TOKEN", "DELEGATE_PARENT", "DELEGATE_SERVE_TOKEN",
    "DELEGATE_FUZZ_SECONDS", "DELEGATE_HOSTS_TABLE",
})  # fmt: skip
"""Variables that are ours, but not of a field: of `load_settings`, the commands `hook`, `mcp` and `serve`,
`budget.nested`, and the tests."""
_KUBERNETES = re.compile(r"DELEGATE_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""What Kubernetes sets in every container beside a service called `delegate`."""


_BY_NAME = ("mcp_servers", "roles")
"""Fields whose entries have names, so that one file adds to another's."""


def load_settings(environ: Mapping[str, str] | None = None, **given: Unpack[SettingsOptions]) -> Settings:
    """Load the settings from all sources.

    Raises:
        ConfigError: A value is invalid, or there is no such setting. The message names the source, the field and how
            to fix it.
    """
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    for file in trust.settings_files(environ):
        fields = parse(file)
        if wider := widening(file, fields, Settings(**merged)):
            raise trust.refusal(file, wider)
        tables = {name: {**merged.get(name, {}), **fields[name]} for name in _BY_NAME if name in fields}
        merged |= {**fields, **tables}
    for source, fields in (("the environment", _from_environ(environ)), ("the arguments", given)):
        Settings.model_validate(fields, context=source)
        merged |= fields
    settings = Settings(**merged)
    _refuse_unknown_variables(environ, settings)
    return settings


def override(settings: Settings, **given: Unpack[SettingsOptions]) -> Settings:
    """Return the settings with some of them replaced.

    Raises:
        ConfigError: As `load_settings`.
    """
    if not isinstance(cast("object", settings), Settings):
        problem = f"settings (in the arguments): {settings!r:.60} is not a Settings"
        raise ConfigError(f"{problem}; name each setting, such as Delegator(model=…)")
    fields: dict[str, Any] = {name: getattr(settings, name) for name in settings.model_fields_set}
    fields.update(given)
    return Settings(**fields)


def parse(file: trust.SettingsFile) -> dict[str, Any]:
    """The fields that a settings file sets.

    Raises:
        ConfigError: It isn't TOML, or no `.mcp.json` or role, or a value is invalid.
    """
    what, hint = "TOML", "; correct it there"
    try:
        text = file.data.decode("utf-8-sig")
        if file.path.name == trust.MCP_NAME:
            what, fields = "a list of MCP servers", {"mcp_servers": read_mcp_json(text)}
        elif trust.is_role(file.path):
            what, hint = "a role", ""  # what is wrong with one says how to correct it
            fields = {"roles": dict([read_role(file.path, text)])}
        else:
            fields = cast("dict[str, Any]", loads(text, "toml"))
    except UnicodeDecodeError:
        raise ConfigError(f"{file.name} can't be read: it is not UTF-8; save it as UTF-8") from None
    except ValueError as error:
        raise ConfigError(f"{file.name} can't be read as {what}: {error}{hint}") from error
    Settings.model_validate(fields, context=file.name)
    return fields


def widening(file: trust.SettingsFile, fields: Mapping[str, Any], allowed: Settings) -> list[str]:
    """The fields of an untrusted file that reach further than `allowed`, the settings without this file."""
    if file.trusted:
        return []
    wanted = Settings(**fields)
    if allowed.max_cost_usd is None:  # then calls by models have another limit, which a file may not raise
        allowed = allowed.model_copy(update={"max_cost_usd": allowed.default_max_cost_usd})
    return [name for name in fields if trust.widens(name, getattr(wanted, name), getattr(allowed, name))]


def variable(field: str) -> str:
    """Return the name of a field's environment variable."""
    return f"{_PREFIX}{field.upper()}"


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, info in Settings.model_fields.items():
        if not (text := environ.get(variable(name), "").strip()):
            continue
        if name in ONLY_IN_FILES:
            raise ConfigError(f"{variable(name)}: {name} can't be set by a variable; write it in delegate.toml")
        is_list = get_origin(info.annotation) is tuple
        fields[name] = tuple(part.strip() for part in text.split(",")) if is_list else text
    return fields


def _refuse_unknown_variables(environ: Mapping[str, str], settings: Settings) -> None:
    """Raise ConfigError for a variable that looks like a setting and is none, because it would have no effect."""
    known = {variable(name) for name in Settings.model_fields} | NO_FIELDS
    known |= {endpoint.key_env for endpoint in settings.endpoints if endpoint.key_env}
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name in known or _KUBERNETES.fullmatch(name) or not environ[name].strip():
            continue
        meant = most_similar(name.removeprefix(_PREFIX), Settings.model_fields)
        guess = f"did you mean {variable(meant)}? If not, unset it" if meant else "unset it, or give it another name"
        raise ConfigError(f"{name} (in the environment): there is no such setting; {guess}")


def _hint_for_table(name: str, fields: Mapping[str, Any]) -> str | None:
    """What to do about a table around the settings, as in other tools' files; None if it isn't one."""
    if name in Settings.model_fields or not isinstance(table := fields.get(name), dict):
        return None
    if not any(key in Settings.model_fields for key in cast("dict[str, Any]", table)):
        return None
    return f"settings aren't in a table; remove the line [{name}]"


_TABLES: Mapping[tuple[str, ...], type[Value]] = {
    (): Settings,
    ("policy",): Policy,
    ("mcp_servers", "*"): McpServer,
    ("roles", "*"): Role,
    ("roles", "*", "policy"): Policy,
    ("policy", "rules"): Rule,
    ("endpoints",): DeclaredEndpoint,
    ("endpoints", "models"): DeclaredModel,
    ("endpoints", "models", "prices"): Price,
    ("models",): Model,
    ("models", "prices"): Price,
    ("models", "judge_accuracy"): JudgeAccuracy,
}
"""The model of each table, by the keys that lead to it."""


def _known_keys(error: ErrorDetails) -> tuple[str, ...]:
    """Return the valid keys of the table with the error."""
    keys = tuple(part for part in error["loc"][:-1] if isinstance(part, str))
    keys = (keys[0], "*", *keys[2:]) if keys[:1] in (("mcp_servers",), ("roles",)) and len(keys) > 1 else keys
    return tuple(_TABLES[keys].model_fields) if keys in _TABLES else ()


def _format_path(path: tuple[int | str, ...], fields: Any) -> str:
    """Format the path to a field, with tables by their own names: `models[gpt-6-luna].prices[0].input`."""
    text, value = "", fields
    for part in path:
        value = _item(value, part)
        name = _item(value, "id") or _item(value, "name") or part
        text += f".{part}" if isinstance(part, str) else f"[{name}]"
    return text.removeprefix(".")


def _item(value: Any, key: int | str) -> Any:
    try:
        return value[key]
    except (LookupError, TypeError):
        return None


def _default_home() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(os.path.expanduser(data), "delegate")
