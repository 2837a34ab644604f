"""A judge whose answer a test chooses, behind one Delegator on one loop: making those takes longer than a verdict."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from delegate.types import Verdict
from delegate.types.ports import ChatReply, ChatRequest

Answer = Callable[[ChatRequest], ChatReply | str]


class ScriptedJudge:
    """Gives any number of verdicts. To be closed at the end."""

    def __init__(self) -> None:
        self._answer: Answer = lambda request: ""
        self._runner = asyncio.Runner()
        self._delegator = Delegator(client=Scripted(lambda request: self._answer(request)))

    def verdict(self, answer: Answer, goal: str, report: str, criteria: Sequence[Any], **given: Any) -> Verdict:
        """The verdict if the judge answers so. `given` are the other arguments of `Delegator.judge`."""
        self._answer = answer
        judging = self._delegator.judge(goal=goal, report=report, acceptance_criteria=criteria, **given)
        # `run` sets a handler of signals, for which the enum of signals writes the whole verdict as text.
        return self._runner.get_loop().run_until_complete(judging)

    def close(self) -> None:
        self._runner.run(self._delegator.aclose())
        self._runner.close()
