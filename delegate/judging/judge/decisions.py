"""What judges decide of one submission: the page and the looks they get, a second judge where one isn't enough."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from delegate.judging.frozen import FrozenWork
from delegate.judging.judge import decide, escalation, rubric
from delegate.judging.judge.decide import OpenCriterion
from delegate.judging.judge.evidence import Evidence, gather
from delegate.judging.judge.session import JudgePool, JudgeSession
from delegate.judging.judge.sources import Sources
from delegate.judging.looks.looks import Looking
from delegate.judging.proof.calls import Calls
from delegate.judging.reading.reader import PendingReading
from delegate.judging.reading.statements import TaskReading
from delegate.judging.rubrics import rubric_of
from delegate.judging.submission import Submission
from delegate.sandbox.commands import Commands
from delegate.sandbox.threads import run_in_thread, run_in_thread_if
from delegate.types import AnyCriterion, CriterionResult, Finding, RubricCriterion, StatementPart

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

    async def decide(
        self, criteria: Sequence[AnyCriterion], so_far: Sequence[CriterionResult]
    ) -> list[CriterionResult]:
        """Let a model decide: one question for all text criteria and questions, and one for each rubric.

        If the records decide some of the criteria, only the results of those: perhaps no model is needed any more.
        """
        submission, reading = self.submission, await self.reading.get()
        stated = [criterion for criterion in criteria if not isinstance(criterion, RubricCriterion)]
        calls = decide.calls_of(submission, reading)
        opened = await run_in_thread_if(self.is_large, partial(decide.opened, submission, stated, reading, calls))
        if any(one.settled for one in opened):
            return [found for one in opened if (found := one.settled) is not None]
        looking = self._looking([part for one in opened for part in one.reading.parts], so_far)
        evidence = await self._gather(looking)
        results: list[CriterionResult] = []
        if opened:
            ask = partial(self._decided_by_judge, opened, calls, evidence, looking)
            results = await self._confirmed(ask, so_far, undecided_too=True)
        for criterion in criteria:
            if isinstance(criterion, RubricCriterion):
                score = partial(self._scored_by_judge, criterion, reading, evidence, looking)
                results += await self._confirmed(score, [*so_far, *results], undecided_too=False)
        return results

    def _looking(self, parts: Sequence[StatementPart], so_far: Sequence[CriterionResult]) -> Looking:
        """What judges may see of the work to decide these parts."""
        sources = Sources(self.submission, so_far, parts)
        pool, record = self.pool, self.session.recorder.looks
        return Looking(sources, self.commands, self.work, pool.looks, record)

    async def _gather(self, looking: Looking) -> Evidence:
        """The page for a judge. What was found while it was put together becomes a finding of the verdict."""
        page = partial(gather, looking.sources, self.pool.page_room)
        evidence = await run_in_thread_if(self.is_large, page)
        self.findings += [finding for finding in evidence.findings if finding not in self.findings]
        return evidence

    async def _confirmed(
        self, ask: _Ask, so_far: Sequence[CriterionResult], *, undecided_too: bool
    ) -> list[CriterionResult]:
        """What a judge decides, with a second one of another family asked where the first isn't enough.

        That is where the first may not decide alone, where the child's run looks as if its report weren't true, and
        with `undecided_too`, once per verdict, where it couldn't decide or prove something.
        """
        session, recorder = self.session, self.session.recorder
        first = results = await ask(None)
        met, doubt = escalation.met_ids(first), session.doubt()
        stands = set[str]() if doubt else met
        if self.pool.escalate and (doubt or not recorder.escalated):
            doubted = met if doubt or self.looks_unsupported else ()
            again = escalation.undecided_criteria(
                self.submission, first, so_far, doubted, undecided_too=undecided_too and not recorder.escalated
            )
            if again:
                family = recorder.answered[-1].model.family
                second = await ask(again)
                results = escalation.merge(recorder, first, second)
                if escalation.is_usable(second):
                    agreed = escalation.met_ids(second)
                    stands -= {one.id for one in second}
                    other_doubt = session.doubt()
                    if other_doubt is not None:
                        agreed &= met if recorder.answered[-1].model.family != family else set()
                    stands |= agreed
                    doubt = doubt or other_doubt
        return escalation.withheld(results, doubt, stands) if doubt else results

    async def _decided_by_judge(
        self,
        opened: Sequence[OpenCriterion],
        calls: Calls,
        evidence: Evidence,
        looking: Looking,
        again: Sequence[AnyCriterion] | None,
    ) -> list[CriterionResult]:
        """Ask a judge about these criteria, or a second one about those in `again`, and verify the quotes."""
        asked = [one for one in opened if again is None or one.criterion in again]
        size, second = self.pool.criteria_per_call or len(asked), again is not None
        if size >= len(asked):
            return await self._answered_at_once(asked, calls, evidence, looking, second)
        parts = [asked[n : n + size] for n in range(0, len(asked), size)]
        async with asyncio.TaskGroup() as group:
            asking = [
                group.create_task(self._answered_at_once(part, calls, evidence, looking, second)) for part in parts
            ]
        return [result for task in asking for result in task.result()]

    async def _answered_at_once(
        self, asked: Sequence[OpenCriterion], calls: Calls, evidence: Evidence, looking: Looking, second: bool
    ) -> list[CriterionResult]:
        """Ask one question about these criteria."""
        looks = looking.offer([part.part for one in asked for part in one.parts if part.settled is None], evidence)
        build = partial(decide.build_question, self.submission, asked, evidence, looks)
        reply = await self.session.ask(await run_in_thread_if(self.is_large, build), second=second)
        has_looked = False
        if looks is not None and looks.any_made:
            has_looked = True
            evidence = await run_in_thread(partial(looks.added_to, evidence))
        read = partial(decide.read_reply, self.submission, asked, calls, reply, evidence)
        return await run_in_thread_if(self.is_large or has_looked, read)

    async def _scored_by_judge(
        self,
        criterion: RubricCriterion,
        reading: TaskReading,
        evidence: Evidence,
        looking: Looking,
        again: Sequence[AnyCriterion] | None,
    ) -> list[CriterionResult]:
        """Let a judge, or with `again` a second one, score the rubric. The findings of the first are kept."""
        readings = {
            one.id: reading.of(f"{criterion.id}.{one.id}", one.description) for one in rubric_of(criterion).dimensions
        }
        looks = looking.offer([part for one in readings.values() for part in one.parts], evidence)
        build = partial(rubric.build_question, self.submission.task.goal, criterion, evidence, looks)
        reply = await self.session.ask(await run_in_thread_if(self.is_large, build), second=again is not None)
        seen = looks.added_to(evidence) if looks else evidence
        read = partial(rubric.read_reply, criterion, reply, seen, readings)
        scored, findings = await run_in_thread_if(self.is_large, read)
        self.findings += findings if again is None else []
        return [scored]
