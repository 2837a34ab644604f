"""Shell criteria that cannot fail are found; honest ones raise no alarm."""

import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegate.judging.checks.vacuous import RULES, describe, find_vacuous

DATA = Path(__file__).parents[2] / "data"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def rules(command: str, exit_code: int = 0) -> set[str]:
    return {part.rule for part in find_vacuous(command, exit_code=exit_code)}


CORPUS = rows("vacuous.jsonl")


# ---------------------------------------------------------------------------------------------------- the corpora


def test_every_vacuous_command_is_found_under_its_rule() -> None:
    vacuous = [row for row in CORPUS if row["vacuous"] and "missed" not in row]
    missed = [row for row in vacuous if row["rule"] not in rules(row["command"], row.get("exit_code", 0))]
    assert len(vacuous) >= 290
    assert missed == []


def test_no_honest_command_raises_an_alarm() -> None:
    honest = [row for row in CORPUS if not row["vacuous"]]
    assert len(honest) >= 320
    assert [row for row in honest if find_vacuous(row["command"], exit_code=row.get("exit_code", 0))] == []


def test_what_is_marked_as_missed_is_not_found_yet() -> None:
    marked = [row["command"] for row in CORPUS if "missed" in row]
    assert len(marked) == 3
    assert [command for command in marked if find_vacuous(command)] == []


def test_every_recorded_attack_with_a_shell_criterion_is_found() -> None:
    attacks = [row["text"] for row in rows("judge_attacks.jsonl") if row["mode"] == "shell_criterion"]
    assert len(attacks) == 5
    assert [attack for attack in attacks if not find_vacuous(attack)] == []


def test_every_rule_is_described_and_met_in_the_corpora() -> None:
    found = {rule for row in CORPUS for rule in rules(row["command"], row.get("exit_code", 0))}
    found |= {rule for row in rows("judge_attacks.jsonl") for rule in rules(row["text"])}
    assert found == set(RULES)


# ------------------------------------------------------------------------------------------------ what is reported


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("pytest -q || true", "true"),
        ("echo über; cd häuser && pytest || exit 0", "exit 0"),
        ("bash -c 'cd app && pytest || true'", "true"),
        ("pytest -q\necho done", "echo done"),
        ("set -e; pytest | tee log", "pytest | tee log"),
        ("git stash && pytest", "git stash"),
    ],
)
def test_the_span_says_where_the_failure_is_lost(command: str, text: str) -> None:
    (part,) = find_vacuous(command)
    assert (part.text, command[part.start : part.end]) == (text, text)
    assert part.why == RULES[part.rule]


def test_a_finding_is_described_in_one_line() -> None:
    (part,) = find_vacuous("pytest -q || {\n  echo failed\n}")
    line = describe(part)
    assert line.startswith("or_always at 13-30 ({ echo failed }): ")
    assert "\n" not in line


def test_the_wanted_exit_code_decides_what_is_vacuous() -> None:
    assert rules("false", 1) == {"constant"}
    assert rules("false", 0) == {"never_holds"}
    assert rules("./check || true", 1) == {"never_holds"}
    assert rules("grep -q TODO src", 1) == set()
    assert rules("curl -s http://localhost:9", 7) == set()


def test_a_lost_test_suite_is_told_even_where_another_check_follows() -> None:
    assert rules("pytest || true; test -f report.xml") == {"or_always"}
    assert rules("rm out.txt || true; pytest") == set()
    assert rules("pytest; test -f report.xml") == {"dropped_check"}
    assert rules("pytest > log.txt || true; grep -q '3 passed' log.txt") == set()


def test_a_nested_script_counts_once_in_whatever_states_it_is_run() -> None:
    script = "\n".join(f"test -s out/part{n}.txt" for n in range(60)) + " || exit 1"
    command = f"set -e; a=0; ./one || a=1; ./two || b=1; ./three || c=1; bash -ec '{script}'"
    assert 8 * len(script) > 4_000
    assert rules(command) == set()


# --------------------------------------------------------------------------------------- what the shell's state does


