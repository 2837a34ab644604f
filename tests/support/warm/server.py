"""Imports everything once, then forks for every program that a client asks for.

Run as `server.py FD` with a listening socket, by `tests.support.warm`. It ends when its stdin is closed.
"""

import atexit
import contextlib
import gc
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import string
import sys
import threading
import traceback
import warnings
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

sys.path[0] = os.getcwd()
IMPORTED = (
    "aiohttp", "anthropic", "google.genai", "google.genai.types", "google.genai._api_client", "jsonschema", "openai",
    "openai.types.chat", "openai.resources.chat", "openai.resources.responses", "anthropic.resources.messages",
    "quickjs_ng", "regex",
    "rich.console", "rich.table", "rich.tree", "rich.progress", "rich.live", "rich._unicode_data.unicode17-0-0",
    "typer", "yaml",
    "httpcore", "httpcore2", "h11", "anyio._backends._asyncio", "typer._click.decorators", "typer._adapters",
    "ctypes", "getpass", "termios",
)  # fmt: skip
"""Loaded before any program is, like all of delegate but its hosts. What isn't installed is left to the program."""


@dataclass(frozen=True)
class Request:
    """A program to run, with its streams as descriptors."""

    program: str
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    streams: list[int]


def serve(listening: socket.socket) -> Request:
    """Fork for each request until stdin is closed, and return the request in the forked process."""
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ, None)
    waiting.register(listening, selectors.EVENT_READ, None)
    while True:
        for key, _ in waiting.select():
            if key.fileobj == 0:
                os._exit(0)
            elif key.fileobj is listening:
                client = listening.accept()[0]
                request = receive(client)
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    client.close()
                    listening.close()
                    return request
                for stream in request.streams:
                    os.close(stream)
                ended = os.pidfd_open(pid)
                waiting.register(client, selectors.EVENT_READ, (pid, ended, client))
                waiting.register(ended, selectors.EVENT_READ, (pid, ended, client))
            elif key.data is not None:
                attend(waiting, key)


def attend(waiting: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Send the exit status of a program that has ended; forward a client's signals; kill what lost its client."""
    pid, ended, client = key.data
    if key.fileobj is client and (numbers := client.recv(16)):
        for number in numbers:
            os.kill(pid, number)
        return
    if key.fileobj is client:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    waiting.unregister(client)
    waiting.unregister(ended)
    os.close(ended)
    with contextlib.suppress(OSError):  # the client was killed
        client.send(status.to_bytes(4, "big"))
    client.close()


def receive(client: socket.socket) -> Request:
    length, streams, _, _ = socket.recv_fds(client, 4, 3)
    left, body = int.from_bytes(length, "big"), b""
    while len(body) < left:
        body += client.recv(left - len(body))
    return Request(*marshal.loads(body), streams=streams)


def warm_up() -> None:
    """Import everything, parse the catalog, and build the models that pydantic would build on their first use."""
    package = import_module("delegate")
    ours = [name for _, name, _ in pkgutil.walk_packages(package.__path__, "delegate.") if ".hosts" not in name]
    for name in (*IMPORTED, *ours):
        with contextlib.suppress(ImportError):
            import_module(name)
    from pydantic import BaseModel

    waiting: list[type[BaseModel]] = [BaseModel]
    while waiting:
        model = waiting.pop()
        waiting += model.__subclasses__()
        if model.__module__.startswith("delegate.") and not model.__pydantic_complete__:
            model.model_rebuild()
    import_module("delegate.models.catalog").Catalog.shipped()
    import_module("delegate._util.redaction").Redactor({}).text(f"{string.printable} " * 2)  # compiles all patterns
    import_module("tests.support.unsynced").leave_unsynced()
    gc.freeze()


def become(request: Request) -> None:
    """Take over the streams, the folder and the environment of the client."""
    for target, stream in enumerate(request.streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writing(1, "strict")
    sys.stderr = sys.__stderr__ = _writing(2, "backslashreplace")
    signal.set_wakeup_fd(-1)
    sys.modules["__main__"] = ModuleType("__main__")


def _writing(fd: int, errors: str) -> Any:
    buffering = 1 if fd == 2 or os.isatty(fd) else -1
    stream = open(fd, "w", buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
    if "PYTHONUNBUFFERED" in os.environ:
        stream.reconfigure(write_through=True)
    return stream


def run(request: Request) -> None:
    """Run the program as `python` or the `delegate` script would."""
    search = [path for path in request.env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = search
    if request.arguments[:1] == ["-Xdev"]:
        warnings.simplefilter("default")
        os.environ["PYTHONASYNCIODEBUG"] = "1"
    sys.path.append(SOURCES)
    for folder in search:
        if os.path.isfile(hook := os.path.join(folder, "sitecustomize.py")):
            runpy.run_path(hook)
    program, arguments = request.program, request.arguments[request.arguments[:1] == ["-Xdev"] :]
    if program == "delegate":
        from delegate.cli import main

        sys.argv = ["delegate", *arguments]
        main()
    elif arguments[0] == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = arguments[1:]
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]  # what `python -m` calls
    else:
        code, name = (arguments[1], "<string>") if arguments[0] == "-c" else (_text(arguments[0]), arguments[0])
        sys.path.insert(0, "" if arguments[0] == "-c" else os.path.dirname(os.path.abspath(name)))
        sys.argv = ["-c", *arguments[2:]] if arguments[0] == "-c" else arguments
        module = sys.modules["__main__"]
        if name != "<string>":
            module.__file__ = os.path.abspath(name)
        exec(compile(code, name, "exec"), module.__dict__)


def leave(code: Any) -> None:
    """End the process as the interpreter does, except that it doesn't take its modules apart, which takes 70 ms."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit((code or 0) & 0xFF)


def _below(error: BaseException) -> Any:
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        frame = frame.tb_next
    return frame


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    SOURCES = sys.path[0]
    gc.disable()
    warm_up()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        request = serve(listening)
        listening.detach()
    become(request)
    try:
        run(request)
        if request.arguments[:1] == ["-Xdev"]:
            sys.exit()  # through the whole of the interpreter's end, which has warnings of its own
    except SystemExit as end:
        if request.arguments[:1] == ["-Xdev"]:
            raise
        leave(end.code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    except BaseException as error:  # as the interpreter does, but without the lines of this file
        traceback.print_exception(error.with_traceback(_below(error)))
        leave(1)
    leave(0)
