"""The twenty mistakes of a new user. Each is one line that says what to do, with the documented exit code.

What can't be used as written is refused before anything is spent (2). What goes wrong while a child runs is a FAIL (1),
whose report has the line.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, delegate, delegate_process, openai_at, worker
from tests.support.model_server import Call, Fault, ModelServer, Reply

GOAL = ("run", "Write note.md", "-c", "file: note.md")
Done = subprocess.CompletedProcess[str]


def _refused(done: Done, *words: str) -> None:
    """Assert that a call was refused in one line that has these words."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    _contains(done.stderr, words)


def _could_not_run(done: Done, *words: str, code: int = 3) -> None:
    """Assert that nobody could do the task, and that the report says so with these words, however it is wrapped."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    _contains(" ".join(done.stdout.split()), words)


def _contains(text: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in text, text


def _problems(done: Done) -> str:
    """What `doctor` marks as a problem, and the fixes."""
    return done.stdout[done.stdout.index("✗") :]


# ------------------------------------------------------------------------------------------------ keys and addresses


def test_without_a_key_the_variables_are_named() -> None:
    _refused(delegate(*GOAL), "there is no API key", "set OPENAI_API_KEY", "set ANTHROPIC_API_KEY")


@pytest.mark.parametrize(("provider", "variable"), [("OPENAI", "OPENAI_API_KEY"), ("GOOGLE_GEMINI", "GOOGLE_API_KEY")])
def test_a_wrong_key_names_the_variable_that_it_came_from(provider: str, variable: str) -> None:
    with ModelServer(lambda _: Fault(401)) as server:
        url = server.openai_url if provider == "OPENAI" else server.google_url
        done = delegate(*GOAL, **{f"{provider}_BASE_URL": url, variable: "sk-wrong-key"})
    _could_not_run(done, "HTTP 401", f"is that of {variable}: set a valid one")
    assert "sk-wrong-key" not in done.stdout


def test_a_server_that_refuses_says_which_address_to_correct() -> None:
    address = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-dummy"}
    fix = "start the server, or correct OPENAI_BASE_URL"
    _could_not_run(delegate(*GOAL, **address), "can't connect to http://127.0.0.1:9/v1", fix)
    done = delegate("doctor", **address)
    assert done.returncode == 1
    _contains(_problems(done), ("openai (http://127.0.0.1:9/v1) can't be reached", fix))


def test_an_address_without_v1_is_told_with_the_right_one() -> None:
    with ModelServer(worker(), models=["gpt-6-luna", "gpt-6.1-terra"], below="/v1/") as server:
        environment = openai_at(server) | {"OPENAI_BASE_URL": server.url}
        done, doctor = delegate(*GOAL, **environment), delegate("doctor", **environment)
    _could_not_run(done, "HTTP 404", f"the address lacks /v1: set OPENAI_BASE_URL to {server.url}/v1")
    assert doctor.returncode == 1
    _contains(_problems(doctor), ("lacks /v1", f"set OPENAI_BASE_URL to {server.url}/v1"))


def test_a_server_that_answers_200_to_any_path_is_told_too() -> None:
    """As LM Studio does."""

    def script(call: Call) -> Fault:
        return Fault(200, {"error": f"Unexpected endpoint or method. (POST {call.path})"})

    with ModelServer(script) as server:
        _could_not_run(delegate(*GOAL, **openai_at(server) | {"OPENAI_BASE_URL": server.url}), "the address lacks /v1")
    with ModelServer(lambda _: Fault(200, "<html>Welcome</html>")) as server:
        done = delegate(*GOAL, **openai_at(server))
    _could_not_run(done, "the reply isn't a JSON object", "doesn't answer as a model API: correct OPENAI_BASE_URL")


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    done = delegate(*GOAL, OPENAI_BASE_URL="http://me:hunter2@127.0.0.1:9/v1", OPENAI_API_KEY="sk-dummy")
    _refused(done, "the base URL of 127.0.0.1 (in OPENAI_BASE_URL) has a user or a password; leave only the address")


def test_doctor_does_not_call_an_address_fine_that_has_no_api() -> None:
    with ModelServer([], below="/v1/") as server:
        environment = openai_at(server) | {"OPENAI_BASE_URL": f"{server.url}/app"}
        done, doctor = delegate(*GOAL, **environment), delegate("doctor", **environment)
    _could_not_run(done, "HTTP 404", f"{server.url}/app doesn't answer as a model API: correct OPENAI_BASE_URL")
    assert doctor.returncode == 1
    _contains(_problems(doctor), ("is no model API: it has neither /models nor /chat/completions", "correct OPENAI_"))


def test_a_server_that_lists_no_models_may_still_serve_them() -> None:
    with ModelServer([], models=[], below="/v1/chat/") as server:
        done = delegate("doctor", **openai_at(server))
    assert "• endpoint: openai" in done.stdout
    assert "answers, but lists no models (HTTP 404)" in done.stdout
    assert done.returncode == 0


def test_a_server_without_the_model_says_so() -> None:
    message = {"error": {"message": "The model `gpt-6.1-terra` does not exist", "code": "model_not_found"}}
    with ModelServer(lambda _: Fault(404, message), models=["qwen-local"]) as server:
        done, doctor = delegate(*GOAL, **openai_at(server)), delegate("doctor", **openai_at(server))
    _could_not_run(done, "HTTP 404", f"{server.openai_url} doesn't serve this model: name one that it lists")
    _contains(_problems(doctor), ("doesn't serve it", "set DELEGATE_MODEL to qwen-local"))


def test_doctor_ticks_no_judge_that_the_server_does_not_serve() -> None:
    with ModelServer([], models=["gpt-6.1-terra"]) as server:
        served, judge = openai_at(server) | {"DELEGATE_MODEL": "gpt-6.1-terra"}, {"DELEGATE_JUDGE_MODEL": "gpt-6-luna"}
        right, wrong = (
            delegate("doctor", **served, **more) for more in ({"DELEGATE_JUDGE_MODEL": "gpt-6.1-terra"}, judge)
        )
    assert "✓ judge: gpt-6.1-terra" in right.stdout
    assert "✓ judge" not in wrong.stdout
    _contains(_problems(wrong), ("gpt-6-luna would judge, but", "set DELEGATE_JUDGE_MODEL to gpt-6.1-terra"))


def test_doctor_without_a_key_tells_of_local_models() -> None:
    said = delegate("doctor").stdout
    _contains(said, ("set one of OPENAI_API_KEY", "set OPENAI_BASE_URL to its server", "http://127.0.0.1:11434/v1"))


def test_an_unknown_model_is_refused_with_the_nearest_names() -> None:
    with ModelServer([]) as server:
        _refused(delegate(*GOAL, "--model", "gpt-6-lunna", **openai_at(server)), "'gpt-6-lunna'", "gpt-6-luna")
        done = delegate(*GOAL, DELEGATE_MODEL="gpt-6-lunna", **openai_at(server))
    _refused(done, "change the setting `model` (DELEGATE_MODEL): use one of: gpt-6-luna")


# ---------------------------------------------------------------------------------------------------------- spelling


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "x", "--criterium", "y"], ["--criterium", "did you mean --criterion?", "`delegate run --help`"]),
        (["run", "x", "--zzz"], ["No such option: --zzz", "`delegate run --help`"]),
        (["run", "Write", "note.md"], ["extra argument (note.md)", "quotes"]),
        (["run", "x", "--tier", "fsat"], ["'--tier'", "'deep', 'standard', 'fast'"]),
        (["rum", "x"], ["'rum'", "id you mean 'run'?"]),
    ],
)
def test_a_misspelled_option_is_one_line(arguments: list[str], words: list[str]) -> None:
    done = delegate(*arguments)
    _refused(done, "delegate: ")
    said = done.stderr.replace("argument(s)", "argument").replace("(Possible options:", "(")
    _contains(said, tuple(words))


@pytest.mark.parametrize("criterion", ["shel: make", '{"kind": "shel", "command": "make"}'])
def test_a_misspelled_kind_of_criterion_gets_the_right_one(criterion: str) -> None:
    _refused(delegate("run", "x", "-c", criterion), "did you mean `shell")


def test_a_misspelled_setting_gets_the_right_name_wherever_it_is() -> None:
    Path("delegate.toml").write_text("max_concurent = 2\n")
    done = delegate(*GOAL)
    _refused(done, "max_concurent (in delegate.toml): there is no such key; did you mean max_concurrent?")
    assert len(done.stderr) < 150
    Path("delegate.toml").write_text('[delegate]\nmodel = "gpt-6-luna"\n')
    _refused(delegate(*GOAL), "settings aren't in a table; remove the line [delegate]")
    Path("delegate.toml").unlink()
    _refused(delegate(*GOAL, DELEGATE_MAX_CONCURENT="2"), "did you mean DELEGATE_MAX_CONCURRENT?")


# ------------------------------------------------------------------------------------------------- tasks and criteria


def test_four_tasks_in_a_call_are_refused_and_in_a_file_all_run() -> None:
    tasks = [{"goal": f"Write note.md, time {n}"} for n in range(4)]
    Path("t.json").write_text(json.dumps(tasks))
    with ModelServer(worker()) as server:
        done = delegate("call", json.dumps({"tasks": tasks}), **openai_at(server))
        assert server.calls == []
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"], error["hint"]) == (
            2, "too_many_tasks", "send the others in further calls",
        )  # fmt: skip
        assert delegate("run", "--file", "t.json", **openai_at(server)).stdout.count("UNJUDGED") == 4


def test_a_forbidden_shell_says_which_setting_forbids_it() -> None:
    criterion = {"kind": "shell", "command": "test -f note.md"}
    arguments = json.dumps({"tasks": [{"goal": "Write note.md", "acceptance_criteria": [criterion]}]})
    with ModelServer(worker()) as server:
        done = delegate("call", arguments, DELEGATE_COMMANDS="deny", **openai_at(server))
        (result,) = json.loads(done.stdout)["results"]
        (decided,) = result["verdict"]["criteria"]
        assert (done.returncode, decided["code"]) == (3, "commands_not_allowed")
        assert 'commands = "deny" forbids' in decided["reason"]
        assert "DELEGATE_COMMANDS=sandboxed" in decided["reason"]
        done = delegate("run", "Write note.md", "-c", "shell: true", DELEGATE_SANDBOX="off", **openai_at(server))
    _could_not_run(done, "commands_not_allowed: ", 'set sandbox = "auto"')


# --------------------------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize(
    "unwritable",
    [
        "/dev/null/home",
        pytest.param("/sys/delegate", marks=pytest.mark.skipif(sys.platform != "linux", reason="no /sys")),
    ],
)
def test_a_home_that_cannot_be_written_is_refused_before_a_call(unwritable: str) -> None:
    with ModelServer(worker(), models=["gpt-6-luna", "gpt-6.1-terra"]) as server:
        environment = openai_at(server) | {"DELEGATE_HOME": unwritable}
        done = delegate(*GOAL, **environment)
        assert server.calls == []
        doctor = delegate("doctor", **environment)
    _refused(done, f"records can't be written to {unwritable}", "nothing was run", "set `home` (DELEGATE_HOME)")
    assert doctor.returncode == 1
    _contains(_problems(doctor), (f"home: {unwritable} can't be written", "set DELEGATE_HOME to a writable folder"))


_ON_SMALL_DISK = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


def _on_small_disk(folder: Path, size: str, *arguments: str, **environment: str) -> Done:
    """Run `delegate` where `folder` is on a disk of this size. Skips the test if this user can't mount one."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", _ON_SMALL_DISK, "sh", size, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("needs a disk of its own")
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [*command, *COMMAND, *arguments], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
        env={**inherited, "DELEGATE_HOME": str(folder), **environment},
    )  # fmt: skip


