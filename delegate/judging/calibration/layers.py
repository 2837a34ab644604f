"""Counts what each layer of judging stopped, and what would have passed without it: gate, checks, quotes and judge.

A verdict ends at its first decisive "no", so what the layers behind would have said is often not on record. Such
verdicts count as unknown, never as a PASS that was prevented.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field

from delegate.types import PASSING, CriterionResult, JsonObject, RulingWord, Verdict

LAYERS = ("gate", "checks", "quotes", "judge")
QUOTES = frozenset({"evidence_not_found", "self_report_only", "truncated_for_judge"})
"""Codes of criteria that a judge found met, and whose quote code didn't accept."""


@dataclass(slots=True)
class Layer:
    """What one layer did."""

    name: str
    stopped: int = 0
    """Verdicts to which it said no."""
    alone: int = 0
    """Verdicts that would have been PASS without it: every other layer that looked said yes."""
    unknown: int = 0
    """Verdicts to which no other layer said no, but of which something wasn't looked at after this one's no."""
    ruled: int = 0
    """Of those stopped, how many have all criteria ruled on that it said no to."""
    wrong: int = 0
    """Of those ruled, how many were stopped though all these criteria are met."""
    codes: Counter[str] = field(default_factory=Counter[str])
    """How often each reason code was given."""

    def as_json(self) -> JsonObject:
        return {**asdict(self), "codes": dict(self.codes.most_common())}


@dataclass(frozen=True, slots=True)
class Ablation:
    """All layers, and what passed."""

    verdicts: int
    passed: int
    not_looked_at: int
    """Verdicts that are FAIL only because the work couldn't be examined."""
    layers: tuple[Layer, ...]

    def as_json(self) -> JsonObject:
        counts = {"verdicts": self.verdicts, "passed": self.passed, "not_looked_at": self.not_looked_at}
        return {**counts, "layers": [layer.as_json() for layer in self.layers]}


def ablation(verdicts: Iterable[tuple[str, Verdict]], rulings: Mapping[tuple[str, str], RulingWord]) -> Ablation:
    """The counts over verdicts, given with their handles. `rulings` are by handle and criterion."""
    layers = {name: Layer(name) for name in LAYERS}
    total = passed = not_looked_at = 0
    for handle, verdict in verdicts:
        total += 1
        passed += verdict.verdict == "PASS"
        not_looked_at += not verdict.examined
        said_no = {name: _said_no(verdict, name) for name in LAYERS}
        for name in LAYERS:
            _count(layers[name], verdict, said_no, lambda id, handle=handle: rulings.get((handle, id)))
    return Ablation(total, passed, not_looked_at, tuple(layers.values()))


def _said_no(verdict: Verdict, layer: str) -> list[CriterionResult] | None:
    """The criteria that the layer refused; None if it refused none. For the gate: all that were left undecided."""
    if layer == "gate":
        if verdict.gate is None:
            return None
        by_gate = verdict.decided_by == "gate"
        return [criterion for criterion in verdict.criteria if by_gate and criterion.outcome == "skipped"]
    return [criterion for criterion in verdict.criteria if criterion.fails and layer_of(criterion) == layer] or None


def layer_of(criterion: CriterionResult) -> str | None:
    """The layer that decided a criterion; None if it couldn't be examined."""
    if criterion.decided_by == "judge":
        return "quotes" if criterion.code in QUOTES else "judge"
    return "checks" if criterion.decided_by == "check" and criterion.examined else None


def _count(
    layer: Layer,
    verdict: Verdict,
    said_no: Mapping[str, list[CriterionResult] | None],
    ruling: Callable[[str], RulingWord | None],
) -> None:
    criteria = said_no[layer.name]
    if criteria is None:
        return
    layer.stopped += 1
    layer.codes.update([verdict.gate or ""] if layer.name == "gate" else [criterion.code for criterion in criteria])
    only_this = all(said_no[name] is None for name in LAYERS if name != layer.name)
    refused_ids = {criterion.id for criterion in criteria}
    rest = [
        criterion for criterion in verdict.criteria if criterion.id not in refused_ids and not criterion.findings_only
    ]
    if only_this and layer.name == "gate" and verdict.decided_by == "gate":
        layer.unknown += 1
    elif only_this and all(criterion.outcome in PASSING for criterion in rest):
        layer.alone += 1
    elif only_this and not any(criterion.fails for criterion in rest):
        layer.unknown += 1
    words = [ruling(criterion.id) for criterion in criteria]
    if words and None not in words:
        layer.ruled += 1
        layer.wrong += all(word == "met" for word in words)
