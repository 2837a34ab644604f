"""Decides `probe` criteria: code calls a read-only tool after the run and looks at its result.

The call isn't the child's: it gets no receipt. Whatever keeps the tool from answering is an error, never met.
"""

import asyncio
from functools import partial
from typing import Any, cast

from delegate._util.cancellation import contained
from delegate._util.redaction import redactor
from delegate._util.threads import run_in_thread_if
from delegate.contract.matchers import Reference, matcher_in, reference, values_at
from delegate.judging.checks.json_schema import SchemaProblem, validate
from delegate.judging.checks.matching import CUT, result_of
from delegate.judging.checks.predicate.evaluate import PredicateError, evaluate
from delegate.judging.submission import Submission, result
from delegate.records.recorder import LARGE_CHARS, MAX_REPORT_CHARS
from delegate.types import CriterionResult, ProbeCriterion, Receipt
from delegate.types.codes import VerdictCode
from delegate.types.errors import ToolError
from delegate.types.ports import ToolOutput

SHOWN_CHARS = 300


class _Unbound(Exception):
    """An argument has no value. `code` says why."""

    def __init__(self, code: VerdictCode, reason: str) -> None:
        super().__init__(reason)
        self.code: VerdictCode = code


async def check(criterion: ProbeCriterion, submission: Submission) -> CriterionResult:
    """Call the tool and decide the criterion. Never raises, except CancelledError."""
    tool = next((tool for tool in submission.probe_tools if tool.name == criterion.tool and tool.read_only), None)
    if tool is None:
        reason = f"there is no read-only tool {criterion.tool!r}"
        return result(criterion, "error", "nobody", "probe_unavailable", reason)
    try:
        args = {name: _bound(value, submission) for name, value in criterion.args.items()}
    except _Unbound as error:
        return result(criterion, "error", "check", error.code, redactor.text(str(error)))
    try:
        async with submission.probing, asyncio.timeout(criterion.timeout_seconds):
            answer = await contained(tool.call(args))
            answer = answer if isinstance(answer, ToolOutput) else ToolOutput(answer)
    except TimeoutError:
        reason = f"{criterion.tool} took longer than {criterion.timeout_seconds:g} s"
        return result(criterion, "error", "check", "probe_timeout", reason)
    except Exception as error:  # the tool is the host's own code
        problem = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
        return _unanswered(criterion, problem)
    if answer.status != "ok":
        return _unanswered(criterion, answer.text)
    return await _decided(criterion, answer.text)


async def _decided(criterion: ProbeCriterion, text: str) -> CriterionResult:
    if len(text) > MAX_REPORT_CHARS:
        return _unanswered(criterion, f"its result has {len(text):,} characters")
    parse = partial(result_of, Receipt(tool=criterion.tool, status="ok", output=text))
    value = await run_in_thread_if(len(text) > LARGE_CHARS, parse)
    if value is CUT:
        return _unanswered(criterion, f"its result isn't valid JSON: {text}")
    try:
        if criterion.expr is not None:
            outcome = await evaluate(criterion.expr, value)
            fits, reason = outcome.holds, outcome.reason
        else:
            problem = await validate(value, criterion.schema_ or {})
            fits, reason = problem is None, problem or "matches the schema"
    except PredicateError as error:
        return result(criterion, "error", "check", "invalid_criterion", redactor.text(str(error)))
    except SchemaProblem as error:
        return result(criterion, "error", "check", "invalid_schema", str(error))
    source = f"check:{criterion.id}"
    redact = partial(redactor.text, text)
    evidence = (await run_in_thread_if(len(text) > LARGE_CHARS, redact))[:SHOWN_CHARS]
    reason = redactor.text(reason)
    outcome = "met" if fits else "not_met"
    return result(criterion, outcome, "check", outcome, reason, evidence=evidence, source=source)


def _unanswered(criterion: ProbeCriterion, problem: str) -> CriterionResult:
    reason = redactor.text(f"{criterion.tool} failed: {problem[:LARGE_CHARS]}")[: 2 * SHOWN_CHARS]
    return result(criterion, "error", "check", "probe_failed", reason)


def _bound(value: Any, submission: Submission) -> Any:
    match matcher_in(value):
        case ("from", path):
            return _value_of(reference(path), submission)
        case _ if isinstance(value, dict):
            return {name: _bound(part, submission) for name, part in cast("dict[str, Any]", value).items()}
        case _ if isinstance(value, list):
            return [_bound(part, submission) for part in cast("list[Any]", value)]
        case _:
            return value


def _value_of(source: Reference, submission: Submission) -> Any:
    """The value at the path in the result of the child's last successful call of the tool that has one."""
    if not submission.has_receipts:
        raise _Unbound(code="no_receipts", reason=submission.why_no_receipts)
    for receipt in reversed(submission.run.receipts):
        if receipt.tool != source.name or receipt.status != "ok":
            continue
        output = result_of(receipt)
        if output is CUT:
            reason = f"the result of {source.name} isn't recorded as a whole, so {source.path} isn't known"
            raise _Unbound(code="result_cut", reason=reason)
        values = values_at(output, source.path)
        if len(values) == 1:
            return values[0]
    reason = f"no successful call of {source.name} returned one value at {source.path}"
    raise _Unbound(code="probe_unbound", reason=reason)
