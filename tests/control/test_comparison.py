"""scripts/goal_comparison.py, whose figures are in docs/goal-mode.md, on one of its exercises."""

import pytest

from scripts.goal_comparison import EXERCISES, run_all


@pytest.mark.slow
async def test_goal_mode_reaches_what_a_worker_can_do_and_its_own_word_accepts_anything() -> None:
    sums = await run_all(EXERCISES[:1], ("its own word", "goal mode"))
    assert {key: (one.accepted, one.wrongly) for key, one in sums.items()} == {
        ("its own word", "strong"): (1, 0),
        ("its own word", "medium"): (1, 1),
        ("its own word", "weak"): (1, 1),
        ("goal mode", "strong"): (1, 0),
        ("goal mode", "medium"): (1, 0),
        ("goal mode", "weak"): (1, 0),
    }
    assert all(one.usd > 0 and one.calls >= 3 for one in sums.values())