@pytest.mark.parametrize(
    ("honest", "vacuous"),
    [
        ("set -o pipefail; pytest | tee log", "set -o pipefail; set +o pipefail; pytest | tee log"),
        ("set -e; pytest; echo done", "set -e; set +e; pytest; echo done"),
        ("set -e; pytest; echo done", "set -e; pytest || true; echo done"),
        ("bash -ec 'pytest; echo done'", "bash -c 'pytest; echo done'"),
        ("rc=0; pytest || rc=1; exit $rc", "rc=0; pytest; rc=0; exit $rc"),
        ("rc=0; for f in *; do ./x || rc=1; done; exit $rc", "rc=0; ls | while read f; do ./x || rc=1; done; exit $rc"),
        ("if [ -d t ]; then pytest t; rc=$?; fi; exit $rc", "if [ -d t ]; then pytest t; rc=0; fi; exit $rc"),
        ("pytest; rc=$?; echo done; exit $rc", "pytest; echo done; rc=$?; exit $rc"),
        ("pytest\nif [ $? -ne 0 ]; then exit 1; fi", "pytest\nif [ $? -ne 0 ]; then echo bad; fi"),
        ("python app.py & sleep 1; kill -0 $!", "python app.py & sleep 1; kill $!"),
        ("cargo bench --no-run", "cargo test --no-run"),
        ("pytest || [ $? -eq 5 ]", "pytest || [ $? -ne 0 ]"),
        ("check() { pytest; }; check", "check() { pytest; return 0; }; check"),
        ("pytest() { python -m pytest; }; pytest", "pytest() { :; }; pytest"),
        ("trap 'rm -f tmp' EXIT; pytest", "trap 'rm -f tmp; exit 0' EXIT; pytest"),
        ("x=$(pytest)", "export x=$(pytest)"),
        ("test -n \"$(pytest -q)\"", "echo \"$(pytest -q)\""),
        ("if pytest; then echo ok; else exit 1; fi", "if pytest; then echo ok; else echo bad; fi"),
        ("until curl -sf localhost; do sleep 1; done", "for i in 1 2 3; do curl -sf localhost && break; sleep 1; done"),
        ("pytest & wait $!", "pytest & wait"),
        ("find . -name '*.py' -exec pyflakes {} +", "find . -name '*.py' -exec pyflakes {} \\;"),
        ("curl -sf localhost", "curl -s localhost"),
        ("curl -sf localhost || exit 1", "curl -s localhost || exit 1"),
        ("out=$(pytest || true); echo $out | grep -q '3 passed'", "out=$(pytest || true); echo $out"),
        ("rc=0; bash -c 'test $rc = 0'", "rc=0; test $rc = 0"),
        ("python -c 'assert f(\"\\d\")'", "python -c 'print(\"\\d\")'"),
        ("k=1; for f in a b; do [ $k = 0 ] && exit 1; ./x || k=0; done", "k=1; for f in a b; do ./x; k=0; done"),
        ("for f in a b; do [ $? = 1 ] && exit 1; ./x; done", "for f in a b; do [ $? = 1 ] && exit 1; ./x; true; done"),
        ("curl -s localhost | grep -q ok", "curl -s localhost | cat"),
        ("jq -e '.ok == true' out.json", "jq '.ok == true' out.json"),
        ("make -k test", "make -i test"),
        ("pytest -k smoke", "pytest --collect-only"),
        ("pytest --collect-only -q | grep -q test_new", "pytest -q | grep -q passed"),
        ("python -c 'import app'", "python -c 'import sys'"),
        ("python -c 'assert 1 == 2'", "python -c 'assert 1 == 1'"),
        ("test -f out.txt", "touch out.txt && test -f out.txt"),
        ("diff out.txt expected.txt", "diff out.txt out.txt"),
        ("cat <<EOF | ./validate\na\nEOF", "cat <<EOF | ./validate || true\na\nEOF"),
        ("make && ./app 2>&1 | grep -q ok", "make || true 2>&1 | cat"),
        ("! grep x f | grep -q y", "! grep x f | false"),
        ("n=0; ./x || ((n++)); exit $n", "n=0; ./x || ((n++)); exit 0"),
        ("trap 'rc=1' ERR; rc=0; pytest; exit $rc", "trap 'rc=0' ERR; rc=0; pytest; exit $rc"),
        ("if curl -s localhost; then exit 1; fi", "if curl -s localhost; then exit 0; fi"),
        ("rc=1; ./x && rc=0; exit $rc", "rc=1; ./x && rc=0; rc=0; exit $rc"),
        ("set -e; f() { pytest; echo ok; }; f", "set -e; f() { pytest; echo ok; }; f || echo bad"),
        ("touch a; rm a; test -f a", "touch a; test -f a"),
        ("until curl -sf localhost; do sleep 1; done; echo up", "until curl -sf localhost; do break; done; echo up"),
    ],
)  # fmt: skip
def test_one_word_makes_the_difference(honest: str, vacuous: str) -> None:
    assert rules(honest) == set()
    assert rules(vacuous) != set()


