"""What judges decide of one submission: the page and the looks they get, a second judge where one isn't enough."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from delegate._util.threads import run_in_thread, run_in_thread_if
from delegate.judging.citations.decide import Examination, examine
from delegate.judging.frozen import FrozenWork
from delegate.judging.judge import citations, decide, escalation, rubric
from delegate.judging.judge.decide import OpenCriterion
from delegate.judging.judge.evidence import Evidence, gather
from delegate.judging.judge.reply import UnparseableReply, one_object
from delegate.judging.judge.session import JudgePool, JudgeReply, JudgeSession
from delegate.judging.judge.sources import Sources
from delegate.judging.looks.looks import Looking, Looks
from delegate.judging.looks.work import Work
from delegate.judging.proof.calls import Calls, recorded
from delegate.judging.reading.reader import PendingReading
from delegate.judging.reading.statements import TaskReading
from delegate.judging.rubrics import rubric_of
from delegate.judging.submission import Submission
from delegate.sandbox.commands.commands import Commands
from delegate.types import AnyCriterion, CitationsCriterion, CriterionResult, Finding, RubricCriterion

_Ask = Callable[[Sequence[AnyCriterion] | None], Awaitable[list[CriterionResult]]]
"""Asks a judge; with criteria, a second one about these only."""


@dataclass(slots=True)
class JudgeDecisions:
    """Asks judges about one submission."""

    pool: JudgePool
    commands: Commands
    submission: Submission
    session: JudgeSession
    reading: PendingReading
    work: FrozenWork
    findings: list[Finding]
    """Those of the verdict, to which what is found here is added."""
    looks_unsupported: bool
    """Whether the run looks like those whose reports weren't true."""
    is_large: bool
    """Whether work on the whole submission takes so long that it needs a thread."""
    looking: Looking = field(init=False)
    examined: dict[str, Examination] = field(default_factory=dict[str, Examination])
    """What code found of the criteria about citations, by their ids."""

    def __post_init__(self) -> None:
        record = self.session.recorder.looks
        self.looking = Looking(self.submission, self.commands, self.work, self.pool.looks, record)

    async def decide(
        self, criteria: Sequence[AnyCriterion], so_far: Sequence[CriterionResult]
    ) -> list[CriterionResult]:
        """Let a model decide: one question for all text criteria and questions, and one for each rubric.

        If the records decide some of the criteria, only the results of those: perhaps no model is needed any more.
        """
        submission, reading = self.submission, await self.reading.get()
        if settled := await self._settled_citations(criteria):
            return settled
        statements = [
            criterion for criterion in criteria if not isinstance(criterion, (RubricCriterion, CitationsCriterion))
        ]
        calls = recorded(submission, reading.effects)
        entries = await run_in_thread_if(self.is_large, partial(decide.opened, submission, statements, reading, calls))
        if any(entry.settled for entry in entries):
            return [settled for entry in entries if (settled := entry.settled) is not None]
        results: list[CriterionResult] = []
        for criterion in criteria:
            if isinstance(criterion, CitationsCriterion):
                ask = partial(self._supported_by_judge, self.examined[criterion.id or ""])
                results += await self._confirmed(ask, [*so_far, *results], undecided_too=False)
        rubrics = [criterion for criterion in criteria if isinstance(criterion, RubricCriterion)]
        if not entries and not rubrics:
            return results
        sources = Sources(submission, so_far, [part for entry in entries for part in entry.reading.parts])
        page = partial(gather, sources, self.pool.page_room)
        evidence, finished = await run_in_thread_if(self.is_large, page), Work(sources)
        self.findings += [finding for finding in evidence.findings if finding not in self.findings]
        if entries:
            ask = partial(self._decided_by_judge, entries, calls, evidence, finished)
            results += await self._confirmed(ask, [*so_far, *results], undecided_too=True)
        for criterion in rubrics:
            score = partial(self._scored_by_judge, criterion, reading, evidence, finished)
            results += await self._confirmed(score, [*so_far, *results], undecided_too=False)
        return results

    async def _settled_citations(self, criteria: Sequence[AnyCriterion]) -> list[CriterionResult]:
        """Let code decide about citations as far as it can: the results that need no judge."""
        settled: list[CriterionResult] = []
        for criterion in criteria:
            if isinstance(criterion, CitationsCriterion):
                id = criterion.id or ""
                if id not in self.examined:
                    self.examined[id] = await run_in_thread(partial(examine, criterion, self.submission))
                if (result := self.examined[id].settled) is not None:
                    settled.append(result)
        return settled

    async def _supported_by_judge(
        self, examination: Examination, again: Sequence[AnyCriterion] | None
    ) -> list[CriterionResult]:
        """Let a judge, or with `again` a second one, say whether the sources support what cites them."""
        build = partial(citations.questions, self.submission.asked, examination, self.pool.page_room)
        answers: list[citations.Answered] = []
        for question, cited, evidence in await run_in_thread(build):
            reply = await self.session.ask(question, [examination.criterion.id or ""], second=again is not None)
            read = await run_in_thread(partial(citations.read_reply, examination, cited, evidence, reply))
            if isinstance(read, CriterionResult):
                return [read]
            answers += read
        return [citations.combined(examination, answers)]

    async def _confirmed(
        self, ask: _Ask, so_far: Sequence[CriterionResult], *, undecided_too: bool
    ) -> list[CriterionResult]:
        """What a judge decides, with a second one of another family asked where the first isn't enough.

        That is where the first may not decide alone, where the child's run looks as if its report weren't true, and
        with `undecided_too`, once per verdict, where it couldn't decide or prove something.
        """
        session, recorder = self.session, self.session.recorder
        count = len(recorder.answered)
        first = results = await ask(None)
        met, doubt = escalation.met_ids(first), session.doubt(since=count)
        stands = set[str]() if doubt else met
        if self.pool.escalate and (doubt or not recorder.escalated):
            doubted = met if doubt or self.looks_unsupported else ()
            again = escalation.undecided_criteria(
                self.submission, first, so_far, doubted, undecided_too=undecided_too and not recorder.escalated
            )
            if again:
                families = {judge.model.family for judge in recorder.answered[count:]}
                count = len(recorder.answered)
                second = await ask(again)
                if (merged := escalation.merge(recorder, first, second)) is not None:
                    results = merged
                    agreed = escalation.met_ids(second)
                    stands -= {result.id for result in second}
                    other_doubt = session.doubt(since=count)
                    if other_doubt is not None:
                        other_families = {judge.model.family for judge in recorder.answered[count:]}
                        agreed &= met if other_families.isdisjoint(families) else set()
                    stands |= agreed
                    doubt = doubt or other_doubt
        return escalation.withheld(results, doubt, stands) if doubt else results

    def _decided_by_judge(
        self,
        entries: Sequence[OpenCriterion],
        calls: Calls,
        evidence: Evidence,
        finished: Work,
        again: Sequence[AnyCriterion] | None,
    ) -> Awaitable[list[CriterionResult]]:
        """Ask a judge about these criteria, or a second one about those in `again`, and verify the quotes."""
        selection = [entry for entry in entries if again is None or entry.criterion in again]
        size, second = self.pool.criteria_per_call or len(selection), again is not None
        parts = [selection[n : n + size] for n in range(0, len(selection), size)]
        asked = [self._answered_at_once(part, calls, evidence, finished, second) for part in parts]
        return asked[0] if len(asked) == 1 else _side_by_side(asked)

    async def _answered_at_once(
        self, entries: Sequence[OpenCriterion], calls: Calls, evidence: Evidence, finished: Work, second: bool
    ) -> list[CriterionResult]:
        """Ask one question about these criteria."""
        parts = [part.part for entry in entries for part in entry.parts if part.settled is None]
        looks = self.looking.offer(finished, parts, evidence, second=second)
        build = partial(decide.build_question, self.submission, entries, evidence, looks)
        question = await run_in_thread_if(self.is_large, build)
        reply = await self.session.ask(question, [entry.criterion.id or "" for entry in entries], second=second)
        seen = await _seen(evidence, looks, reply)
        parse = partial(decide.read_reply, self.submission, entries, calls, reply, seen)
        results = await run_in_thread_if(self.is_large or seen is not evidence, parse)
        self.looking.keep_quoted(results)
        return results

    async def _scored_by_judge(
        self,
        criterion: RubricCriterion,
        reading: TaskReading,
        evidence: Evidence,
        finished: Work,
        again: Sequence[AnyCriterion] | None,
    ) -> list[CriterionResult]:
        """Let a judge, or with `again` a second one, score the rubric. The findings of the first are kept."""
        dimensions, second = rubric_of(criterion).dimensions, again is not None
        readings = {each.id: reading.of(f"{criterion.id}.{each.id}", each.description) for each in dimensions}
        parts = [part for dimension_reading in readings.values() for part in dimension_reading.parts]
        looks = self.looking.offer(finished, parts, evidence, second=second)
        build = partial(rubric.build_question, self.submission.asked, criterion, evidence, looks)
        question = await run_in_thread_if(self.is_large, build)
        reply = await self.session.ask(question, [criterion.id or ""], second=second)
        seen = await _seen(evidence, looks, reply)
        parse = partial(rubric.read_reply, criterion, reply, seen, readings)
        scored, findings = await run_in_thread_if(self.is_large or seen is not evidence, parse)
        self.looking.keep_quoted([scored])
        self.findings += findings if again is None else []
        return [scored]


async def _side_by_side(asked: Sequence[Coroutine[Any, Any, list[CriterionResult]]]) -> list[CriterionResult]:
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(question) for question in asked]
    return [result for task in asking for result in task.result()]


async def _seen(evidence: Evidence, looks: Looks | None, reply: JudgeReply) -> Evidence:
    """What the judge saw: the page and its looks, with what the commands that it quotes print without the work."""
    if looks is None or not looks.any_made:
        return evidence
    await looks.try_commands(_quotes(reply.reply.text) if reply.reply is not None else ())
    return await run_in_thread(partial(looks.added_to, evidence))


def _quotes(text: str) -> list[str]:
    """The quotes in a judge's reply by which something is met, or gets a score."""
    try:
        values = cast("list[object]", list(one_object(text).values()))
    except UnparseableReply:
        return []
    items = [item for value in values if isinstance(value, list) for item in cast("list[object]", value)]
    answers = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    return [str(answer.get("evidence", "")) for answer in answers if answer.get("verdict") in ("met", None)]
