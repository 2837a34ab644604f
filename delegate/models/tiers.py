"""Compares tiers and computes which ones a child may run at: never one above its parent's."""

from dataclasses import dataclass

from delegate.types import TIERS, Tier, TierBound


def rank(tier: Tier) -> int:
    """The position of a tier: 0 for the strongest."""
    return TIERS.index(tier)


def is_above(tier: Tier, limit: Tier) -> bool:
    """Whether `tier` is stronger than `limit`."""
    return rank(tier) < rank(limit)


def weaker(tier: Tier | None, other: Tier | None) -> Tier | None:
    """The weaker of two limits. None means no limit."""
    if tier is None or other is None:
        return tier or other
    return max(tier, other, key=rank)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The strongest and the weakest tier that a child may run at."""

    ceiling: Tier = "deep"
    floor: Tier = "fast"

    @classmethod
    def under(cls, parent: Tier | None, *, max_tier: TierBound = "parent", min_tier: TierBound = "fast") -> "Bounds":
        """The bounds for a parent's children: never above the parent, and within the operator's settings.

        Without a parent (None: a person calls), only `max_tier` limits the children. If the floor is above the ceiling,
        the ceiling applies.
        """
        ceiling = max(_resolve(max_tier, parent), parent or TIERS[0], key=rank)
        return cls(ceiling, max(_resolve(min_tier, parent), ceiling, key=rank))

    def clamp(self, tier: Tier) -> Tier:
        """The tier within the bounds that is closest to `tier`."""
        return min(max(tier, self.ceiling, key=rank), self.floor, key=rank)

    def allowed(self) -> tuple[Tier, ...]:
        """The tiers within the bounds, strongest first."""
        return TIERS[rank(self.ceiling) : rank(self.floor) + 1]


def _resolve(bound: TierBound, parent: Tier | None) -> Tier:
    if bound in TIERS:
        return bound
    below = int(bound.partition("-")[2] or 0)
    return TIERS[min(rank(parent or TIERS[0]) + below, len(TIERS) - 1)]
