"""What is on record: tasks with their verdicts, and rulings on them."""

from collections.abc import Sequence
from contextlib import suppress

from pydantic import ValidationError

from delegate.judging import rulings as rulings_of
from delegate.judging.calibration.fitting import RuledRun
from delegate.judging.calibration.limits import JudgeLimits
from delegate.models.false_pass import FalsePassTable
from delegate.records.history import Records
from delegate.types import ChildRun, Ruling, RulingWord, Sampling, Verdict


class TaskRecords:
    """Reads recorded tasks, and records rulings on their verdicts. It is `delegator.records`.

    Raises DelegateError if the records can't be read or written.
    """

    def __init__(self, records: Records, limits: JudgeLimits | None) -> None:
        self._records, self._limits = records, limits
        self.read, self.runs, self.tasks = records.read, records.runs, records.tasks
        self.rulings, self.draw, self.disagreements = records.rulings, records.draw, records.disagreements

    async def verdicts(self, run_id: str | None = None) -> list[tuple[str, str, Verdict]]:
        """Return the handle, the run and the verdict of all tasks on record that have one, or of those of one run."""
        verdicts: list[tuple[str, str, Verdict]] = []
        for handle, run, text in await self._records.verdicts(run_id):
            with suppress(ValidationError):  # of another version of delegate
                verdicts.append((handle, run, Verdict.model_validate_json(text)))
        return verdicts

    async def rule(
        self,
        handle: str,
        criterion: str,
        ruling: RulingWord,
        *,
        by: str,
        because: str = "",
        sampling: Sampling = "chosen",
    ) -> list[Ruling]:
        """Record the word of a person, or of a check that is trusted, on a criterion of a recorded verdict.

        The verdict stays as it is. Rulings measure the judges, and `max_false_pass` relies on those of criteria that
        were drawn at random. If two judges answered, there is a ruling for each.

        Args:
            handle: The handle of the task.
            criterion: The id of the criterion.
            ruling: Whether it is really met.
            by: Who ruled: a person's name, or that of a check. A second ruling by the same person replaces the first.
            because: The reason.
            sampling: `random` only if the criterion was drawn at random among all that judges decided.

        Raises:
            CallError: There is no such verdict or criterion, or an argument is invalid.
        """
        record = await self.read(handle)
        new = rulings_of.rulings_on(record, handle, criterion, ruling, because=because, by=by, sampling=sampling)
        await self._store(new)
        return new

    async def import_rulings(self, text: str, *, by: str, sampling: Sampling = "chosen", name: str = "rulings") -> int:
        """Record rulings from JSON lines, all of them or none, and return their number.

        A line has the fields of `Ruling`, of which `task`, `criterion` and `ruling` are needed. With `judged`, it is
        about work judged elsewhere. Otherwise, `task` is the handle of a recorded task.

        Args:
            text: The lines.
            by: Who ruled, for lines without `ruled_by`.
            sampling: For lines without `sampling`.
            name: The name of the file, for errors.

        Raises:
            CallError: A line is invalid, or there is no such verdict. The error names the line.
        """
        new = await rulings_of.imported(rulings_of.read_rows(text, name, by=by, sampling=sampling), self.read)
        await self._store(new)
        return len(new)

    async def false_pass(self) -> FalsePassTable | None:
        """Return the measured error rates by which judges may decide alone; None without `max_false_pass`."""
        return await self._limits.table() if self._limits else None

    async def ruled_runs(self, rulings: Sequence[Ruling]) -> list[RuledRun]:
        """Return the completed runs on record that these rulings are about, to fit a detector to.

        A report isn't true if a criterion was ruled not met that the run's report should meet.
        """
        by_task: dict[str, list[Ruling]] = {}
        for ruling in rulings:
            by_task.setdefault(ruling.task, []).append(ruling)
        runs: list[RuledRun] = []
        for handle, about in by_task.items():
            record = await self.read(handle)
            run = None
            with suppress(ValidationError):  # of another version of delegate, or damaged
                run = ChildRun.model_validate(record["run"]) if record and record["run"] else None
            if run is not None and run.status == "completed":
                false = any(ruling.ruling == "not_met" for ruling in about)
                runs.append(RuledRun(run, false, about[0].rubric_version or handle))
        return runs

    async def _store(self, new: Sequence[Ruling]) -> None:
        if new:
            await self._records.rule(*new)
        if self._limits is not None:
            self._limits.refresh()
