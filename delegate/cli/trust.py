"""`delegate trust`: lets a settings file of a folder count in full, as long as it stays as it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from delegate.trust import SettingsFile

_PATH = typer.Argument(help="The settings file, or its folder.")
_LIST = typer.Option("--list", help="List the trusted files instead.")
_REVOKE = typer.Option("--revoke", help="End the trust in this file instead.")


def trust(
    path: Annotated[Path, _PATH] = Path("delegate.toml"),
    listed: Annotated[bool, _LIST] = False,
    revoke: Annotated[bool, _REVOKE] = False,
) -> None:
    """Trust the delegate.toml of a folder, so that all of it counts.

    Without trust, such a file may only narrow what your own settings allow. It
    could be a repository's: read it first. Any change of the file ends the
    trust.
    """
    from delegate import trust as trusting
    from delegate.errors import ConfigError

    if listed:
        for file in sorted(trusting.trusted()):
            print(f"{file}  {_state(file)}")
    elif revoke:
        if not trusting.revoke(path):
            raise ConfigError(f"{path} isn't trusted; `delegate trust --list` shows what is")
        print(f"{path} is no longer trusted")
    else:
        file = trusting.read(path)
        print(_reach(file))
        trusting.trust(file)


def _state(file: Path) -> str:
    """Whether a file that was trusted still is."""
    from delegate import trust
    from delegate.errors import ConfigError

    try:
        return "trusted" if trust.read(file).trusted else "changed since, so no longer trusted"
    except ConfigError:
        return "missing"


def _reach(file: "SettingsFile") -> str:
    """What a file sets, and which variables it sends where. Raises ConfigError if it is invalid."""
    import shlex

    from delegate._util.fencing import clean
    from delegate.settings import Settings, parse
    from delegate.trust import is_model_key

    fields = parse(file)
    lines = [f"trusted as it is now: {file.path}", f"it sets: {', '.join(fields) or 'nothing'}"]
    for endpoint in Settings(**fields).endpoints:
        what = f"${endpoint.key_env}" if endpoint.key_env else "no key"
        if endpoint.key_command:
            what = f"what `{shlex.join(endpoint.key_command)}` prints, which is run outside of any sandbox,"
        warning = "" if not endpoint.key_env or is_model_key(endpoint.key_env) else "; that is not a model key's name"
        lines.append(f"model calls and {what} go to {endpoint.base_url}{warning}")
    return clean("\n".join(lines)).text
