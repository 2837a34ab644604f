"""What the options of commands that serve over HTTP must be, and the packages that such commands need."""

import ipaddress
import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager

import typer

from delegate.cli import PROGRAM
from delegate.types.errors import ConfigError

_TOKEN_CHARS = 16


def strong_token(token: str, where: str) -> str:
    """The token, if it can't be guessed. Raises BadParameter, which names `where` it was given."""
    if len(token) < _TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise typer.BadParameter(f"use a token of at least {_TOKEN_CHARS} printable ASCII characters", param_hint=where)
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def log(text: str) -> None:
    """Print a line on stderr at once."""
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


@contextmanager
def needs(packages: Collection[str], what: str, *, extra: str) -> Generator[None]:
    """Raise ConfigError, which says `what` is needed, if one of the packages turns out to be missing in the block."""
    try:
        yield
    except ModuleNotFoundError as error:  # includes PackageNotFoundError
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise ConfigError(f"{what}: run `pip install '.[{extra}]'` in a clone of delegate") from None
