"""`delegate export`: a run, a batch or a task as trajectories or preference data."""

import asyncio
import json
from pathlib import Path

from delegate import Delegator, Task
from delegate.models.providers.scripted import Scripted
from tests.cli.command import delegate

CRITERIA = [{"kind": "regex", "pattern": "good"}]


def run_of(*replies: str, batch: bool = False) -> str:
    """A recorded run with a task for each of these reports. Returns its id."""

    async def run() -> str:
        tasks = [Task.model_validate({"goal": reply, "acceptance_criteria": CRITERIA}) for reply in replies]
        client = Scripted(lambda request: f"this is {request.messages[0].text} \u202e\x1b")
        async with Delegator(client=client) as delegator:
            if not batch:
                return (await delegator.run(*tasks)).run_id or ""
            running = delegator.batches.run(tasks)
            async for _ in running:
                pass
            return running.run_id

    return asyncio.run(run())


def test_a_run_is_one_document_and_its_task_too() -> None:
    run_id = run_of("good", "bad")
    whole = delegate("export", run_id, "--format", "atif")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert "\x1b" not in whole.stdout
    assert "\u202e" not in whole.stdout
    root = json.loads(whole.stdout)
    assert [one["trajectory_id"] for one in root["subagent_trajectories"]] == [f"{run_id}-0", f"{run_id}-1"]
    one = json.loads(delegate("export", f"{run_id}-1", "--format", "atif").stdout)
    assert one == root["subagent_trajectories"][1]


def test_a_batch_is_a_line_per_task_and_can_be_written_to_a_file(tmp_path: Path) -> None:
    run_id = run_of("good", "bad", "good", batch=True)
    done = delegate("export", run_id[:10], "--format", "atif", "-o", str(tmp_path / "out.jsonl"))
    assert (done.returncode, done.stdout) == (0, "")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    verdicts = [json.loads(line)["extra"]["delegate"]["verdict"]["verdict"] for line in lines]
    assert sorted(verdicts) == ["FAIL", "PASS", "PASS"]
    assert {json.loads(line)["session_id"] for line in lines} == {run_id}


def test_preference_data_is_counted_on_stderr() -> None:
    run_id = run_of("good", "bad")
    done = delegate("export", run_id, "--format", "preference")
    assert [json.loads(line)["label"] for line in done.stdout.splitlines()] == [True, False]
    assert done.stderr == "2 examples (2 check)\n"


def test_wrong_options_are_refused_with_the_way_out(tmp_path: Path) -> None:
    run_id = run_of("good")
    for arguments, message in [
        (("no-such-run", "--format", "atif"), "there is no record 'no-such-run'"),
        ((run_id, "--format", "atif", "--labels", "judge"), "can only be used with --format preference"),
        ((run_id, "--format", "atif", "-o", str(tmp_path / "no" / "x.json")), "can't be written"),
        ((run_id, "--format", "pdf"), "atif"),
        ((run_id,), "--format"),
    ]:
        done = delegate("export", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in " ".join(done.stderr.split())
