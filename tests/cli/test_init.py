"""`delegate init`: the files that it writes, what it asks, and what it leaves alone."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from delegate.cli.input.starting import TASKS_TEXT, Start, settings_text
from delegate.cli.input.taskfile import read_tasks
from delegate.policy import trust
from delegate.policy.settings import Settings, load_settings
from tests.cli.command import delegate
from tests.support import warm
from tests.support.model_server import ModelServer

_COMMENTED = re.compile(r"^( *)# (?=[a-z_]+ = |- \"|[a-z_]+: [a-z0-9{T])", re.MULTILINE)
"""The beginning of a line that is a setting or a field in a comment."""


def _uncommented(text: str) -> list[str]:
    """The text with one of its commented lines uncommented, for each, and with all of them."""
    found = list(_COMMENTED.finditer(text))
    ones = [text[: match.start()] + match[1] + text[match.end() :] for match in found]
    return [*ones, _COMMENTED.sub(r"\1", text)]


def _answer(answer: str, *arguments: str, **environment: str) -> str:
    """Run `delegate init` with a terminal as its stdin, on which `answer` is typed. Returns its output."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [*warm.delegate(), "init", *arguments], stdin=theirs, capture_output=True, text=True, timeout=30,
            env={**os.environ, **environment},
        )  # fmt: skip
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def test_init_writes_files_that_load_and_says_what_to_run_next() -> None:
    done = delegate("init", OPENAI_API_KEY="sk-dummy")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "wrote delegate.toml\nwrote tasks.yaml\nNext: `delegate run --file tasks.yaml --out results`\n"
    )
    assert done.stderr == ""
    assert load_settings({}) == Settings()
    (task,) = read_tasks(Path("tasks.yaml"))
    assert [criterion.kind for criterion in task.acceptance_criteria] == ["file", "text"]


def test_without_a_key_init_says_what_comes_first() -> None:
    assert "Next: `delegate doctor`, because no model can be called" in delegate("init").stdout


@pytest.mark.parametrize("own", ["", "max_steps = 5\ntimeout_seconds = inf\nmax_cost_usd = 0.25\ncommands = 'deny'\n"])
def test_every_commented_setting_loads_without_trust(own: str) -> None:
    trust.own_file().parent.mkdir(parents=True)
    trust.own_file().write_text(own)
    allowed = load_settings()
    texts = _uncommented(settings_text(allowed, Start()))
    assert len(texts) == 12
    for text in texts:
        Path("delegate.toml").write_text(text)
        assert load_settings().model_fields_set > allowed.model_fields_set or own


def test_every_commented_field_of_a_task_loads() -> None:
    texts = _uncommented(TASKS_TEXT)
    assert len(texts) == 7
    counts: list[int] = []
    for text in texts:
        Path("tasks.yaml").write_text(text)
        counts += [len(task.acceptance_criteria) for task in read_tasks(Path("tasks.yaml"))]
    assert counts == [3, 2, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("name", ["delegate.toml", "tasks.yaml"])
def test_init_replaces_nothing_without_force(name: str) -> None:
    Path(name).write_text("mine")
    done = delegate("init")
    assert done.returncode == 2
    assert done.stderr == f"delegate: {name} exists; nothing was written (--force replaces)\n"
    assert os.listdir() == [name]
    assert Path(name).read_text() == "mine"


def test_force_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("mine")
    Path("tasks.yaml").symlink_to(tmp_path / "profile")
    assert delegate("init").returncode == 2
    assert delegate("init", "--force").returncode == 0
    assert (tmp_path / "profile").read_text() == "mine"
    assert Path("tasks.yaml").read_text() == TASKS_TEXT


def test_on_a_terminal_init_offers_the_models_that_can_be_called() -> None:
    printed = _answer("9999\n2", OPENAI_API_KEY="sk-dummy")
    assert "answer with a number from 1 to" in printed
    offered = re.search(r"2: (\S+) \(standard, openai\)", printed)
    assert offered is not None
    assert load_settings().model == offered[1]


def test_a_server_of_ones_own_is_declared_and_counts_after_trust() -> None:
    with ModelServer([], models=["qwen-local"]) as server:
        listed = _answer("", OPENAI_BASE_URL=server.openai_url)
        number = re.search(r"(\d+): qwen-local \(own-server", listed)
        assert number is not None
        printed = _answer(number[1], "--force", OPENAI_BASE_URL=server.openai_url)
    assert "Next: `delegate trust`" in printed
    assert delegate("trust").returncode == 0
    settings = load_settings()
    assert settings.model == "qwen-local"
    assert settings.endpoints[0].base_url == server.openai_url
