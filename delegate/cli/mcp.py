"""`delegate mcp`: the tool for every host that speaks MCP."""

import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegate.cli import PROGRAM

if TYPE_CHECKING:
    from delegate._util.cancellation import Cancellation
    from delegate.delegator import Delegator
    from delegate.ports import EventSink

Serving = Callable[["Delegator", "Cancellation"], Coroutine[Any, Any, None]]
"""Serves with this delegator until that cancellation."""

TOKEN = "DELEGATE_MCP_TOKEN"  # noqa: S105 - the variable's name
_SDK = ("mcp", "starlette", "uvicorn")
"""The MCP SDK, and what comes with it."""
_TOKEN_CHARS = 16
_HttpOption = typer.Option("--http", help="Serve over HTTP, in place of stdin and stdout.")
_HostOption = typer.Option(help="With --http: the address to listen on.")
_PortOption = typer.Option(min=0, max=65_535, help="With --http: the port; 0 means any free one.")
_TokenOption = typer.Option(
    envvar=TOKEN, help="With --http: what clients send as `Authorization: Bearer …`. By default a new one is made."
)
_ReachableOption = typer.Option(
    "--reachable-as",
    metavar="NAME",
    help="With --http: lets other machines in, under this name or address of yours; may be repeated.",
)


def mcp(
    http: Annotated[bool, _HttpOption] = False,
    host: Annotated[str, _HostOption] = "127.0.0.1",
    port: Annotated[int, _PortOption] = 8765,
    token: Annotated[str | None, _TokenOption] = None,
    reachable_as: Annotated[list[str] | None, _ReachableOption] = None,
) -> None:
    """Serve delegate_task to a host that speaks MCP, such as an editor or a coding agent.

    The host starts this command and speaks with it on stdin and stdout. With --http it is started by you, listens at
    /mcp of http://127.0.0.1:8765, and wants a bearer token: set DELEGATE_MCP_TOKEN, or take the one that is printed
    on stderr.

    Ctrl-C, SIGTERM, and on stdin its end, stop all children and then the server.
    """
    names = reachable_as or []
    if http:
        _refuse_unmeant(host, names)
        _refuse_guessable(token)
        _serve(_over_http(_adapter(), host, port, token, names))
    else:
        _serve(_over_stdio(_adapter()))


def _serve(serving: Serving) -> None:
    """Serve until the client leaves, or the first Ctrl-C or SIGTERM."""
    from delegate.cli.work import stoppable
    from delegate.delegator import Delegator

    delegator = Delegator()

    def call(*, on_event: "EventSink | None", cancellation: "Cancellation") -> Coroutine[Any, Any, None]:
        return serving(delegator, cancellation)

    stoppable(delegator, call, display=lambda titles: nullcontext())


def _over_stdio(adapter: Any) -> Serving:
    async def serve(delegator: "Delegator", cancellation: "Cancellation") -> None:
        if sys.stdin.isatty():
            _say("speaks MCP on stdin and stdout; a host starts it. `delegate mcp --help` says more")
        with suppress(TimeoutError):
            async with cancellation.deadline():
                await adapter.serve_stdio(adapter.server(delegator))

    return serve


def _over_http(adapter: Any, host: str, port: int, token: str | None, names: list[str]) -> Serving:
    import secrets

    async def serve(delegator: "Delegator", cancellation: "Cancellation") -> None:
        listener = adapter.listen(host, port)
        made = token or secrets.token_urlsafe(32)
        shown = f"[{host}]" if ":" in host else host
        _say(f"serving MCP at http://{shown}:{listener.getsockname()[1]}{adapter.PATH}")
        if token is None:
            _say(f"clients send `Authorization: Bearer {made}`, until {TOKEN} says another")
        known_as = (*adapter.LOOPBACK, *names)
        server = adapter.server(delegator)
        await adapter.serve_http(server, listener, token=made, names=known_as, cancellation=cancellation)

    return serve


def _adapter() -> Any:
    """The host adapter; its types are known only where the SDK is installed. Raises ConfigError where it isn't."""
    from importlib import import_module

    from delegate.errors import ConfigError

    try:
        return import_module("delegate.hosts.mcp")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SDK:
            raise
        raise ConfigError("`delegate mcp` needs the MCP SDK: pip install 'delegate-task[mcp]'") from None


def _refuse_unmeant(host: str, names: list[str]) -> None:
    if not names and not _is_loopback(host):
        raise typer.BadParameter(
            f"other machines could reach {host}, and children run at your cost; say under which name they may, "
            "with --reachable-as, or listen on 127.0.0.1",
            param_hint="--host",
        )


def _refuse_guessable(token: str | None) -> None:
    if token is not None and (len(token) < _TOKEN_CHARS or not token.isascii() or not token.isprintable()):
        message = f"a token has {_TOKEN_CHARS} or more printable ASCII characters"
        raise typer.BadParameter(message, param_hint=f"--token ({TOKEN})")


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _say(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
