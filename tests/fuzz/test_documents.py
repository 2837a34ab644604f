"""Files that others wrote, as a repository can bring them along: one error each, within bounds, and nothing widened.

DELEGATE_FUZZ_SECONDS=600 pytest tests/fuzz/test_documents.py --timeout=0
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import delegate
from delegate._util.documents import MAX_DEPTH, Format, loads

DEEP = 100_000
_LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else ''}]" for n in range(12))
_MERGES = "\n".join(
    f"b{n}: &b{n}\n  <<: [{', '.join([f'*b{n - 1}'] * 9)}]" if n else "b0: &b0 {x: 1, y: 2}" for n in range(12)
)
"""Before PyYAML 6.0.4, each line has nine times as many keys as the one before."""
_MANY = "a: &a {" + ", ".join(f"k{n}: 1" for n in range(1_001)) + "}\nb: {<<: *a}"
_LONG = "a: &a " + "x" * 100_000 + "\nb: [" + ", ".join(["*a"] * 900) + "]"
BOMBS: dict[str, tuple[str, Format, str]] = {
    "aliases of aliases": (_LAUGHS, "yaml", "it stands for more than 1,000,000 values"),
    "many merged keys": (_MANY, "yaml", "more than 1,000 merged keys: line 2 column"),
    "a long text, often": (_LONG, "yaml", "64 MB of text"),
    "many aliases": (
        "a: &a 1\nb: [" + ", ".join(["*a"] * 1_001) + "]",
        "yaml",
        "more than 1,000 aliases: line 2 column",
    ),
    "a list in itself": ("&a [*a, *a]", "yaml", "an alias of what contains it: line 1 column"),
    "deep YAML": ("[" * DEEP, "yaml", "nested more than 100 levels deep: line 1 column 101"),
    "deep YAML in lines": ("- " * DEEP + "x", "yaml", "nested more than 100 levels deep"),
    "deep JSON": ("[" * DEEP + "]" * DEEP, "json", "nested more than 100 levels deep"),
    "JSON that is a bit too deep": ("[" * 102 + "]" * 102, "json", "nested more than 100 levels deep"),
    "deep TOML": ("a = " + "[" * DEEP, "toml", "nested more than 100 levels deep"),
    "a deep key": (".".join(["a"] * 5_000) + " = 1", "toml", "nested more than 100 levels deep"),
    "an empty number": ("a: !!int ''", "yaml", "a value doesn't fit its tag"),
    "a time that is none": ("a: !!timestamp x", "yaml", "a value doesn't fit its tag"),
    "a number of many digits": ("a: " + "9" * 5_000, "yaml", "4300"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_document_that_stands_for_too_much_is_one_error(bomb: str) -> None:
    text, format, words = BOMBS[bomb]
    with pytest.raises(ValueError, match=words) as caught:
        loads(text, format)
    assert "\n" not in str(caught.value)


def test_what_people_write_is_read_as_before() -> None:
    text = "base: &base {tier: fast, tags: &t [a, b]}\ntasks:\n- {<<: *base, goal: x, more: *t}\n- {<<: *base, goal: y}"
    assert loads(text, "yaml") == {
        "base": {"tier": "fast", "tags": ["a", "b"]},
        "tasks": [{"tier": "fast", "tags": ["a", "b"], "goal": "x", "more": ["a", "b"]},
                  {"tier": "fast", "tags": ["a", "b"], "goal": "y"}],
    }  # fmt: skip
    assert loads("[" * (MAX_DEPTH) + "]" * (MAX_DEPTH), "json") is not None


# ------------------------------------------------------------------------------------------- files of tasks, settings

MAX_KB = 200_000
FIELDS: dict[str, list[Any]] = {
    "goal": ["Say hello", "", 3, None, "x" * 5_000],
    "workspace": [".", "~", "..", "/", "sub/../..", "link", {"mode": "copy", "path": "sub"}, {"mode": "fresh"}, 7,
                  {"mode": "shared", "path": "~nobody0"}, {"mode": "worktree", "path": "/etc"},
                  "\ud800", "\0", "a" * 5_000],
    "timeout_seconds": [1, 600, 601, 1e308, "600", "inf", -1, True, float("nan")],
    "max_steps": [1, 30, 31, 10**30, "31", 0],
    "max_cost_usd": [0.1, 1e9, "nan"],
    "min_level": ["said", "proven", "all"],
    "tier": ["deep", "fast", "none"],
    "mode": ["once", "goal"],
    "tools": [["run_shell"], "run_shell"],
    "env": [{"A": "b"}],
    "output_schema": [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"type": 3}, {}],
    "acceptance_criteria": [
        ["shell: true"], ["It is polite", "file: ../x"], [{"kind": "shell", "command": "x", "network": "host"}], "x",
        [{"kind": "shell", "command": "x", "timeout_seconds": 3600}],
        [{"kind": "json_schema", "schema": {"$ref": "#"}}],
        [{"kind": "shell"}], [["nested"]], [{"kind": "regex", "pattern": "(a+)+$"}], [{"kind": "probe", "tool": "x"}],
    ],
}  # fmt: skip
SETTINGS: dict[str, list[Any]] = {
    "commands": ['"allow"', '"deny"', '"ask"', "1"], "network": ['"open"', '"off"'], "sandbox": ['"off"', '"require"'],
    "timeout_seconds": ["600", "601", "inf", "nan", "-1"], "max_steps": ["30", "31", "9" * 5_000], "home": ['"."'],
    "max_cost_usd": ["1", "inf", "1e400"], "policy": ['{irreversible = "allow"}', "{rules = [{}]}", "[[[]]]"],
    "endpoints": ["[]", '[{name = "x", base_url = "http://x", models = [{id = "m", tier = "fast"}]}]', "[" * 2_000],
    "max_tier": ['"deep"', '"fast"', '"parent-9"'], "fetch_hosts": ['["x"]', '"x"'], "gate": ["false", "true"],
    "min_level": ['"seen"', '"none"'], "a.b.c": ["1"], "keep_days": ["1"],
}  # fmt: skip


def written(chance: random.Random) -> tuple[str, str]:
    """The name and the content of a file of tasks or settings, sometimes broken."""
    if chance.random() < 0.3:
        name = "delegate.toml"
        text = "\n".join(f"{key} = {chance.choice(SETTINGS[key])}" for key in chance.sample(sorted(SETTINGS), 2))
    else:
        name = f"tasks.{chance.choice(['json', 'yaml', 'jsonl'])}"
        keys = chance.sample(sorted(FIELDS), chance.randint(0, 4))
        task = {"goal": "Say hello"} | {key: chance.choice(FIELDS[key]) for key in keys}
        text = json.dumps(task if name.endswith("l") and name != "tasks.yaml" else [task])
        if name == "tasks.yaml" and chance.random() < 0.2:
            text = chance.choice([_LAUGHS, _MERGES, _LONG, "&a [*a]", "[" * 5_000, "!!int ''", "? {a: b}\n: c"])
    if chance.random() < 0.2:
        at = chance.randrange(len(text) or 1)
        text = text[:at] + chance.choice(["", "\0", "[", "&a", "*a", "\ud800", "é", "\r", "'''"]) + text[at + 1 :]
    return name, text


def read_all(seed: int, count: int) -> None:
    """Read files in the working folder as the commands do. Any other error than theirs ends this process."""
    from delegate.batch.item import Item
    from delegate.batch.sources import TaskFile
    from delegate.cli.input.task_trust import refuse_untrusted
    from delegate.cli.input.taskfile import read_task, read_tasks
    from delegate.policy.settings import Settings, load_settings
    from delegate.types.errors import CallError, ConfigError

    chance, plain = random.Random(seed), Settings()
    Path("link").symlink_to("..")
    for _ in range(count):
        name, text = written(chance)
        Path(name).write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            if name == "delegate.toml":
                _assert_narrow(load_settings({}), plain)
                continue
            batch = [one.task for one in TaskFile(Path(name), read_task) if isinstance(one, Item)]
            tasks = batch if name == "tasks.jsonl" else read_tasks(Path(name))
            for task in (*batch, *tasks):
                refuse_untrusted(Path(name), [("task 1", task)], plain)
                _assert_within(task, plain)
        except (CallError, ConfigError) as error:
            assert "\n" not in str(error), str(error)  # noqa: PT017
        finally:
            Path(name).unlink()


def _assert_narrow(settings: Any, plain: Any) -> None:
    for name in ("timeout_seconds", "max_steps"):
        assert getattr(settings, name) <= getattr(plain, name), name
    assert settings.commands in ("sandboxed", "deny")
    assert settings.network == "off"
    assert settings.sandbox in ("auto", "require")
    assert (settings.endpoints, settings.fetch_hosts, settings.home, settings.gate) == ((), (), plain.home, True)


def _assert_within(task: Any, plain: Any) -> None:
    if task.workspace is not None and task.workspace.path is not None:
        assert os.path.realpath(task.workspace.path).startswith(os.path.realpath("."))
    assert (task.timeout_seconds or 0) <= plain.timeout_seconds
    assert (task.max_steps or 0) <= plain.max_steps
    assert all(getattr(one, "network", None) != "host" for one in task.acceptance_criteria)


_CHILD = """
import re, resource, sys
from pathlib import Path
from tests.fuzz.test_documents import read_all
read_all(int(sys.argv[1]), int(sys.argv[2]))
status = Path("/proc/self/status")  # the other figure begins with that of the process that started this one
found = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print(found[1] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_no_file_is_a_traceback_or_widens_anything_or_takes_the_memory(tmp_path: Path) -> None:
    seconds = float(os.environ.get("DELEGATE_FUZZ_SECONDS") or 0)
    seed, count = (random.randrange(1 << 30), 10_000) if seconds else (7, 400)
    folder = tmp_path / "repository"
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(Path(delegate.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(seed), str(count)], cwd=folder, env=environment, capture_output=True,
        text=True, timeout=60 + seconds * 5, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (seed, done.stderr[-3_000:])
    assert int(done.stdout) < MAX_KB * (1024 if sys.platform == "darwin" else 1), seed
