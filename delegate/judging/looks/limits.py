"""Defines `LookLimits`, which every delegator needs, without what is loaded where a judge looks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LookLimits:
    """How much a judge may look. With 0 looks, or in 0 turns, it can't."""

    looks: int = 8
    """For all questions of a verdict together, and again for a second judge."""
    turns: int = 4
    """For each question."""
