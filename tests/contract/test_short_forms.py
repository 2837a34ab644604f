"""Short forms of criteria: the same everywhere, in any case; what looks mistyped is refused, and honest prose isn't."""

import json
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from delegate import CallError, Delegator, contract
from delegate.cli.input.taskfile import read_task, read_tasks
from delegate.cli.input.workfile import read_criteria, to_task
from delegate.judging.checks.json_schema import check_schema
from delegate.models.providers.scripted import Scripted
from delegate.types.short_forms import SHORT_FORMS, expand

HONEST = """
Summary: names three risks
Note: the total is in euros
Result: a table with 40 rows
The report has three parts: scope, cost, risks
https://example.com/report is cited
http://localhost:8080 answers with 200
The meeting is at 14:30
14:30: the meeting starts
Files: every module has a docstring
Test: the suite passes on Python 3.11
Tests: all of them pass
Next: the release notes name the new option
Questions: all five are answered
Title: at most 60 characters
Texts: none is longer than a page
Rubrics: each has four levels
Manuals: both languages are there
Fine: the amount is 40 euros
Five: that many risks are named
Format: JSON with a total
Output: one line per customer
Input: the three CSV files are named
Language: the answer is in German
Length: at most 200 words
Style: no passive voice
Sources: at least two, with links
Ratio: 3:1 or better
Budget: $4,000 or less
Subject: Meeting on Monday
To: ann@example.com
From: the address of the team
Cc: nobody
Deadline: 2026-05-03
Risks: three, each with an owner
Warning: shown before anything is deleted
Error: the message names the field
Step 1: the data is loaded
Part two: the model is explained
Email: sent to Ann
Invoice: the number is 2026-17
Caller: the name is greeted
Jason: his comments are addressed
Jon: his section is kept
Shall we say: the text asks a question
TODO: none is left
FIXME: none is left
README: explains how to install it
API: every endpoint is documented
CSV: the header is unchanged
SQL: no query uses SELECT *
Python: 3.11 or later is required
Docs: the page on tiers is updated
C:\\Users\\ann\\report.txt is named
The answer is: 42
It says "done: yes"
Good: short. Bad: long
Key facts: dates, names, sums
Next steps: at least two
Open questions: listed at the end
Test plan: covers the failure cases
Exit: the program ends with code 0
Shells: bash and zsh are both covered
Film: the year is right
Who: the owner is named; when: the date is named
e.g.: two examples are given
File names: all in lower case
Text length: under 500 characters
Manual steps: numbered
JSON output: valid and sorted
Call to action: at the end
Recipe: serves four
Recalled: all three products are listed
Annual: the figures are for 2025
Shell scripts: all of them have a header
""".strip().splitlines()
"""Sentences as people and models write them."""

ABOUT_FILES = """
file sizes are sane: none above 1 MB
File names end in .md: no others exist
file names: all in lower case
file named out.txt: it has three rows
file called report.md: it names three risks
file contents of a.txt: sorted by date
file permissions of run.sh: executable by its owner
file size of a.bin: under 1 MB
file encoding of data.csv: UTF-8
file a.txt equals b.txt: not one byte differs
file a.txt is derived from b.txt: it has the same rows
file output.json and input.json: the same keys
file formats are .csv and .json: nothing else
file list in README.md: complete
File handling in app.py: every file is closed
file headers match template.txt: year and owner
file a.txt was moved to old/a.txt: nothing is left
File copied to out/b.csv: with all rows
file paths in config.yaml: all exist
file upload works: a PDF of 5 MB is accepted
file locks are released: no process waits
file system: no new folders outside out/
file extension is .txt: not .md
file version 2.1: listed in the changelog
file types are e.g. PDF: others are refused
file contents: the header, then 40 rows
file with the totals: it has one row per month
file from Ann: it is quoted
file order in archive.zip: by name
file a/b test results: both variants are named
file di testo a.txt: contiene tre righe
file creato in out.csv: ha quaranta righe
file di log app.log: nessun errore
file a.txt e b.txt: sono uguali
file generati dal programma: nessuno oltre 1 MB
file nella cartella out/: tre in tutto
File salvato come dati.json: valido
file d'attente vide: aucun message en attente
file d'attente dans queue.json: vide
file de tickets: triée par date
file op de A2: er wordt een omleiding genoemd
file a.txt en b.txt: gelijk
file van de dag: de langste wordt genoemd
File ada di data/out.csv: memiliki 40 baris
File keluaran hasil.csv: berisi 40 baris
File konfigurasi app.yaml: valid
file yang dibuat di out.csv: 40 baris
File enthält drei Zeilen: Kopf, Summe, Datum
File heißt out.csv: es hat 40 Zeilen
File-Namen enden auf .md: keine anderen
file ng ulat na report.md: may tatlong panganib
file çorap stokta: fiyatı yazıyor
filer i mappen out/: tre i alt
file path separators: always /
file names, e.g. a b.txt: quoted everywhere
file counts (see stats.json): the same before and after
file "a b.txt" and file c.txt: both exist
file foo.py, bar.py: both have a docstring
file watcher reacts to config.toml: a reload is logged
file dialog opens: the last folder is shown
file manager shows a.txt: with its size
file containing data.csv: zipped
file opens a.txt: and closes it
file equals b.txt: byte for byte
file imports utils.py: no other module
file extension ".md": used everywhere
file heißt out.csv: es hat 40 Zeilen
file chiamato dati.json: valido
file eseguibile run.sh: parte senza errori
file bernama out.csv: ada 40 baris
file konfigurasi app.yaml: valid
file genaamd uit.csv: veertig rijen
file utama main.py: punya docstring
file principale main.py: ha una docstring
file README and file LICENSE: both are there
file one.txt has two lines: a and b
file date is 2026-05-03: as in the mail
file hash is e3b0c4.42: as given
file server at example.com: answers with 200
file transfer to ftp.example.org: complete
file descriptor 3: closed
file no. 12: quoted in full
file in Excel format: opens without a warning
file for Mr. Smith: addressed to him
file numbers are Q1, Q2: in this order
file a tax return by April: said in the report
file suit against Acme Inc.: the date is named
file under Misc.: three entries
file Excel vendite.xlsx: ha tre fogli
file JSON hasil.json: valid
file 2 out.csv: has 40 rows
file my notes quote: it is cited
file Python main.py: ha una docstring
file CSV dati.csv: quaranta righe
File a and file b.txt: both are there
file x and file y.txt: the same
file (see a.txt): quoted
file data_out from run.py: sorted
file I/O in app.py: buffered
file {name} in braces: replaced
""".strip().splitlines()
"""Sentences that begin like `file PATH: …`, in several languages."""