def test_on_a_full_disk_nothing_is_spent(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    with ModelServer([]) as server:
        done = _on_small_disk(tmp_path / "small", "40k", *GOAL, **openai_at(server))
        assert server.calls == []
    _refused(done, "database or disk is full", "nothing was run; free some space there")


def test_on_a_disk_that_gets_full_the_result_is_still_printed(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()

    def fill(call: Call) -> Reply:
        if (n := len(call.tool_results)) < 3:  # whatever of the records is written by then, only the first one fits
            arguments = {"path": f"{n}.md", "content": "x" * (600_000 if n else 15_000)}
            return Reply(tool_calls=(("write_file", arguments),))
        return Reply("I wrote `0.md`.")

    with ModelServer(fill) as server:
        done = _on_small_disk(
            tmp_path / "small", "440k", "run", "Write", "-c", "file: 0.md", "--out", "out", **openai_at(server)
        )
        assert "1.md can't be written: No space left on device" in server.calls[-1].tool_results[1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS")
    problem, loss = done.stderr.splitlines()
    _contains(problem, ("disk is full", "results are returned all the same", "(DELEGATE_HOME)"))
    _contains(loss, ("records.sqlite3", "are lost"))
    assert Path("out/0.md").stat().st_size == 15_000


@pytest.mark.parametrize("place", ["--in", "--file", "--out", "file"])
def test_a_path_of_windows_is_refused_with_how_to_write_it(place: str) -> None:
    path = "C:\\Users\\me\\work.yaml"
    arguments = {"--file": ["run", "--file", path], "file": ["run", "x", "-c", f"file: {path}"]}
    done = delegate(*arguments.get(place, ["run", "x", place, path]), OPENAI_API_KEY="sk-dummy")
    assert os.listdir() == []
    _refused(done, "that is a path of Windows; in WSL it is /mnt/c/Users/me/work.yaml")


def _python_3_10() -> str | None:
    """A Python 3.10 that starts; None if there is none. The one in the path may be a launcher of another version."""
    installed = map(str, (Path.home() / ".pyenv" / "versions").glob("3.10.*/bin/python"))
    for found in (shutil.which("python3.10"), *installed):
        if found and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
            return found
    return None


def test_an_old_python_is_told_which_one_is_needed() -> None:
    if (old := _python_3_10()) is None:
        pytest.skip("there is no Python 3.10")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([old, "-m", "delegate", "run", "x"], capture_output=True, text=True, env=environment)
    _refused(done, "this is Python 3.10, but delegate needs 3.11 or newer", "python3.11 -m venv")


def test_a_goal_of_3_mb_runs_or_says_that_it_is_too_long() -> None:
    Path("t.json").write_text(json.dumps([{"goal": "word " * 600_000}]))
    with ModelServer(worker()) as server:
        done = delegate_process("run", "--file", "t.json", **openai_at(server))  # aiohttp warns of large bodies
    assert done.returncode == 0, done.stderr
    (warning,) = done.stderr.splitlines()
    _contains(warning, ("task 1: goal and context have 2,999,999 characters", "put long text into a file"))
    assert max(map(len, done.stdout.splitlines())) < 200
    too_long = {"error": {"message": "maximum context length is 400000 tokens", "code": "context_length_exceeded"}}
    with ModelServer(lambda _: Fault(400, too_long)) as server:
        done = delegate_process("run", "--file", "t.json", **openai_at(server))
    assert done.returncode == 1
    said = ("context_overflow: ", "maximum context length is 400000", "put long texts into files")
    _contains(" ".join(done.stdout.split()), said)


def test_emoji_and_text_from_right_to_left_arrive_as_they_are() -> None:
    goal = "Grüße 👩‍👩‍👧 schreiben, مرحبا بالعالم"
    with ModelServer(worker()) as server:
        done = delegate("run", goal, "-c", "file: note.md", **openai_at(server))
        assert goal in server.calls[0].texts[0]
        assert done.stdout.startswith(f"PASS (proven)  {goal}  ")
        turned = delegate("run", f"{goal} \u202egnihton", **openai_at(server), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert "\u202e" not in turned.stdout
    assert (done.returncode, turned.returncode, turned.stderr) == (0, 0, "")
