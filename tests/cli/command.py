"""Runs the real command in a separate process, with the environment of the test."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.support import warm
from tests.support.model_server import Call, ModelServer, Reply

COMMAND = [sys.executable, "-m", "delegate"]
"""For tests of start-up, of signals and of what the interpreter does."""


def delegate(*arguments: str, stdin: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `delegate …` to its end and assert that it shows no traceback.

    Its stdout is a pipe, and COLUMNS is not set unless it is passed in `environment`.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [*warm.delegate(), *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,  # of a test that hangs; trying all attacks takes long where much else runs
        env={**inherited, **environment},
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def openai_at(server: ModelServer) -> dict[str, str]:
    """The environment variables that direct calls of OpenAI models to `server`."""
    return {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "sk-dummy-1234"}


def worker(report: str = "I wrote `note.md`, which greets the reader.", judged: Sequence[str] = ("met",)) -> Any:
    """A script in which every child writes note.md and the judge quotes the note for its criteria c1, c2, …"""

    def script(call: Call) -> Reply:
        if call.wants_json:
            answers = [
                {"id": f"c{n}", "evidence": "hello reader", "reason": "It is there.", "verdict": verdict}
                for n, verdict in enumerate(judged, start=1)
            ]
            return Reply(json.dumps({"answers": answers}), input_tokens=900, output_tokens=60)
        if not call.tool_results:
            return Reply(tool_calls=(("write_file", {"path": "note.md", "content": "hello reader\n"}),))
        return Reply(report, input_tokens=400, output_tokens=30)

    return script


def output_of(terminal: int) -> str:
    """All output to the terminal until its other side is closed."""
    found = bytearray()
    try:
        while chunk := os.read(terminal, 65_536):
            found += chunk
    except OSError:  # raised on Linux when the other side is closed
        pass
    return found.decode(errors="replace")