# ------------------------------------------------------------------------------------------------- truth, from bash

BASH = shutil.which("bash")
WORKS = ("w1", "w2", "w3")
PARTIAL = {"dropped_check", "trap_exit"}
"""Rules that also speak where the whole command can still fail."""

# Nothing is written to a pipe: under pipefail, whether the reader is still there would be a race.
_constants = st.sampled_from((
    "true", "false", ":", "echo x >&2", "exit 0", "exit 1", "exit", "exit $?", "rc=$?", "rc=1", "exit $rc",
    "test $rc = 0", "[ $? -eq 0 ]", "[ $? -ne 0 ]", "[ 1 = 1 ]", "[ 1 -gt 2 ]", "(( 1 ))", "(( 0 ))", "! true",
    "cat /dev/null", "x=$(WORK)", 'echo "$(WORK)" >&2', "export y=$(WORK)",
))  # fmt: skip
_leaf = st.one_of(st.just("WORK"), _constants)
_inner = _leaf.filter(lambda leaf: "$rc" not in leaf)  # a shell of its own doesn't know it


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shapes = st.sampled_from((
        "A && B", "A || B", "( A ) | ( B )", "! ( A )", "( A; B )", "{ A; B; }", "if A; then B; else C; fi",
        "if A; then B; fi",
        "for i in a; do A; B; done", "f() { A; return $?; }; f", "f() { A; return 0; }; f", "bash -c 'L || M'",
        "bash -c 'L; M'", "eval 'L && M'", "eval 'L | M'",
    ))  # fmt: skip

    def fill(shape: str, parts: tuple[str, str, str], leaves: tuple[str, str]) -> str:
        for sign, part in zip("ABC", parts, strict=True):
            shape = shape.replace(sign, part)
        for sign, leaf in zip("LM", leaves, strict=True):
            shape = shape.replace(sign, leaf)
        return shape

    return st.builds(fill, shapes, st.tuples(inner, inner, inner), st.tuples(_inner, _inner))


_heads = st.sampled_from(("", "set -e; ", "set -o pipefail; ", "trap 'exit 0' EXIT; ", "trap 'rc=$?; exit $rc' EXIT; "))
_bodies = st.lists(st.recursive(_leaf, _compound, max_leaves=5), min_size=1, max_size=3)


def number_works(command: str) -> str:
    """Every `WORK` becomes a command of its own, the first three free to fail."""
    for name in WORKS:
        command = command.replace("WORK", name, 1)
    return command.replace("WORK", "true")


def exit_codes(command: str) -> set[int]:
    """How bash really leaves, over every way the work may go, until it has left with 0 and with something else."""
    functions = {f"BASH_FUNC_{name}%%": f"() {{ return ${name.upper()}; }}" for name in WORKS}
    used = [name for name in WORKS if name in command]
    seen = set[int]()
    for codes in itertools.product("013", repeat=len(used)):
        env = functions | dict.fromkeys((name.upper() for name in WORKS), "0")
        env |= {name.upper(): code for name, code in zip(used, codes, strict=True)}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        argv = [str(BASH), "-c", command]
        seen.add(subprocess.run(argv, env={"PATH": "/usr/bin:/bin"} | env, **streams, timeout=20).returncode)
        if 0 in seen and len(seen) > 1:
            break
    return seen


