"""A verdict as JUnit XML: one test case per criterion.

A criterion that the work doesn't meet is a `failure`, one that couldn't be examined an `error`.
"""

import re
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from delegate._util.fencing import clean, one_line
from delegate.cli.ci.problems import TITLE_CHARS, VERDICT, about_of, bounded, message_of
from delegate.types import PASSING, CriterionResult, Verdict

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 can't contain, not even escaped."""


def document(verdict: Verdict, goal: str, problems: Sequence[CriterionResult]) -> str:
    """The XML document."""
    by_id = {problem.id: problem for problem in problems}
    suite = Element("testsuite", name=_text(one_line(goal, TITLE_CHARS)))
    judge = verdict.judge
    facts: dict[str, object] = {
        **{name: getattr(verdict, name) for name in ("verdict", "code", "decided_by", "level", "verified", "examined")},
        "reasoning": bounded(verdict.reasoning),
        "score": verdict.score if verdict.examined else None,  # else it is about the rest of the criteria
        "judge": judge.model if judge else None,
        "judge_cost_usd": judge.cost_usd if judge else None,
        "rubric_version": verdict.rubric_version,
        "judge_version": verdict.judge_version,
    }
    _properties(suite, facts)
    cases = [_case(suite, criterion, by_id.get(criterion.id)) for criterion in verdict.criteria]
    if VERDICT in by_id and by_id[VERDICT].kind == VERDICT:
        case = SubElement(suite, "testcase", classname=f"delegate.{VERDICT}", name=_text(by_id[VERDICT].text))
        _add_problem(case, by_id[VERDICT])
        cases.append(case)
    counts = {"tests": str(len(cases))}
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        counts[name] = str(sum(case.find(tag) is not None for case in cases))
    suite.attrib |= counts
    root = Element("testsuites", {"name": "delegate judge", **counts})
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode")


def _case(suite: Element, criterion: CriterionResult, problem: CriterionResult | None) -> Element:
    name = one_line(f"{criterion.id} {criterion.text}", TITLE_CHARS)
    case = SubElement(suite, "testcase", classname=f"delegate.{criterion.kind}", name=_text(name))
    facts = {name: getattr(criterion, name) for name in ("outcome", "decided_by", "code", "source", "level")}
    _properties(case, {**facts, "about": about_of(criterion), "held_before": criterion.held_before or None})
    if problem is not None:
        _add_problem(case, problem)
    elif criterion.outcome == "skipped" or (criterion.findings_only and criterion.outcome not in PASSING):
        why = criterion.reason or "skipped"
        if criterion.findings_only:
            why = f"findings only: {criterion.code}: {criterion.reason}"
        SubElement(case, "skipped", message=_text(one_line(why, 2 * TITLE_CHARS)))
    elif criterion.evidence:
        SubElement(case, "system-out").text = _text(bounded(criterion.evidence))
    return case


def _add_problem(case: Element, problem: CriterionResult) -> None:
    message = _text(one_line(problem.reason, 2 * TITLE_CHARS))
    tag = "failure" if problem.examined else "error"
    SubElement(case, tag, type=problem.code, message=message).text = _text(message_of(problem))


def _properties(parent: Element, facts: Mapping[str, object]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in facts.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value not in (None, ""):
            SubElement(properties, "property", name=name, value=_text(text))


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", clean(text).text)
