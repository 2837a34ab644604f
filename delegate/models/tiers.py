"""Which tiers a child may run at: the arithmetic of "never above its parent"."""

from dataclasses import dataclass

from delegate.types import TIERS, Tier, TierBound


def place(tier: Tier) -> int:
    """0 for the strongest."""
    return TIERS.index(tier)


def is_above(tier: Tier, limit: Tier) -> bool:
    """Whether `tier` is stronger than `limit`."""
    return place(tier) < place(limit)


def weaker(one: Tier | None, other: Tier | None) -> Tier | None:
    """The weaker of two limits; None is no limit."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=place)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The strongest and the weakest tier that a child may have."""

    ceiling: Tier = "deep"
    floor: Tier = "fast"

    @classmethod
    def under(cls, parent: Tier | None, *, max_tier: TierBound = "parent", min_tier: TierBound = "fast") -> "Bounds":
        """The bounds of a parent's children: never above the parent, and within what the operator set.

        A parent of unknown tier counts as `deep`, so that `max_tier` alone limits its children. Where the bounds
        contradict each other, the ceiling holds: a floor never lifts a child above it.
        """
        ceiling = max(_resolved(max_tier, parent), parent or TIERS[0], key=place)
        return cls(ceiling, max(_resolved(min_tier, parent), ceiling, key=place))

    def clamp(self, tier: Tier) -> Tier:
        """The tier within the bounds that is nearest to `tier`."""
        return min(max(tier, self.ceiling, key=place), self.floor, key=place)

    def allowed(self) -> tuple[Tier, ...]:
        """The tiers within the bounds, strongest first."""
        return TIERS[place(self.ceiling) : place(self.floor) + 1]


def _resolved(bound: TierBound, parent: Tier | None) -> Tier:
    if bound in TIERS:
        return bound
    below = int(bound.partition("-")[2] or 0)
    return TIERS[min(place(parent or TIERS[0]) + below, len(TIERS) - 1)]
