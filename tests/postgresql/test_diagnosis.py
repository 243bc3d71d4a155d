"""What `doctor` says of a schema: columns that run out, and sessions that hold tables for long."""

from __future__ import annotations

import psycopg
import pytest

from structable.backends.postgresql.schema import inspection
from structable.spi import Field, TableSpecification, connect
from tests.postgresql.support.shared import Schema

TABLE = TableSpecification("t", [Field.int("k"), Field.int("n")], ["k"])


def test_dropped_columns_and_long_transactions_are_shown(
    postgresql_schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_LONG_HELD", 0)
    with connect(postgresql_schema.url) as storage:
        storage.admin.create(TABLE)
        assert list(storage.diagnose()) == []
        with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as raw:
            names = [f"gone{number}" for number in range(1250)]
            table = f'"{postgresql_schema.name}"."t"'
            raw.execute(f"alter table {table} {', '.join(f'add column {name} int' for name in names)}".encode())
            raw.execute(f"alter table {table} {', '.join(f'drop column {name}' for name in names)}".encode())
        with storage.transaction(read_only=True) as tx:
            tx.table("t").read((1,))
            [columns, session] = storage.diagnose()
    assert columns.subject == "table t"
    assert columns.text.startswith("1252 of the 1,600 columns that a table may ever have, 1250 of them dropped")
    assert session.subject.startswith("session ")
    assert "has held t for 0 s" in session.text
