"""Scans by an index hold few large rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from structable.backends.base import bounded
from structable.backends.memory.engine import MemorySnapshot
from structable.spi import Field, Storage, TableSpecification, col, connect

_ROWS = 1_000
_TEXT = "x" * 200
_LIMIT = 20_000


@pytest.fixture
def storage() -> Iterator[Storage]:
    with connect("memory://") as storage:
        fields = [Field.int("id"), Field.int("n"), Field.string("text")]
        storage.admin.create(TableSpecification("items", fields, ["id"], ["n"]))
        storage.table("items").insert_many({"id": key, "n": -key % 10, "text": _TEXT} for key in range(_ROWS))
        yield storage


@pytest.fixture
def sizes(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of lookups."""
    found: list[int] = []

    class Sizing(MemorySnapshot):
        def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
            values = super().get_many(keys)
            found.append(sum(len(value or b"") for value in values))
            return values

    monkeypatch.setattr("structable.backends.memory.engine.MemorySnapshot", Sizing)
    monkeypatch.setattr(bounded, "_MOST_BYTES", _LIMIT)
    return found


def test_of_a_transaction(storage: Storage, sizes: list[int]) -> None:
    assert len(list(storage.table("items").scan(order_by="n"))) == _ROWS
    assert sum(sizes) > _ROWS * len(_TEXT)
    assert max(sizes) < 2 * _LIMIT


def test_of_splits(storage: Storage, sizes: list[int]) -> None:
    with storage.plan_scan("items", where=col("n") < 5) as plan:
        assert sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split)) == _ROWS // 2
    assert sum(sizes) > _ROWS // 2 * len(_TEXT)
    assert max(sizes) < 2 * _LIMIT
