"""The README is true: its blocks run, its tables are those of the code."""

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator
from delegate.batch.sources import TaskFile
from delegate.cli.taskfile import read_task
from delegate.models.catalog import Catalog
from delegate.settings import Settings, load_settings
from delegate.types import Verdict
from scripts.write_readme import settings_table
from tests.support.model_server import Call, ModelServer, Reply

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OWN_HOST = (ROOT / "docs" / "write-your-own-host.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", f"{README}\n{OWN_HOST}", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def parent_and_children(call: Call) -> Reply:
    """A model that writes haiku.txt and calc.py, reports it, and judges with a quote from its own report."""
    if call.wants_json:
        ids = re.findall(r"c\d+", call.last_text.rsplit("exactly once:", 1)[1])
        answers = [{"id": id, "evidence": "three lines", "reason": "seen", "verdict": "met"} for id in ids]
        return Reply(json.dumps({"answers": answers}))
    if not call.tool_results:
        return Reply(tool_calls=(("write_file", {"path": "haiku.txt", "content": "a\nb\nc\n"}),))
    return Reply("I wrote three lines.")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    served = tuple(model.id for model in Catalog.shipped().models if model.provider == "openai")
    with ModelServer(parent_and_children, models=served) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        yield running


@pytest.mark.parametrize("source", blocks("python"), ids=lambda source: source.strip().splitlines()[-1][:40])
async def test_python_blocks_run(source: str, server: ModelServer) -> None:
    code = compile(source, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {}
    running = eval(code, names)
    if inspect.isawaitable(running):
        await running
    if "delegator" in names:
        await names["delegator"].aclose()
    assert server.calls


def commands() -> list[str]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith("make ")]


@pytest.mark.parametrize("command", commands())
async def test_commands_run(command: str, server: ModelServer) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_shell(
        command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    assert out


def test_make_lines_name_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^\$ make (\w+)$", README, re.MULTILINE)
    assert named == ["demo", "test"]
    for target in named:
        assert f"\n{target}: " in makefile


@pytest.mark.parametrize("text", blocks("toml"))
def test_toml_blocks_are_settings(text: str) -> None:
    Path("delegate.toml").write_text(text)
    assert load_settings({}).endpoints
    tomllib.loads(text)


@pytest.mark.parametrize("text", blocks("json"))
def test_json_blocks_are_verdicts(text: str) -> None:
    assert Verdict.model_validate_json(text).verdict == "FAIL"


@pytest.mark.parametrize("text", blocks("yaml"))
async def test_yaml_blocks_are_tasks_that_can_be_run(text: str, server: ModelServer) -> None:
    path = Path("tasks.yaml")
    path.write_text(text)
    async with Delegator() as delegator:
        plan = await delegator.plan(TaskFile(path, read_task))
    assert plan.stages == (("sources",), ("memo",))
    assert server.calls == []


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert settings_table() in README
    for name in Settings.model_fields:
        assert f"`{name}`" in README
