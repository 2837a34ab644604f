"""What a report says of runs, batches and tasks, however they ended."""

import os
import time
from pathlib import Path

import pytest

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from delegate.pages.amounts import duration
from delegate.pages.lanes import Course, timeline
from delegate.pages.quotes import find_quote
from delegate.pages.reading import RunReader
from delegate.types.errors import CallError
from delegate.types.ports import ChatReply, ChatRequest
from tests.pages import recorded
from tests.support.words import met_by, words

RIVER = "the report names a river"


async def test_the_headline_counts_costs_and_times(home: Path) -> None:
    client = words(recorded.child("It is the Rhine."), met_by("It is the Rhine."))
    result = await recorded.run(client, *({"goal": f"Name {n}", "acceptance_criteria": [RIVER]} for n in range(2)))
    view = await recorded.view(home, result.run_id)
    assert (view.kind, view.tally, view.tone, view.state) == ("run", "2 of 2 PASS", "pass", "ended")
    assert [figure.split()[0].strip("$0123456789.") for figure in view.figures] == ["", "verification", ""]
    assert not any(task.is_open for task in view.tasks)
    assert [row.who for row in view.bill] == ["children", "judges", "total"]


async def test_a_quote_is_shown_where_it_stands_in_its_file(home: Path) -> None:
    poem = "first line\nOld  river,\nteach me\nlast line\n"
    client = words(recorded.child(**{"poem.txt": poem}), met_by("Old river, teach me"))
    criteria = ["poem.txt asks a river to teach"]
    result = await recorded.run(client, {"goal": "Write a poem", "acceptance_criteria": criteria})
    (task,) = (await recorded.view(home, result.run_id)).tasks
    (criterion,) = task.criteria
    assert criterion.excerpt is not None
    assert (criterion.place, criterion.excerpt.quote) == ("poem.txt", "Old  river,\nteach me")
    assert criterion.excerpt.before == "first line\n"
    assert criterion.commands[0] == f"delegate rule {result.results[0].handle} c1 met"


async def test_a_quote_whose_file_is_gone_is_shown_without_its_source(home: Path) -> None:
    client = words(recorded.child(**{"poem.txt": "Old river, teach me\n"}), met_by("Old river, teach me"))
    result = await recorded.run(client, {"goal": "Write", "acceptance_criteria": ["poem.txt asks a river to teach"]})
    (Path(result.results[0].workspace or "") / "poem.txt").unlink()
    (criterion,) = (await recorded.view(home, result.run_id)).tasks[0].criteria
    assert (criterion.excerpt, criterion.evidence, criterion.place) == (None, "Old river, teach me", "poem.txt")


def test_quotes_are_found_across_white_space_and_typography() -> None:
    found = find_quote('it\'s "done"', "So it\u2019s\n\u201cdone\u201d.")
    assert found is not None
    assert found.quote == "it\u2019s\n\u201cdone\u201d"
    assert find_quote("never said", "So it is.") is None
    assert find_quote(" \u200b ", "So it is.") is None
    assert find_quote("a (b [c", "x a (b [c y") is not None


@pytest.mark.slow
def test_a_quote_made_to_be_searched_for_long_is_not() -> None:
    started = time.process_time()
    assert find_quote("a " * 1_999 + "b", "a  " * 100_000) is None
    assert time.process_time() - started < 0.5


async def test_a_pass_on_trust_is_folded_and_marked(home: Path) -> None:
    criteria = [{"kind": "manual", "text": "somebody looked at it"}]
    result = await recorded.run(words(recorded.child()), {"goal": "one", "acceptance_criteria": criteria})
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert (task.word, task.tone, task.is_open) == ("PASS", "warn", False)
    assert "1 on trust (trusted: c1)" in task.why


