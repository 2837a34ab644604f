"""`delegate view`: serves the list of runs and their pages to a browser on this machine."""

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from delegate.pages.server import serve
from delegate.policy.settings import load_settings


def view(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, metavar="N", help="The port to listen on; 0 is any free one.")
    ] = 0,
) -> None:
    """Show all runs and their pages in a browser, and follow those that are running.

    It prints the address to open, and serves it until Ctrl-C. It listens on
    127.0.0.1 only, and only the printed address works: it contains a token
    that is new each time. Nothing can be changed there.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(load_settings().home, port=port, on_ready=_announce))


def _announce(address: str) -> None:
    print(f"{address}\nPress Ctrl-C to stop.", flush=True)
