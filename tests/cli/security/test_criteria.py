"""Attacks by criteria: all of them are stopped, each with a reason."""

import pytest

from delegate.cli.security.criteria import PREDICATES, SCHEMAS
from tests.cli.security.doctored import attacks

pytestmark = pytest.mark.xdist_group("doctor")


def test_every_attack_by_an_expression_or_schema_is_stopped() -> None:
    rows = [row for row in attacks() if row.kind in ("predicate", "schema")]
    assert [row.attack for row in rows] == [*PREDICATES, *SCHEMAS]
    assert [(row.kind, row.attack) for row in rows if row.outcome != "stopped"] == []
    assert all(row.note for row in rows)