async def test_a_link_out_of_the_workspace_is_not_read(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("Old river, teach me: secret")
    client = words(recorded.child(**{"poem.txt": "Old river, teach me\n"}), met_by("Old river, teach me"))
    result = await recorded.run(client, {"goal": "Write", "acceptance_criteria": ["poem.txt asks a river to teach"]})
    poem = Path(result.results[0].workspace or "") / "poem.txt"
    poem.unlink()
    poem.symlink_to(tmp_path / "secret.txt")
    assert "secret" not in await recorded.html(home, result.run_id)


async def test_pipes_and_changed_files_in_a_workspace_are_told(home: Path) -> None:
    result = await recorded.run(words(recorded.child(**{"a.txt": "one\n", "b.txt": "two\n"})), {"goal": "Write"})
    folder = Path(result.results[0].workspace or "")
    (folder / "a.txt").write_text("one\nmore\n")
    (folder / "b.txt").unlink()
    os.mkfifo(folder / "b.txt")
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert [(one.path, one.note.split(" ")[0], one.text) for one in task.files] == [
        ("a.txt", "the", "one\nmore\n"),
        ("b.txt", "its", ""),
    ]


async def test_secrets_in_files_are_removed(home: Path) -> None:
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    result = await recorded.run(words(recorded.child(**{"a.txt": "x"})), {"goal": "Write"})
    (Path(result.results[0].workspace or "") / "a.txt").write_text(f"the key is {key}")
    html = await recorded.html(home, result.run_id)
    assert "the key is " in html
    assert key not in html


async def test_a_task_without_criteria_has_no_verdict(home: Path) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "Just do it"})
    view = await recorded.view(home, result.run_id)
    (task,) = view.tasks
    assert (task.word, task.tone, view.tally) == ("NO VERDICT", "none", "0 of 1 PASS")
    assert "nothing was checked" in task.why


async def test_a_lost_process_is_an_unknown_outcome_and_an_unknown_cost(home: Path) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"}, {"goal": "two"})
    recorded.reopen(home, result.results[1].handle, process="1/1/gone")
    view = await recorded.view(home, result.run_id)
    assert (view.tasks[1].word, view.tasks[1].tone) == ("OUTCOME UNKNOWN", "warn")
    assert view.figures[0].startswith("cost unknown (known part $")
    assert view.bill[-1].cost.startswith("unknown")
    assert view.state != "running"


async def test_a_running_task_shows_what_it_did_so_far(home: Path) -> None:
    client = words(recorded.child("I did the work.", **{"a.txt": "hello"}), met_by("I did the work."))
    result = await recorded.run(client, {"goal": "one", "acceptance_criteria": ["the report says so"]})
    recorded.reopen(home, result.results[0].handle)
    view = await recorded.view(home, result.run_id)
    (task,) = view.tasks
    assert (view.state, task.word, task.report) == ("running", "RUNNING", "I did the work.")
    assert [call.tool for call in task.calls] == ["write_file"]
    assert view.figures[0].endswith(" so far")
    assert [one.outcome for one in task.criteria] == ["open"]


async def test_a_fail_because_nobody_could_look_is_told_apart(home: Path) -> None:
    client = words(recorded.child("It is the Rhine."), "no JSON at all")
    result = await recorded.run(client, {"goal": "Name", "acceptance_criteria": [RIVER]})
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert (task.word, task.tone, task.code) == ("FAIL", "warn", "judge_unparseable")
    assert task.why.startswith("nobody could look: ")
    both = {"goal": "Name", "acceptance_criteria": [RIVER]}, {"goal": "b", "acceptance_criteria": ["file: b.txt"]}
    await recorded.run(words(recorded.child("It is the Rhine."), "no JSON at all"), *both)
    await recorded.batch(client, [("a", {"goal": "Name", "acceptance_criteria": [RIVER]}, {})])
    async with RunReader(home) as reader:
        lines = await reader.runs()
        assert [line.tone for line in lines] == ["warn", "fail", "warn"]
        assert [(await reader.view(line.run_id)).tone for line in lines] == ["warn", "fail", "warn"]
    recorded.execute(home, "UPDATE tasks SET result = '{' WHERE handle = ?", result.results[0].handle)
    async with RunReader(home) as reader:
        assert len(await reader.runs()) == 3


