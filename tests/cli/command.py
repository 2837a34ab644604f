"""The real command in a process of its own, with the environment of the test around it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.model_server import Call, ModelServer, Reply

COMMAND = [sys.executable, "-m", "delegate"]


def delegate(*arguments: str, stdin: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `delegate …` to its end. Whatever it is for, it must never show a traceback.

    Its stdout is a pipe of no width, whatever the width of the terminal that the tests are run in.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        env={**inherited, **environment},
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def openai_at(server: ModelServer) -> dict[str, str]:
    """The environment that sends OpenAI's models to `server`."""
    return {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "sk-dummy-1234"}


def worker(report: str = "I wrote `note.md`, which greets the reader.", judged: Sequence[str] = ("met",)) -> Any:
    """A script: every child writes note.md and reports; the judge quotes the note for its criteria c1, c2, …"""

    def script(call: Call) -> Reply:
        if call.wants_json:
            answers = [
                {"id": f"c{n}", "evidence": "hello reader", "reason": "It stands there.", "verdict": verdict}
                for n, verdict in enumerate(judged, start=1)
            ]
            return Reply(json.dumps({"answers": answers}), input_tokens=900, output_tokens=60)
        if not call.tool_results:
            return Reply(tool_calls=(("write_file", {"path": "note.md", "content": "hello reader\n"}),))
        return Reply(report, input_tokens=400, output_tokens=30)

    return script
