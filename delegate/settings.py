"""What an operator decides: keyword arguments, then `DELEGATE_…` variables, `delegate.toml`, and defaults.

`delegate.toml` is read from the working directory, or from the path in `DELEGATE_CONFIG`. Its keys are the fields of
`Settings`; a variable's name is `DELEGATE_` and the field in capitals.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from delegate.errors import ConfigError
from delegate.models.catalog import Accuracy, Model, Price, hint_for
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.types import Text, Tier, TierBound, Value

Sandbox = Literal["auto", "require", "off"]
CommandPolicy = Literal["sandboxed", "allow", "deny"]


class Settings(Value):
    """Everything an operator can set. A parent model may ask for less than these limits, never for more."""

    tool_name: Text = "delegate_task"
    """The tool's name at the host; some hosts have a `delegate_task` of their own."""
    model: Text | None = None
    """The model that children run on, whatever tier is asked for. By default the cheapest of the task's tier."""
    judge_model: Text | None = None
    """The only model that may judge. By default the cheapest eligible one."""
    escalate: bool = False
    """Ask one judge of another family what the first can't tell or prove: at most once per verdict, at its cost."""
    min_judge_accuracy: float | None = Field(default=None, ge=0, le=1)
    """Only models of at least this measured accuracy may judge; None asks for no measurement."""
    judge_accuracy: dict[str, Accuracy] = Field(default_factory=dict)
    """Measured accuracy of judges by model, in place of the catalog's (only in `delegate.toml` or Python)."""
    tier: Tier = "standard"
    """The tier of a task that names none, or the nearest one that its parent may use."""
    parent_tier: Tier | None = None
    """The parent's own tier, where the host doesn't say; None: unknown, and `max_tier` alone limits its children."""
    max_tier: TierBound = "parent"
    """No child runs above this: a tier, the `parent`'s own, or one or two below it (`parent-1`, `parent-2`)."""
    min_tier: TierBound = "fast"
    """No child runs below this, unless its parent does: a tier, `parent`, `parent-1` or `parent-2`."""
    max_concurrent: int = Field(default=3, ge=1)
    """Children at work at the same time, per run."""
    max_children: int = Field(default=12, ge=0)
    """Children that models may ask for, per run, those of children included."""
    max_depth: int = Field(default=1, ge=1, le=4)
    """How deep delegation may go: 1, and a child can't delegate in its turn."""
    max_steps: int = Field(default=30, ge=1)
    """Model calls per child."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens per child and all below it, read and written, over all model calls; None means no limit."""
    timeout_seconds: float = Field(default=600, gt=0)
    """Wall time per child."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """Spend per run, children and judges together; None means no limit."""
    max_run_model_calls: int | None = Field(default=None, ge=1)
    """Model calls per run, children and judges together; None means no limit."""
    max_run_tokens: int | None = Field(default=None, gt=0)
    """Tokens per run, children and judges together; None means no limit."""
    run_timeout_seconds: float | None = Field(default=None, gt=0)
    """Wall time per run, from its first call on; None means no limit."""
    max_output_tokens: int = Field(default=8_192, ge=256)
    """Tokens that one model call of a child may write."""
    call_timeout_seconds: float = Field(default=180, gt=0)
    """Wall time of one model call, the SDK's own retries included, and waits for a rate limit not."""
    gate: bool = True
    """Whether the gate's "no" ends the judging. Switched off, it still looks, and the report counts its reasons."""
    strict_checks: bool = False
    """Whether shell criteria that cannot fail are refused; otherwise they are a finding on the verdict."""
    sandbox: Sandbox = "auto"
    """`auto`: bubblewrap where it works. `require`: refuse commands where it doesn't. `off`: never."""
    commands: CommandPolicy = "sandboxed"
    """Commands that a model wrote: only inside a sandbox, always (`allow`), or never (`deny`)."""
    fetch_hosts: tuple[str, ...] = ()
    """Hosts (`name` or `name:port`) that `fetch_url` may reach although their address is private."""
    result_chars: int = Field(default=6_000, ge=500)
    """How much of a child's report the parent reads; the whole stays readable by handle."""
    home: Path = Field(default_factory=lambda: _default_home())
    """Where records and kept workspaces lie. Default: `delegate` in the XDG data folder."""
    keep_days: float | None = Field(default=30, gt=0)
    """Days after which records are removed, and the workspaces kept for them; None, or `inf`, keeps them for ever."""
    keep_mb: float | None = Field(default=1_000, gt=0)
    """Megabytes of records, beyond which the oldest are removed, as by age; None, or `inf`, means no limit."""
    endpoints: tuple[DeclaredEndpoint, ...] = ()
    """Model servers of your own (only in `delegate.toml` or Python)."""
    models: tuple[Model, ...] = ()
    """Models that the catalog lacks, or has otherwise, in its own form (only in `delegate.toml` or Python)."""


ONLY_IN_FILES = ("judge_accuracy", "endpoints", "models")
"""Fields with a structure of their own, for which a variable has no room."""


def load_settings(environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings in force. Raises ConfigError naming the source, the field and the mend."""
    environ = os.environ if environ is None else environ
    path = Path(environ.get("DELEGATE_CONFIG") or "delegate.toml")
    sources = {str(path): _from_toml(path, "DELEGATE_CONFIG" in environ), "the environment": _from_environ(environ)}
    merged: dict[str, Any] = {}
    for source, fields in (*sources.items(), ("the arguments", given)):
        _check(source, fields)
        merged |= fields
    return Settings(**merged)


def variable(field: str) -> str:
    """The environment variable of a field."""
    return f"DELEGATE_{field.upper()}"


def _from_toml(path: Path, named: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise ConfigError(f"DELEGATE_CONFIG names {path}, which does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} can't be read as TOML: {error}") from error


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, info in Settings.model_fields.items():
        if not (text := environ.get(variable(name), "").strip()):
            continue
        if name in ONLY_IN_FILES:
            raise ConfigError(f"{variable(name)}: {name} can't be set by a variable; write it in delegate.toml")
        is_list = info.annotation == tuple[str, ...]
        fields[name] = tuple(part.strip() for part in text.split(",")) if is_list else text
    return fields


def _check(source: str, fields: Mapping[str, Any]) -> None:
    try:
        Settings(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = _place(first["loc"], fields)
        name = variable(place) if source == "the environment" else place
        raise ConfigError(f"{name} (in {source}): {hint_for(first, _known(first))}") from None


_TABLES: Mapping[tuple[str, ...], type[Value]] = {
    (): Settings,
    ("endpoints",): DeclaredEndpoint,
    ("endpoints", "models"): DeclaredModel,
    ("endpoints", "models", "prices"): Price,
    ("models",): Model,
    ("models", "prices"): Price,
}
"""What stands in each list of tables, by the keys that lead there."""


def _known(error: ErrorDetails) -> tuple[str, ...]:
    """The keys that the table with the mistake may have."""
    keys = tuple(part for part in error["loc"][:-1] if isinstance(part, str))
    return tuple(_TABLES[keys].model_fields) if keys in _TABLES else ()


def _place(path: tuple[int | str, ...], fields: Any) -> str:
    """The path to a field as it is written, with tables by their own names: `models[gpt-6-luna].prices[0].input`."""
    text, here = "", fields
    for part in path:
        here = _inside(here, part)
        own_name = _inside(here, "id") or _inside(here, "name") or part
        text += f".{part}" if isinstance(part, str) else f"[{own_name}]"
    return text.removeprefix(".")


def _inside(here: Any, part: int | str) -> Any:
    try:
        return here[part]
    except (LookupError, TypeError):
        return None


def _default_home() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "delegate"