async def test_the_timeline_tells_the_child_from_its_judge(home: Path) -> None:
    client = words(recorded.child("It is the Rhine."), met_by("It is the Rhine."))
    result = await recorded.run(client, {"goal": "Name", "acceptance_criteria": [RIVER]})
    sql = "UPDATE events SET at = (SELECT began_at FROM tasks) + ? WHERE kind = ?"
    for seconds, kind in ((1, "child.started"), (5, "child.usage"), (5, "child.done"), (6, "judge.asked")):
        recorded.execute(home, sql, seconds, kind)
    recorded.execute(home, sql, 9, "judge.done")
    recorded.execute(home, sql, 9, "verdict")
    recorded.execute(home, "UPDATE tasks SET ended_at = began_at + 10")
    view = await recorded.view(home, result.run_id)
    assert view.timeline is not None
    (lane,) = view.timeline.lanes
    assert [(one.kind, one.x, one.width) for one in lane.segments] == [
        ("wait", 0, 100),
        ("child", 100, 400),
        ("check", 500, 100),
        ("judge", 600, 300),
    ]
    assert lane.summary == "wait 1.0 s, child 4.0 s, check 1.0 s, judge 3.0 s"


@pytest.mark.parametrize("kind", ["child.waiting", "judge.waiting"])
async def test_a_wait_is_drawn_on_top_of_the_work_that_it_held_up(home: Path, kind: str) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"})
    recorded.execute(home, "DELETE FROM events WHERE kind <> 'child.started'")
    recorded.execute(home, "UPDATE events SET at = (SELECT began_at FROM tasks)")
    waited = '{"reason": "rate_limit", "seconds": 4}'
    recorded.execute(home, "INSERT INTO events SELECT handle, at + 5, ?, ? FROM events", kind, waited)
    recorded.execute(home, "UPDATE tasks SET ended_at = began_at + 10")
    view = await recorded.view(home, result.run_id)
    assert view.timeline is not None
    parts = view.timeline.lanes[0].segments
    assert [(one.kind, one.x, one.width) for one in parts] == [("child", 0, 1_000), ("wait", 100, 400)]
    assert ("waited", "4.0 s, rate limit") in [(step.label, step.detail) for step in view.tasks[0].steps]


async def test_claims_say_when_they_were_made_and_why_they_were_refused(home: Path) -> None:
    result = await recorded.goal_run("It is the Rhine.")
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert [(one.number, one.outcome, one.tone) for one in task.claims] == [
        ("1", "refused", "fail"),
        ("2", "refused", "fail"),
        ("3", "verified", "pass"),
    ]
    first = task.claims[0]
    assert (first.rationale, first.at.startswith("after ")) == ("It is the Rhine.", True)
    assert first.refused == [(RIVER, "The judge says not_met.")]
    assert ("goal", "ended as verified, 3 claims") in task.facts


async def test_the_bill_has_the_judge_of_each_claim(home: Path) -> None:
    result = await recorded.goal_run("a long reason " * 2_000)
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert [(row.who, row.model) for row in task.bill[1:3]] == [("judge", "of claim 1"), ("judge", "of claim 3")]
    child, *judges, total = (float(row.cost.split()[0].strip("~$")) for row in task.bill)
    assert child + sum(judges) == pytest.approx(total, abs=0.0002)


async def test_a_claim_that_is_not_judged_yet_is_told(home: Path) -> None:
    result = await recorded.goal_run()
    recorded.execute(home, "DELETE FROM events WHERE kind = 'claim.judged' AND json_extract(data, '$.n') = 3")
    recorded.reopen(home, result.results[0].handle)
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert [one.outcome for one in task.claims] == ["refused", "refused", "not judged yet"]


async def test_the_child_works_again_after_a_refused_claim_in_the_timeline(home: Path) -> None:
    events = [
        {"kind": kind, "at": at, "seconds": None}
        for at, kind in (
            (0, "child.started"), (10, "claim.made"), (20, "judge.asked"), (30, "judge.done"), (40, "claim.judged"),
            (90, "child.done"),
        )
    ]  # fmt: skip
    course = timeline([Course("1", "t1", "a task", 0, 100, events)])
    assert course is not None
    drawn = [(one.kind, one.x, one.width) for one in course.lanes[0].segments]
    assert ("child", 400, 500) in drawn
    assert ("judge", 200, 100) in drawn


