"""`delegate demo` without any setup."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command import delegate, openai_at
from tests.support.model_server import Call, ModelServer, Reply


def test_the_demo_shows_its_three_verdicts_and_leaves_no_files(tmp_path: Path, home: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = delegate("demo", TMPDIR=str(scratch), DELEGATE_MODEL="not-a-model", COLUMNS="200")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[0].startswith("The model replies in this demo are scripted")
    rows = [line.split("  ") for line in lines if line[:2] in ("1.", "2.", "3.")]
    words = [next(cell.strip() for cell in row if cell.strip() in ("PASS", "FAIL")) for row in rows]
    assert words == ["PASS", "FAIL", "FAIL"]
    assert "FAILED (failures=1)" in done.stdout
    assert "evidence_not_found" in done.stdout
    assert lines[-1].startswith("Next: ")
    assert done.stderr == ""
    assert list(scratch.iterdir()) == []
    assert not home.exists()


def test_the_demo_needs_no_sandbox(tmp_path: Path, home: Path) -> None:
    python = tmp_path / "snake"  # a name by which no Python to start a sandbox with is found
    python.symlink_to(sys.executable)
    empty = tmp_path / "few"
    empty.mkdir()
    for program in ("bash", "sh"):
        (empty / program).symlink_to(f"/bin/{program}")
    environment = {"PATH": str(empty), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                   "DELEGATE_HOME": str(home), "COLUMNS": "200"}  # fmt: skip
    program = [str(python), "-m", "delegate", "demo"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED (failures=1)" in done.stdout


def test_a_live_demo_without_a_key_says_what_to_set() -> None:
    done = delegate("demo", "--live", "--yes")
    assert done.returncode == 2
    assert "no API key" in done.stderr
    assert "OPENAI_API_KEY" in done.stderr


def test_a_live_demo_names_model_and_cost_before_it_spends_anything() -> None:
    with ModelServer([], models=["gpt-6.1-terra"]) as server:
        done = delegate("demo", "--live", **openai_at(server))
        assert [call.api for call in server.calls] == ["models"]
    assert done.returncode == 2
    assert "gpt-6.1-terra" in done.stdout
    assert "estimated cost: about $" in done.stdout
    assert "add --yes" in done.stderr


def test_a_live_demo_runs_on_the_only_model_of_the_users_server() -> None:
    def script(call: Call) -> Reply:
        if call.wants_json:
            return Reply(json.dumps({"answers": []}))
        return Reply("I looked at the files and did nothing more.")

    with ModelServer(script, models=["qwen-local"]) as server:
        done = delegate("demo", "--live", "--yes", OPENAI_BASE_URL=server.openai_url)
        asked = {call.model for call in server.calls if call.api == "chat"}
    assert done.returncode == 0, done.stdout + done.stderr
    assert asked == {"qwen-local"}
    assert "qwen-local at" in done.stdout
    assert "isn't in the catalog" in done.stdout
    assert "estimated cost: unknown" in done.stdout
