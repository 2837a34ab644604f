"""Attacks by criteria: all of them are stopped, each with a reason."""

from delegate.cli.security.criteria import PREDICATES, SCHEMAS, criterion_attacks


async def test_every_attack_by_an_expression_or_schema_is_stopped() -> None:
    rows = await criterion_attacks()
    assert len(rows) == len(PREDICATES) + len(SCHEMAS)
    assert [(row.kind, row.attack) for row in rows if row.outcome != "stopped"] == []
    assert all(row.note for row in rows)
