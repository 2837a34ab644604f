"""Cases of one test of which `make test` tries a few. Continuous integration plays the rest only of attacks."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

MORE_CASES = (pytest.mark.slow, pytest.mark.more_cases)
"""The marks of what tries more of what another test tries a few of."""
_Param: Any = type(pytest.param())


def sampled(
    cases: Iterable[Any], quick: int = 3, *, id: Callable[[Any], str] | None = None, attacks: bool = False
) -> list[Any]:
    """Parameters for pytest. All but `quick` of them, which are spread evenly, are marked as more cases. If they are
    `attacks`, they are marked as slow, since continuous integration plays all of these.
    """
    given = [case if isinstance(case, _Param) else pytest.param(*_values(case), id=id and id(case)) for case in cases]
    marks = (pytest.mark.slow,) if attacks else MORE_CASES
    chosen = {round(n * (len(given) - 1) / max(quick - 1, 1)) for n in range(quick)}
    return [
        case if n in chosen else pytest.param(*case.values, id=case.id, marks=[*case.marks, *marks])
        for n, case in enumerate(given)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    """A tuple has one value for each argument of the test."""
    return cast("tuple[Any, ...]", case) if type(case) is tuple else (case,)
