"""Coverage-guided fuzzing if atheris is installed. Targets and seeds are tested everywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import SECONDS
from tests.fuzz.targets import SEEDS, TARGETS, path_target

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_of_a_target_are_good(name: str) -> None:
    for seed in (*SEEDS[name], b"", b"\xff\x00\xed\xa0\x80"):
        TARGETS[name](seed)


def test_the_seeds_of_the_target_for_paths_are_good(tmp_path: Path) -> None:
    with path_target(tmp_path) as check:
        for seed in (*SEEDS["path"], b"", b"\xff\x00\xed\xa0\x80"):
            check(seed)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("name", [*TARGETS, "path"])
def test_nothing_is_found_by_following_the_coverage(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    limits = [f"-max_total_time={int(SECONDS) or 2}", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.fuzz.guided", name, *limits]
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # libFuzzer leaves the process without cleaning up
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS + 50, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