UNQUOTED = """
file a b.txt: it has x
File a b c.txt: it has x
file docs/my notes.txt: it has x
file my_docs/old notes.txt: it has x
file (old) notes.txt: it has x
file {dir} {name}.txt: it has x
""".strip().splitlines()

MISTYPED = """
cmd: pytest -q
CMD: pytest -q
command: make test
Command: npm test
bash: ./check.sh
Bash: make
sh: test -f out.txt
zsh: make
shel: pytest -q
shll: pytest -q
sehll: pytest -q
shelll: pytest -q
shwll: pytest -q
Shel: pytest -q
SHEL : pytest -q
fil: out.csv
fiel: out.csv
flie: out.csv
filee: out.csv
ifle: out.csv
fle: out.csv
regexp: ^total
regx: ^total
rgex: ^total
regec: ^total
reggex: ^total
jsn: total === 3
josn: total === 3
jsom: total === 3
json_predicate: total === 3
calld: send_email
caled: send_email
callled: send_email
never caled: send_email
nver called: send_email
never call: send_email
receipt: send_email
quesiton: is it polite?
qestion: is it polite?
rubic: code_change
rubrik: code_change
manaul: looks right
txt: it is polite
files: out.csv
jason: total === 3
reciept: send_email
never cald: send_email
questioin: is it polite?
tetx: it is polite
json_schema: {"type": "object"}
probe: get_event
""".strip().splitlines()


def refused(text: str) -> bool:
    try:
        expand(text)
    except CallError as error:
        return bool(error.hint)
    return False


def test_honest_prose_with_a_colon_is_kept_and_mistypes_are_refused() -> None:
    wrong = [text for text in HONEST if refused(text) or expand(text) is not None]
    missed = [text for text in MISTYPED if not refused(text)]
    print(f"\nhonest sentences: {len(HONEST)}, refused or taken for a short form: {len(wrong)}")
    print(f"mistyped criteria: {len(MISTYPED)}, taken for prose: {len(missed)}")
    assert len(HONEST) >= 60
    assert len(MISTYPED) >= 40
    assert (wrong, missed) == ([], [])


def test_sentences_that_begin_with_file_are_kept_and_unquoted_paths_are_refused() -> None:
    wrong = [text for text in ABOUT_FILES if refused(text) or expand(text) is not None]
    assert len(ABOUT_FILES) >= 90
    assert (wrong, [text for text in UNQUOTED if not refused(text)]) == ([], [])
    for path in ("a b.txt", "{a column}", "it's"):
        assert expand(f'file "{path}": it has x') == {"kind": "text", "text": "it has x", "about": {"file": path}}
    assert (expand("file {a column}/x.md: it has x") or {})["about"] == {"file": "{a column}/x.md"}


@pytest.mark.parametrize("part", ["{a}", "{a", "a{", "a.b", "a ", "a/ ", "a.b :"])
def test_the_time_of_reading_a_long_text_grows_with_its_length(part: str) -> None:
    started = time.monotonic()
    with suppress(CallError):
        expand("file " + part * 30_000)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("file a b.txt: it has x", 'write `file "PATH": …`'),
        ("cmd: pytest -q", "did you mean `shell: …`?"),
        ("fiel: out.csv", "did you mean `file: …`?"),
        ("never caled: rm", "did you mean `never called: …`?"),
        ("bash: make", "write `text: bash: make`"),
        ("json_schema: {}", '{"kind": "json_schema", …}'),
        ("file: it names three risks", "for a statement about a file write `file PATH: …`"),
    ],
)
def test_the_hint_says_what_is_meant_and_how_to_keep_the_sentence(text: str, hint: str) -> None:
    with pytest.raises(CallError) as caught:
        expand(text)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("path", ["out/my annual report.md", "a b.csv", "my reports/last year/", "Makefile"])
