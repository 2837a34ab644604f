"""Tokens and costs of children and judges, their provenance, and the share of verification."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import Delegator, RunResult, Settings, Task
from delegate.budget.costs import Charge, combined, total
from delegate.models.catalog import Catalog, cost_usd
from delegate.policy.settings import DeclaredEndpoint, DeclaredModel
from delegate.types import Provenance, Usage
from scripts.bench.measures import share
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.words import verdicts

REPORT = "wrote the report and saved it"


def script(call: Call) -> Reply:
    """A child that reports at once and a judge that agrees, each with its own usage."""
    if call.wants_json:
        return Reply(verdicts(c1=("met", REPORT)), input_tokens=1_000, output_tokens=100, cached_tokens=400)
    return Reply(REPORT, input_tokens=20_000, output_tokens=2_000, cached_tokens=5_000, reasoning_tokens=500)


async def bill_of(server: ModelServer, *tasks: Task, **options: Any) -> RunResult:
    async with Delegator(**options) as delegator:
        result = await delegator.run(*tasks)
    assert result.error is None, result.error
    return result


def task(**fields: Any) -> Task:
    return Task.model_validate(
        {"goal": "write the report", "acceptance_criteria": ["report: a report was written"], **fields}
    )


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ModelServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        yield server


async def test_child_and_judge_are_charged_exactly_the_catalogs_prices(openai: ModelServer) -> None:
    run = await bill_of(openai, task(model="gpt-6.1-terra"))
    (result,) = run.results
    assert result.verdict is not None
    assert result.verdict.judge is not None
    judge = result.verdict.judge
    assert (judge.model, result.requested_model) == ("gpt-6-luna", "gpt-6.1-terra")
    # USD per million: terra 1.00 in, 0.05 cached, 5.00 out; luna 0.10, 0.01, 0.50
    child_usd = (15_000 * 1.00 + 5_000 * 0.05 + 2_000 * 5.00) / 1e6
    judge_usd = (600 * 0.10 + 400 * 0.01 + 100 * 0.50) / 1e6
    assert judge.cost_usd == pytest.approx(judge_usd)
    assert result.cost_usd == pytest.approx(child_usd + judge_usd)
    assert result.verification_share == pytest.approx(judge_usd / (child_usd + judge_usd), abs=1e-6)
    assert (result.usage.input_tokens, result.usage.cached_tokens) == (20_000, 5_000)
    assert (result.usage.output_tokens, result.usage.reasoning_tokens) == (2_000, 500)
    assert (judge.usage.input_tokens, judge.usage.cached_tokens, judge.usage.output_tokens) == (1_000, 400, 100)
    assert (result.cost_provenance, judge.cost_provenance) == ("observed", "observed")
    totals = run.totals
    assert totals.child_cost_usd == pytest.approx(child_usd)
    assert totals.judge_cost_usd == pytest.approx(judge_usd)
    assert totals.verification_share == result.verification_share


def unpriced(server: ModelServer) -> Settings:
    model = DeclaredModel(id="house", tier="standard")
    return Settings(endpoints=(DeclaredEndpoint(name="own", base_url=server.openai_url, models=(model,)),))


async def test_an_unknown_price_makes_the_cost_null_everywhere_and_never_zero(openai: ModelServer) -> None:
    result = await bill_of(openai, task(model="house"), task(model="gpt-6.1-terra"), settings=unpriced(openai))
    house, terra = result.results
    assert house.verdict is not None
    assert house.verdict.judge is not None
    judge_usd = house.verdict.judge.cost_usd
    assert judge_usd is not None
    assert (house.cost_usd, house.cost_provenance, house.verification_share) == (None, "unknown", None)
    assert house.cost_known_usd == pytest.approx(judge_usd)
    assert terra.cost_usd is not None
    totals = result.totals
    assert (totals.cost_usd, totals.child_cost_usd, totals.verification_share) == (None, None, None)
    assert totals.judge_cost_usd == pytest.approx(2 * judge_usd)
    assert totals.cost_known_usd == pytest.approx(judge_usd + terra.cost_usd)
    assert totals.cost_provenance == "unknown"


async def test_a_model_that_was_declared_free_costs_nothing_and_says_so(openai: ModelServer) -> None:
    free = DeclaredModel(id="house", tier="standard", input_price=0, output_price=0)
    own = Settings(endpoints=(DeclaredEndpoint(name="own", base_url=openai.openai_url, models=(free,)),))
    (result,) = (await bill_of(openai, task(model="house", acceptance_criteria=[]), settings=own)).results
    assert (result.cost_usd, result.cost_provenance) == (0, "observed")


async def test_tokens_that_the_server_did_not_report_are_estimated_and_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ModelServer(lambda call: Reply("x" * 4_200, input_tokens=0, output_tokens=0)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        (result,) = (await bill_of(server, task(model="gpt-6.1-terra", acceptance_criteria=[]))).results
    assert result.cost_provenance == "estimated"
    assert result.usage.output_tokens == pytest.approx(1_000, rel=0.1)
    assert result.usage.input_tokens > 200
    assert result.cost_usd is not None
    assert result.cost_usd > 0.005


async def test_a_substituted_model_is_charged_at_its_own_price(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(lambda call: Reply(REPORT, input_tokens=1_000_000, output_tokens=0, model="gpt-6-luna")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "dummy")
        (result,) = (await bill_of(server, task(model="gpt-6.1-terra", acceptance_criteria=[]))).results
    luna = Catalog.shipped().find("gpt-6-luna")
    assert luna is not None
    assert result.cost_usd == cost_usd(luna, Usage(input_tokens=1_000_000), date.today())
    assert (result.substituted, result.model, result.requested_model) == (True, "gpt-6-luna", "gpt-6.1-terra")


def charge(usd: float, tokens: int, provenance: Provenance) -> Charge:
    usage = Usage(model_calls=1, input_tokens=tokens)
    unknown = provenance == "unknown"
    return Charge(usage, None if unknown else usd, 0 if unknown else usd, provenance)


CHARGES = st.builds(
    charge,
    st.integers(0, 1_000).map(float),
    st.integers(0, 1_000),
    st.sampled_from(("observed", "estimated", "unknown")),
)


@settings(max_examples=50, derandomize=True)
@given(st.lists(CHARGES, max_size=8))
def test_a_sum_has_the_provenance_of_its_least_reliable_part(charges: list[Charge]) -> None:
    sum_ = total(charges)
    sureness: list[Provenance] = ["observed", "estimated", "unknown"]
    worst = max((sureness.index(one.provenance) for one in charges), default=0)
    assert sum_.provenance == sureness[worst]
    assert (sum_.cost_usd is None) == (sum_.provenance == "unknown")
    assert sum_.known_usd == sum(one.known_usd for one in charges)
    assert sum_.usage.model_calls == len(charges)


def test_the_totals_of_no_results_are_zero() -> None:
    nothing = combined([], 0)
    assert (nothing.tasks, nothing.cost_usd, nothing.verification_share) == (0, 0, None)


async def test_verification_stays_under_five_percent_of_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (name for names in share.KEYS.values() for name in names):
        monkeypatch.setenv(name, "")  # the benchmark sets them, and they are removed after the test
    found = await share.shares()
    assert len(found) > 1
    assert max(found.values()) < share.LIMIT, found
