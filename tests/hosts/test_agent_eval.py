"""The client of agent-eval scores texts with `delegate rpc`, which it starts itself."""

import json
from pathlib import Path

import pytest

pytest.importorskip("agent_eval_rpc", reason="the client of agent-eval isn't installed")

from agent_eval_rpc import Client, Rubric, RubricDimension
from agent_eval_rpc.errors import AgentEvalError, RubricNotFoundError

from tests.cli.command import COMMAND, openai_at
from tests.support.model_server import Call, ModelServer, Reply

TEXT = "A river walks into a bar."
RUBRIC = Rubric(
    name="style",
    description="Whether it is well written.",
    systemPrompt="You review voices.",
    dimensions=[RubricDimension(id="clear", description="It is clear.", weight=1)],
)


def scores(call: Call) -> Reply:
    quote = "walks into a bar" if TEXT in call.raw.decode() else "not there"
    score = {"id": "clear", "evidence": quote, "reason": "plain", "score": 1}
    return Reply(json.dumps({"scores": [score], "failure_modes": [], "wins": []}))


def test_its_client_gets_scores_rubrics_and_errors(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path("agent-eval").resolve()
    program.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    with ModelServer(scores) as server:
        for name, value in openai_at(server).items():
            monkeypatch.setenv(name, value)
        client = Client(cli_path=str(program), transport="subprocess")
        scored = client.judge(content=TEXT, rubric=RUBRIC)
        assert (scored.composite, scored.dimensions) == (1.0, {"clear": 1.0})
        assert {one.name for one in client.list_rubrics().rubrics} == {"code_change", "research_report"}
        with pytest.raises(RubricNotFoundError):
            client.judge(content=TEXT, rubric_name="nope")
        with pytest.raises(AgentEvalError, match="quote"):
            client.judge(content="Another text.", rubric=RUBRIC)
