"""Put on PYTHONPATH by tests that run examples in processes of their own: these may reach this machine and no other."""

import ipaddress
import sys


def _refuse_the_world(event: str, args: tuple[object, ...]) -> None:
    if event != "socket.connect" or not isinstance(address := args[1], tuple):
        return
    host = str(address[0]).split("%")[0]  # pyright: ignore[reportUnknownArgumentType]
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise RuntimeError(f"an example tried to connect to {host}")


sys.addaudithook(_refuse_the_world)