def test_a_path_with_spaces_is_a_path(path: str) -> None:
    assert expand(f"FILE: {path}") == {"kind": "file", "path": path}


ARGUMENTS = {"shell": "make", "file": "a.md", "regex": "a", "json": "a === 1", "rubric": "code_change"}


def from_command_line(text: str, folder: Path) -> Any:
    return read_task({"goal": "g", "acceptance_criteria": [text]})


def from_task_file(text: str, folder: Path) -> Any:
    (folder / "t.json").write_text(json.dumps([{"goal": "g", "acceptance_criteria": [text]}]))
    return read_tasks(folder / "t.json")[0]


def from_yaml_list(text: str, folder: Path) -> Any:
    (folder / "c.yaml").write_text(f"- {json.dumps(text)}\n")
    return to_task("g", read_criteria(folder / "c.yaml"))


def from_lines(text: str, folder: Path) -> Any:
    (folder / "c.txt").write_text(text)
    return to_task("g", read_criteria(folder / "c.txt"))


def from_a_tool_call(text: str, folder: Path) -> Any:
    return contract.parse_call({"goal": "g", "acceptance_criteria": [text]}, check_schema=check_schema)[0]


WAYS = [from_command_line, from_task_file, from_yaml_list, from_lines, from_a_tool_call]


@pytest.mark.parametrize("way", WAYS)
def test_short_forms_are_the_same_everywhere_and_in_any_case(way: Any, tmp_path: Path) -> None:
    changes = cycle((str.lower, str.upper, str.title))
    for (word, form), change in zip(SHORT_FORMS.items(), changes, strict=False):
        argument = ARGUMENTS.get(word, "send_email")
        (criterion,) = way(f"{change(word)}: {argument}", tmp_path).acceptance_criteria
        expected = form(argument)
        assert criterion.kind == expected["kind"]
        (meant,) = contract.parse_call({"goal": "g", "acceptance_criteria": [expected]}, check_schema=check_schema)[
            0
        ].acceptance_criteria
        assert criterion == meant


@pytest.mark.parametrize("way", WAYS)
def test_a_mistyped_criterion_is_refused_everywhere(way: Any, tmp_path: Path) -> None:
    for text in ("cmd: make", "shel: make", '{"kind": "shell", ', "shell:"):
        with pytest.raises(CallError):
            way(text, tmp_path)
    (kept,) = way("Summary: names three risks", tmp_path).acceptance_criteria
    assert (kept.kind, kept.describe()) == ("text", "Summary: names three risks")
    (kept,) = way("text: cmd: is what it is called", tmp_path).acceptance_criteria
    assert (kept.kind, kept.describe()) == ("text", "cmd: is what it is called")


def test_a_tool_call_learns_of_every_problem_at_once() -> None:
    with pytest.raises(CallError) as caught:
        contract.parse_call(
            {"goal": "g", "acceptance_criteria": ["cmd: make", "fine", "fiel: a.md"]}, check_schema=check_schema
        )
    assert (caught.value.code, caught.value.field) == ("invalid_criterion", "acceptance_criteria[0]")
    assert "`acceptance_criteria[2]`" in caught.value.message
    assert "did you mean `shell: …`?" in (caught.value.hint or "")


OUTSIDE = ["/etc/passwd", "../secrets.txt", "a/../../b", "..", "/"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_outside_the_workspace_is_refused_before_anything_is_spent(path: str, home: Path) -> None:
    client = Scripted([])
    criteria: list[Any] = [f"file: {path}", {"kind": "file", "path": path, "exists": False}]
    async with Delegator(client=client) as delegator:
        for criterion in criteria:
            result = await delegator.call({"goal": "g", "acceptance_criteria": ["fine", criterion]})
            assert result.error is not None
            assert (result.error.code, result.error.field) == ("path_refused", "acceptance_criteria[1]")
            with pytest.raises(CallError) as caught:
                await delegator.judge(goal="g", acceptance_criteria=[criterion], report="done", workspace=home)
            assert caught.value.code == "path_refused"
    assert client.requests == []


async def test_paths_inside_the_workspace_are_accepted(home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    paths = ["a.md", "b/../a.md", "./a.md", str(tmp_path / "a.md")]
    criteria = [{"kind": "file", "path": path} for path in paths]
    async with Delegator(client=Scripted([])) as delegator:
        verdict = await delegator.judge(
            goal="g", acceptance_criteria=criteria, report="It is there.", workspace=tmp_path
        )
    assert verdict.verdict == "PASS", verdict.reasoning
