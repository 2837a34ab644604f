from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.judging.checks.predicate.evaluate import Outcome, PredicateError, evaluate
from tests.judging.checks.predicate.expressions import Writer

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)
FRAGMENTS = [
    *"abn()[]{}.,;:?!+-*/%<>=&|^~$`'\"\\ \n0159é😀\0", "=>", "===", "?.", "...", "${", "output", "items", "map(x => x",
    "/a/", "/(", "typeof ", "null", "Math.max(", "Object.keys(", ".length", ".every(", "\\u", "return", "new ", "in ",
    "[0]", "1e9",
]  # fmt: skip


@given(expression=st.text(max_size=60), value=JSON)
@settings(max_examples=25, deadline=None)
async def test_any_text_gives_an_outcome_or_a_predicate_error(expression: str, value: Any) -> None:
    await _evaluate(expression, value)


@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=25), value=JSON)
@settings(max_examples=25, deadline=None)
async def test_any_pieces_of_javascript_give_an_outcome_or_an_error(fragments: list[str], value: Any) -> None:
    await _evaluate("".join(fragments), value)


@given(seed=st.integers(0, 2**32), value=JSON)
@settings(max_examples=25, deadline=None)
async def test_a_damaged_expression_gives_an_outcome_or_an_error(seed: int, value: Any) -> None:
    random, (expression, _) = Random(seed), Writer(seed).case()
    for _ in range(random.randint(0, 3)):
        at = random.randint(0, len(expression))
        expression = expression[:at] + random.choice(FRAGMENTS) + expression[at + random.randint(0, 3) :]
    await _evaluate(expression, {"items": value, "a": value, "text": value} if random.random() < 0.5 else value)


@given(pattern=st.text(alphabet="ab()[]{}|*+?.^$\\dwsbBxu0179-,:=!<>iSké😀", max_size=25), text=st.text(max_size=20))
@settings(max_examples=25, deadline=None)
async def test_any_pattern_gives_an_outcome_or_a_predicate_error(pattern: str, text: str) -> None:
    for flags in ("", "i", "u", "ms"):
        await _evaluate(f"/{pattern}/{flags}.test(output) || output.match(/{pattern}/{flags}) === null", text)


async def _evaluate(expression: str, value: Any) -> None:
    try:
        outcome = await evaluate(expression, value)
    except PredicateError:
        return
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.holds, bool)
    assert outcome.reason.encode()
