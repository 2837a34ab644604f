"""Stands between a client and the server and writes down every message with its time: `tap.py LOG COMMAND …`."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO


def main() -> None:
    """Start the command, and pass its messages on until it ends."""
    log_path, *command = sys.argv[1:]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: server.send_signal(number))
    with open(log_path, "a", encoding="utf-8", buffering=1) as log:
        _write(log, "start", None)
        threading.Thread(target=_pass_on, args=(sys.stdin.buffer, server.stdin, log, "client"), daemon=True).start()
        _pass_on(server.stdout, sys.stdout.buffer, log, "server")
        _write(log, "end", server.wait())


def _pass_on(source: IO[bytes], target: IO[bytes], log: IO[str], sender: str) -> None:
    try:
        for line in source:
            _write(log, sender, line.decode("utf-8", "replace"))
            target.write(line)
            target.flush()
    except (OSError, ValueError):
        pass  # the receiver has left
    finally:
        if sender == "client":
            _write(log, "client closed", None)
            target.close()


def _write(log: IO[str], sender: str, message: object) -> None:
    log.write(json.dumps({"at": time.time(), "server": os.getpid(), "from": sender, "message": message}) + "\n")


if __name__ == "__main__":
    main()
