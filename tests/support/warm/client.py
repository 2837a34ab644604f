"""What `python` and `delegate` do: hand their arguments, environment and streams to the forking process, and wait.

`_Warm` makes programs of it, with a call of `main` at the end. It imports little, to start in 10 ms.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
HEEDED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""The variables of Python's that don't need an interpreter of their own."""


def needs_own_interpreter(program: str, arguments: list[str]) -> bool:
    if any(name.startswith("PYTHON") and name not in HEEDED for name in os.environ):
        return True
    if any(name.startswith(("LC_", "LANG")) and "UTF-8" not in value for name, value in os.environ.items()):
        return True
    if program == "delegate":
        return False
    return not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-m", "-c", "-Xdev"))


def main(python: str, address: str, program: str) -> None:
    """Run the program, `python` or `delegate`, in a process of the one that listens at `address`, or by `python`."""
    arguments = sys.argv[1:]
    if needs_own_interpreter(program, arguments):
        os.execv(python, [python, *(["-m", "delegate"] if program == "delegate" else []), *arguments])
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)

    def forward(number: int, frame: FrameType | None) -> None:
        connection.send(bytes([number]))

    for number in FORWARDED:
        signal.signal(number, forward)
    request = {"program": program, "arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd()}
    body = json.dumps(request).encode("utf-8", "surrogateescape")
    socket.send_fds(connection, [len(body).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(body)
    for fd in (0, 1, 2):  # so that who reads them sees their end when the program closes them
        os.close(fd)
    status = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))