async def test_a_record_of_another_version_spoils_no_report(home: Path) -> None:
    client = words(recorded.child("It is the Rhine."), met_by("It is the Rhine."))
    criteria = [RIVER]
    result = await recorded.run(client, *({"goal": f"Name {n}", "acceptance_criteria": criteria} for n in range(3)))
    for n, column, change in ((0, "result", "'$.newer', 1"), (1, "result", "'$.verdict.criteria[0].outcome', 'maybe'")):
        handle = result.results[n].handle
        recorded.execute(home, f"UPDATE tasks SET {column} = json_set({column}, {change}) WHERE handle = ?", handle)
    view = await recorded.view(home, result.run_id)
    assert [task.word for task in view.tasks] == ["UNREADABLE", "UNREADABLE", "PASS"]
    assert (view.tasks[0].goal, view.figures[0][:12]) == ("Name 0", "cost unknown")
    assert "another version of delegate" in view.tasks[0].why


@pytest.mark.parametrize(
    ("kind", "data"), [("child.usage", "{}"), ("child.waiting", "{}"), ("of.tomorrow", '{"a": 1}')]
)
async def test_events_of_another_version_spoil_no_report(home: Path, kind: str, data: str) -> None:
    result = await recorded.run(words(recorded.child("It is the Rhine.")), {"goal": "Name one"}, {"goal": "Name two"})
    handle = result.results[0].handle
    recorded.execute(home, "INSERT INTO events VALUES (?, ?, ?, ?)", handle, time.time(), kind, data)
    html = await recorded.html(home, result.run_id)
    assert ("UNREADABLE" in html) == (kind != "of.tomorrow")


def test_thousands_of_short_waits_are_drawn_as_few() -> None:
    waits = [{"kind": "child.waiting", "at": 1 + n / 100, "seconds": 0.005} for n in range(9_000)]
    course = timeline([Course("1", "t1", "a task", 0, 100, [{"kind": "child.started", "at": 0}, *waits])])
    assert course is not None
    assert [one.title for one in course.lanes[0].segments] == ["child 1 min 40 s", "wait 45 s"]


async def test_a_lost_run_lasted_until_it_was_last_heard_of(home: Path) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"})
    recorded.reopen(home, result.results[0].handle, process="1/1/gone")
    recorded.execute(home, "UPDATE events SET at = (SELECT began_at + 42 FROM tasks)")
    view = await recorded.view(home, result.run_id)
    assert (view.tasks[0].word, view.figures[-1]) == ("OUTCOME UNKNOWN", "42 s")


async def test_rulings_stand_at_their_criterion_and_in_the_row(home: Path) -> None:
    client = words(recorded.child("It is the Rhine."), met_by("It is the Rhine."))
    result = await recorded.run(client, *({"goal": f"Name {n}", "acceptance_criteria": [RIVER]} for n in range(2)))
    async with Delegator(client=client) as delegator:
        await delegator.records.rule(
            result.results[0].handle or "", "c1", "not_met", by="Ana", because="That is a city."
        )
        await delegator.records.rule(result.results[1].handle or "", "c1", "not_met", by="Ana")
        await delegator.records.rule(result.results[1].handle or "", "c1", "met", by="Bo")
    disputed, settled = (await recorded.view(home, result.run_id)).tasks
    ((text, because, tone),) = disputed.criteria[0].ruled
    assert (text.partition(" (")[0], because, tone) == (
        "Ana ruled: not met", "That is a city.", "warn",
    )  # fmt: skip
    assert (disputed.word, disputed.is_open) == ("PASS", True)
    assert disputed.why.endswith("; but Ana ruled c1 not met")
    assert [tone for _, _, tone in settled.criteria[0].ruled] == ["warn", "none"]
    assert (settled.is_open, "ruled" in settled.why) == (False, False)


