"""Criteria as attacks: every row of the shipped table is stopped here, and each says how."""

from delegate.cli.security.criteria import PREDICATES, SCHEMAS, criterion_attacks


async def test_no_expression_and_no_schema_gets_what_it_is_after() -> None:
    rows = await criterion_attacks()
    assert len(rows) == len(PREDICATES) + len(SCHEMAS)
    assert [(row.kind, row.attack) for row in rows if row.outcome != "stopped"] == []
    assert all(row.note for row in rows)
