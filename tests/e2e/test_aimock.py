"""End-to-end tests for each provider: the command, the official SDK, and an independent model server.

@copilotkit/aimock implements the wire formats independently of `tests/support/model_server.py`, so these
tests find mistakes that delegate and its own test server have in common. They need node and npm. The package is pinned
by the lock file next to this module and is installed into the user's cache folder, never into the checkout.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

pytestmark = pytest.mark.timeout(120)  # the first run installs
HERE = Path(__file__).parent
NPM_SECONDS = 50
START_SECONDS = 20
CALL = {
    "tasks": [
        {
            "goal": "Describe the tides in one line, in tides.md.",
            "acceptance_criteria": ["file tides.md: tides.md says what high water follows."],
        },
        {
            "goal": "List the moons of Jupiter in moons.md.",
            "acceptance_criteria": ["file moons.md: moons.md lists the four large moons."],
        },
        {
            "goal": "Count the craters on the map and write the number to craters.md.",
            "acceptance_criteria": ["file craters.md: craters.md holds a number."],
        },
    ]
}


@dataclass(frozen=True)
class Provider:
    """The operator's variables, and the path of the base URL."""

    name: str
    key_name: str
    url_name: str
    path: str


PROVIDERS = (
    Provider("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    Provider("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    Provider("google", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "/v1beta"),  # aimock serves no other version
)


@dataclass(frozen=True)
class Done:
    """A finished `delegate call`."""

    provider: Provider
    exit_code: int
    report: dict[str, Any]


@pytest.fixture(scope="module")
def aimock() -> Iterator[str]:
    """Yield the address of a running aimock server."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: the end-to-end suite against @copilotkit/aimock needs them")
    script = _installed(npm) / "node_modules/@copilotkit/aimock/dist/cli.js"
    command = [node, str(script), "-p", "0", "-f", str(HERE / "fixtures.json"), "--strict"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            yield _address(server)
        finally:
            server.kill()


def _installed(npm: str) -> Path:
    """Return the folder with the pinned package, which one process installs on first use."""
    lock = HERE / "package-lock.json"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delegate-e2e"
    folder = cache / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch) / "install"
        fresh.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, fresh)
        _install(npm, fresh)
        try:
            fresh.rename(folder)
        except OSError:  # another test process was first
            assert folder.is_dir()
    return folder


def _install(npm: str, folder: Path) -> None:
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=NPM_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install @copilotkit/aimock within {NPM_SECONDS} s")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm could not install @copilotkit/aimock: {error.stderr[-300:]}")


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    watchdog = threading.Timer(START_SECONDS, server.kill)
    watchdog.start()
    said: list[str] = []
    for line in server.stdout:
        said.append(line)
        if listening := re.search(r"listening on (http://\S+)", line):
            watchdog.cancel()
            threading.Thread(target=server.stdout.read, daemon=True).start()  # a full pipe would stop the server
            return listening[1]
    watchdog.cancel()
    raise AssertionError(f"aimock did not start: {''.join(said)}")


@pytest.fixture(scope="module", params=PROVIDERS, ids=lambda provider: provider.name)
def done(request: pytest.FixtureRequest, aimock: str, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Run `delegate call` with only the provider's two variables set."""
    provider: Provider = request.param
    home = str(tmp_path_factory.mktemp("home"))
    environ = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environ |= {"HOME": home, "DELEGATE_HOME": home}
    environ |= {provider.key_name: "dummy", provider.url_name: aimock + provider.path}
    ran = subprocess.run(
        [*warm.delegate(), "call", "-"],
        input=json.dumps(CALL),
        cwd=home,
        env=environ,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.stdout, ran.stderr
    return Done(provider, ran.returncode, json.loads(ran.stdout))


def test_a_batch_of_three_gets_a_right_report_from_each_provider(done: Done) -> None:
    results = done.report["results"]
    assert [result["task_index"] for result in results] == [0, 1, 2]
    assert [result["status"] for result in results] == ["completed"] * 3
    verdicts = [result["verdict"] for result in results]
    assert [(verdict["verdict"], verdict["code"]) for verdict in verdicts] == [
        ("PASS", "met"),
        ("FAIL", "evidence_not_found"),
        ("FAIL", "not_met"),
    ]
    assert [verdict["verified"] for verdict in verdicts] == [True, False, True]
    assert verdicts[0]["criteria"][0]["source"] == "artifact:tides.md"


def test_a_verdict_of_fail_in_the_batch_leaves_with_1(done: Done) -> None:
    assert done.exit_code == 1


def test_the_judge_is_a_model_of_the_only_provider_with_a_key(done: Done) -> None:
    for result in done.report["results"]:
        judge = result["verdict"]["judge"]
        chosen = [candidate["model"] for candidate in judge["candidates"] if candidate["reason"] is None]
        assert chosen == [judge["model"]]
        assert judge["provider"] == done.provider.name


def test_tools_and_tokens_in_the_report_are_what_was_served(done: Done) -> None:
    for result in done.report["results"]:
        assert result["receipts"]["tools"] == {"write_file": 1}
        child, judge = result["usage"], result["verdict"]["judge"]["usage"]
        assert (child["model_calls"], child["input_tokens"], child["output_tokens"]) == (2, 650, 60)
        assert (judge["model_calls"], judge["input_tokens"], judge["output_tokens"]) == (1, 900, 60)