async def test_a_copied_workspace_shows_what_was_changed(home: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "a.txt").write_text("one\ntwo\n")
    client = words(recorded.child(**{"a.txt": "one\nthree\n"}))
    result = await recorded.run(client, {"goal": "Change", "workspace": {"mode": "copy", "path": str(given)}})
    (task,) = (await recorded.view(home, result.run_id)).tasks
    assert [line for line in task.files[0].lines if line[0] in ("add", "del")] == [("del", "-two"), ("add", "+three")]


async def test_a_batch_is_filtered_by_verdict_code_and_column(home: Path) -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        return "nothing" if "fail" in request.messages[0].text.splitlines()[0] else "did my part"

    did = [{"kind": "regex", "pattern": "did my part"}]
    rows = [
        (f"row-{n}", {"goal": goal, "acceptance_criteria": did}, {"region": ("EU", "US")[n % 2], "name": f"n{n}"})
        for n, goal in enumerate(["fine", "fail", "fine", "fine", "fail", "fine"])
    ]
    view = await recorded.view(home, await recorded.batch(Scripted(answer), rows))
    assert (view.kind, view.tally) == ("batch", "4 of 6 PASS")
    assert {one.label: [(value, count) for value, _, count in one.choices] for one in view.filters} == {
        "verdict": [("PASS", 4), ("FAIL", 2)],
        "code": [("met", 4), ("not_met", 2)],
        "region": [("EU", 3), ("US", 3)],
    }
    assert [task.is_open for task in view.tasks] == [task.word == "FAIL" for task in view.tasks]
    assert ("region", "US") in view.tasks[1].facts
    _, key, _ = view.filters[0].choices[1]
    assert f'option[value="{key}"]:checked) .task:not(.{key}){{display:none}}' in await recorded.html(home, view.run_id)


async def test_a_batch_whose_records_were_removed_is_still_reported(home: Path) -> None:
    did = [{"kind": "regex", "pattern": "work"}]
    id = await recorded.batch(words(recorded.child()), [("a", {"goal": "go", "acceptance_criteria": did}, {"x": "1"})])
    recorded.execute(home, "DELETE FROM tasks")
    (task,) = (await recorded.view(home, id)).tasks
    assert (task.word, task.report, task.goal) == ("PASS", "I did the work.", "1")


async def test_one_task_is_reported_by_its_handle_and_nothing_by_others(home: Path) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"}, {"goal": "two"})
    view = await recorded.view(home, result.results[1].handle)
    assert (view.kind, view.title, len(view.tasks)) == ("task", "two", 1)
    with pytest.raises(CallError, match="no record 'nothing'"):
        await recorded.view(home, "nothing")


async def test_the_list_has_runs_and_batches_newest_first(home: Path) -> None:
    await recorded.run(words(recorded.child()), {"goal": "one"})
    await recorded.batch(words(recorded.child()), [("a", {"goal": "go"}, {})])
    async with RunReader(home) as reader:
        assert [(line.kind, line.tone) for line in await reader.runs()] == [("batch", "none"), ("run", "none")]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0 ms"),
        (0.04, "40 ms"),
        (0.3, "0.3 s"),
        (48.2, "48 s"),
        (59.7, "1 min"),
        (125, "2 min 5 s"),
        (4_350, "1 h 12 min"),
    ],
)
def test_durations_are_in_the_units_that_suit_them(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


async def test_what_a_child_delegated_is_shown_and_not_counted(home: Path) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"}, {"goal": "two"}, {"goal": "three"})
    recorded.execute(home, "UPDATE tasks SET depth = 1, task_index = 0 WHERE handle = ?", result.results[1].handle)
    view = await recorded.view(home, result.run_id)
    assert (view.tally, view.title) == ("0 of 2 PASS", "one and 1 more")
    assert [(task.goal, task.number, task.depth) for task in view.tasks] == [
        ("one", "1", 0),
        ("three", "2", 0),
        ("two", "", 1),
    ]
    assert "delegated by a child:" in await recorded.html(home, result.run_id)
