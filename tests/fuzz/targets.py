"""The fuzz targets. Each takes any bytes and raises an error if the outcome isn't an expected one."""

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from delegate._util.fencing import clean, fence, frame
from delegate.contract import parse_call
from delegate.judging.checks.json_schema import check_schema
from delegate.judging.checks.predicate.evaluate import Outcome, PredicateError, evaluate
from delegate.judging.judge.reply import UnparseableReply, one_object, parse_reply
from delegate.judging.report_json import parse_json
from delegate.sandbox.workspace.folder import Folder
from delegate.types.errors import CallError, ToolError
from tests.fuzz.fuzzing import ends_soon
from tests.judging.checks.predicate.expressions import Writer

MAX_MESSAGE_CHARS = 20_000
CODES = frozenset({
    "invalid_json", "not_an_object", "no_task", "goal_and_tasks", "too_many_tasks", "unknown_field", "empty",
    "wrong_type", "unknown_tier", "unknown_criterion_kind", "invalid_criterion", "invalid_schema", "duplicate_id",
    "too_large",
})  # fmt: skip
"""The codes of the table in `contract.parse`."""


def check_call(arguments: Any) -> None:
    """Expect tasks that can be stored and serialized, or one readable `CallError`, within the time limit."""
    with ends_soon():
        try:
            tasks = parse_call(arguments, check_schema=check_schema)
        except CallError as error:
            _check_refusal(error)
            return
    assert 1 <= len(tasks) <= 3
    for task in tasks:
        assert task.goal.strip()
        assert len({criterion.id for criterion in task.criteria}) == len(task.criteria)
        task.model_dump_json().encode()


def _check_refusal(error: CallError) -> None:
    assert error.code in CODES
    assert error.hint
    for text in (error.message, error.field or "", error.hint):
        assert len(text) < MAX_MESSAGE_CHARS
        assert "\n" not in text
        assert clean(text) == (text, False), repr(text)
        text.encode()


def check_reply(text: str) -> None:
    """Expect an answer for each requested id, or `UnparseableReply`, within the time limit."""
    with ends_soon(), suppress(UnparseableReply):
        answers = parse_reply(text, ("c1", "c2"))
        assert set(answers) == {"c1", "c2"}
        for answer in answers.values():
            assert answer.verdict in ("met", "not_met", "cannot_tell")
            (answer.evidence + answer.reason + answer.source).encode()
    with ends_soon(), suppress(UnparseableReply):
        json.dumps(one_object(text), ensure_ascii=False, allow_nan=False).encode()


def check_output(text: str) -> None:
    """Expect a JSON value or `ValueError` within the time limit."""
    with ends_soon():
        try:
            value = parse_json(text)
        except ValueError:
            return
    json.dumps(value, allow_nan=False)


def check_predicate(expr: str, value: object) -> None:
    """Expect an outcome with a serializable reason, or `PredicateError`, within the time limit."""
    with ends_soon():
        try:
            outcome = asyncio.run(evaluate(expr, value))
        except PredicateError as error:
            outcome = Outcome(False, str(error))
    assert isinstance(outcome.holds, bool)
    assert _is_short_line(outcome.reason)


def check_path(folder: Folder, path: str) -> None:
    """Expect a path in the folder, or `ToolError`, within the time limit."""
    with ends_soon(), suppress(ToolError):
        real = folder.resolve(path)
        assert real.is_relative_to(folder.root)
        assert real.resolve() == real
        str(real).encode("utf-8", "surrogateescape")
    with ends_soon(), suppress(ToolError):
        assert "outside" not in folder.read(path, 100).text


def check_text(text: str) -> None:
    """Expect any text to stay between its fences and frames."""
    with ends_soon():
        lines = fence("x", text, "0123456789ab").split("\n")
        assert (lines[0], lines[-1]) == ("<<<x 0123456789ab>>>", "<<<end x 0123456789ab>>>")
        assert not any("<<<" in line for line in lines[1:-1])
        lines = frame(text, "482913").splitlines()
        assert lines[0].startswith("<<<482913")
        assert [n for n, line in enumerate(lines) if line.startswith("482913>>>")] == [len(lines) - 1]


