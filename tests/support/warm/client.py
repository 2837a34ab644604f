"""What `python` and `delegate` do: hand their arguments, environment and streams to the forking process, and wait.

`_Warm` makes programs of it, with a call of `main` at the end. It starts in 10 ms, for which it imports what is in the
interpreter rather than `signal`, `socket` and `json`.
"""

# pyright: basic, reportAttributeAccessIssue=false, reportMissingModuleSource=false
import _signal  # pyright: ignore[reportMissingImports]
import _socket
import marshal
import os
import sys

FORWARDED = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1)
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
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(address)

    def forward(number: int, frame: object) -> None:
        connection.send(bytes([number]))

    for number in FORWARDED:
        _signal.signal(number, forward)
    body = marshal.dumps((program, arguments, dict(os.environ), os.getcwd()))
    streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    connection.sendmsg([len(body).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    connection.sendall(body)
    for fd in (0, 1, 2):  # so that who reads them sees their end when the program closes them
        os.close(fd)
    status = int.from_bytes(connection.recv(4, _socket.MSG_WAITALL), "big")
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != _signal.SIGKILL:
            _signal.signal(os.WTERMSIG(status), _signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))