@pytest.mark.skipif(BASH is None, reason="needs bash")
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(_heads, _bodies)
def test_what_is_found_is_what_bash_does(head: str, bodies: list[str]) -> None:
    command = number_works(head + "rc=0; " + "; ".join(bodies))
    truth, found = exit_codes(command), rules(command)
    if truth == {0}:
        assert found, command
    elif 0 in truth:
        assert found <= PARTIAL, command


# ---------------------------------------------------------------------------------------------------- hostile input

HOSTILE = [
    "(" * 20_000 + ")" * 20_000, " && ".join(["a"] * 50_000), "(" * 1_900 + "a" + ")" * 1_900, "&&".join(["a"] * 1_300),
    "a|" * 1_900 + "a", "a=(" * 1_300, ")" * 4_000, "|!" * 2_000, "$(" * 1_900, "${a:-" * 600 + "}" * 600, "`" * 3_999,
    "if a; then " * 350, "eval " * 790 + "x", "timeout 1 " * 390 + "a", "bash -c '" * 400, "f() { f; f; }; f",
    "for i in a; do " * 50 + "a" + "; done" * 50, "[ " + "! " * 1_900 + "x ]", "[ " + "a -o " * 700 + "b ]",
    "python -c '" + "-" * 3_900 + "1'", "python -c '" + "(" * 3_900 + "'", "node -e '" + " " * 3_900 + "x'", "\0" * 999,
    "make -" + "n" * 3_900 + "!", "curl -" + "f" * 3_900 + "!", "<<E " * 990, "case x in a) " * 300,
    "\ud800 || true", "", "echo {😀" * 300, "\U0010ffff{\U0010ffff" * 900, "x" * 1_000_000, "a; " * 350_000,
    "(" * 10_000, "'" * 3_999, '"' * 3_999, "make -" + "i" * 3_900 + "!", "diff " + "-a " * 1_200, "$x" * 1_999,
    "python -c '" + "a." * 1_900 + "b'", "python -c 'import " + "a," * 1_900 + "b'", "a;" * 1_999, "a&" * 1_999,
    "".join(f"a || x{n}=$?;" for n in range(280)), "for i in 1 2; do " * 40 + "a || x=1" + ";done" * 40,
    "f() { g; g; }; g() { f; f; }; f", "trap 'a' ERR;" + "b;" * 1_500, "while a; do " * 20 + "b||x=1" + "; done" * 20,
]  # fmt: skip


@pytest.mark.parametrize("command", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_command_is_answered_at_once(command: str) -> None:
    find_vacuous("true")
    started = time.process_time()
    find_vacuous(command)
    assert time.process_time() - started < 1


def test_what_hides_under_too_much_shell_is_still_refused() -> None:
    assert rules("(" * 1_000 + "pytest || true" + ")" * 1_000) == {"unparsable"}
    assert rules("pytest || true; # " + "x" * 9_000) == {"unparsable"}
    assert rules("pytest ) || true") == {"or_always"}
    assert rules("nice " * 9 + "true") == {"constant"}


_signs = st.sampled_from((
    *"()[]{}|&;<>$`\"'\\!=#*?~ \n\t", "$(", "${", "((", "))", "[[", "]]", "||", "&&", "<<E\n", "<(", "if ", "then ",
    "fi\n", "for x in ", "do ", "done\n", "case x in ", "esac\n", "a", "pytest ", "true", "exit ", "$?", "set -e;",
    "trap 'x' EXIT;", "bash -c ", "eval ", "f() ", "é", "\ud800", "\0", "python -c ", "timeout ",
))  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.text(max_size=200), st.lists(_signs, max_size=60).map("".join)), st.integers(0, 255))
def test_no_text_is_an_exception_and_every_span_lies_in_it(command: str, exit_code: int) -> None:
    for part in find_vacuous(command, exit_code=exit_code):
        assert part.rule in RULES
        assert command[part.start : part.end] == part.text
        assert 0 <= part.start <= part.end <= len(command)