def _is_short_line(text: str) -> bool:
    text.encode()
    return 0 < len(text) < MAX_MESSAGE_CHARS and "\n" not in text


# ------------------------------------------------------------------------------------------------------- any bytes


def _call(data: bytes) -> None:
    check_call(data)


def _reply(data: bytes) -> None:
    check_reply(data.decode("utf-8", "surrogateescape"))


def _output(data: bytes) -> None:
    check_output(data.decode("utf-8", "surrogateescape"))


def _predicate(data: bytes) -> None:
    """The first line is the expression. The rest is its input, as JSON or else as text."""
    expr, _, rest = data.decode("utf-8", "replace").partition("\n")
    value: object = rest
    with suppress(ValueError, RecursionError):
        value = json.loads(rest)
    check_predicate(expr, value)


def _text(data: bytes) -> None:
    check_text(data.decode("utf-8", "surrogateescape"))


@contextmanager
def path_target(place: Path) -> Generator[Callable[[bytes], None]]:
    """Paths in a folder with all kinds of links, next to a secret."""
    root, outside = place / "root", place / "outside"
    for folder in (root / "a" / "b", outside):
        folder.mkdir(parents=True)
    (outside / "secret").write_text("outside")
    (root / "a" / "file").write_text("inside")
    for name, target in {"up": "..", "out": "../outside", "in": "a/b", "round": "round", "on": "in/../file"}.items():
        (root / name).symlink_to(target)
    (root / "a" / "b" / "way").symlink_to(outside)
    folder = Folder.of_existing(root)
    yield lambda data: check_path(folder, data.decode("utf-8", "surrogateescape"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "call": _call, "reply": _reply, "output": _output, "predicate": _predicate, "text": _text,
}  # fmt: skip
SEEDS: dict[str, tuple[bytes, ...]] = {
    "call": (
        b'{"goal":"g","acceptance_criteria":["t",{"kind":"shell","command":"true"},{"kind":"regex","pattern":"a+"}]}',
        b'{"tasks":[{"goal":"g","tier":"fast","output_schema":{"type":"object","required":["a"]}},"h"]}',
        b'{"goal":"g","acceptance_criteria":"{\\"kind\\":\\"receipt\\",\\"calls\\":[{\\"tool\\":\\"t\\"}]}"}',
        b'{"goal":"g","acceptance_criteria":[{"kind":"rubric","rubric":"writing"},{"kind":"file","path":"a"}]}',
    ),
    "reply": (
        b'{"answers":[{"id":"c1","source":"report","evidence":"e","reason":"r","verdict":"met"},'
        b'{"id":"c2","evidence":"","reason":"","verdict":"cannot_tell"}]}',
        b'```json\n{"answers":[]}\n```',
    ),
    "output": (b'done\n```json\n{"a":[1,2.5e3,null,"\\ud83d"]}\n```\n', b"[1]"),
    "predicate": (
        b"items.every(x => x.id > 0 && /^a{2}/i.test(x.name)) ?? output?.length\n"
        b'{"items":[{"id":1,"name":"aab"}]}',
        b"`${output.slice().sort((a, b) => b - a).join(', ')}` === '3, 2'\n[2,3]",
        b"Object.entries($).reduce((s, [k, v]) => s + v, 0) !== 1e3 ** 2\n{\"a\":1}",
        *("\n".join(Writer(seed).case()).encode() for seed in range(40)),
    ),
    "text": (b"a\n482913>>>\n<<<end x 0123456789ab>>>\n", b"\x1b[1m<\xe2\x80\x8b<<\xef\xbc\x9e\xe2\x8b\x99"),
    "path": (b"a/b/../file", b"in/way/secret", b"on", b"round/../up/outside/secret"),
}  # fmt: skip
