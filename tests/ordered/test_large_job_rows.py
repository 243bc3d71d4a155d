"""Write jobs of rows that are large, or replace large ones, hold few of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from structable.backends.base import bounded
from structable.backends.memory.versions import VersionedMap
from structable.backends.ordered import OrderedStorage
from structable.spi import Field, Storage, TableSpecification

from .crashing import CrashingEngine

_LIMIT = 20_000
_ROWS = 1_000
_TEXT = "x" * 200
_MOST = 4 * _LIMIT
"""Of a part with the rows as they were, as they are, and both in the change feed."""


class SizingEngine(CrashingEngine):
    """Notes the size of each write of a bulk commit."""

    def __init__(self) -> None:
        super().__init__(VersionedMap())
        self.sizes: list[int] = []

    def _write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.sizes.append(sum(len(value or b"") for value in changes.values()))
        super()._write(changes)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_MOST_BYTES", _LIMIT)


def run(storage: Storage, mode: str, columns: Sequence[str]) -> None:
    job = storage.begin_write("items", mode=mode, job_id=mode)
    arrays: dict[str, pa.Array[Any]] = {
        "id": pa.array(range(_ROWS), pa.int32()),
        "text": pa.array([_TEXT] * _ROWS),
        "n": pa.nulls(_ROWS),
        "_change_type": pa.array(["+I"] * _ROWS),
        "_arm": pa.array(["present"] * _ROWS),
    }
    batch = pa.record_batch({name: arrays[name] for name in columns})
    assert storage.commit_write(job, [storage.stage(job, 0, 0, [batch])]).applied


def made(producer: str, key: Sequence[str] = ("id",)) -> tuple[Storage, SizingEngine]:
    engine = SizingEngine()
    storage = OrderedStorage(engine, "memory://")
    options = {"changelog-producer": producer} | ({} if key else {"write-mode": "change-log"})
    fields = [Field.int("id"), Field.string("text"), Field.int("n")]
    storage.admin.create(TableSpecification("items", fields, key, options=options))
    return storage, engine


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
@pytest.mark.parametrize("mode", ["insert", "upsert", "replace"])
def test_large_rows_are_written_in_parts(mode: str, producer: str) -> None:
    storage, engine = made(producer)
    run(storage, mode, ["id", "text"])
    assert storage.table("items").count() == _ROWS
    assert sum(engine.sizes) > 2 * _MOST
    assert max(engine.sizes) < _MOST


def test_large_rows_without_a_key_are_written_in_parts() -> None:
    storage, engine = made("none", ())
    run(storage, "changes", ["_change_type", "id", "text"])
    assert storage.table("items").count() == _ROWS
    assert max(engine.sizes) < _MOST


@pytest.mark.parametrize(
    ("mode", "columns"),
    [
        ("upsert", ["id", "n"]),
        ("update", ["id", "n"]),
        ("delete", ["id"]),
        ("replace", ["id"]),
        ("changes", ["_change_type", "id", "n"]),
        ("patch", ["_arm", "id", "n"]),
    ],
)
def test_large_rows_are_replaced_in_parts(mode: str, columns: Sequence[str]) -> None:
    """Their size is not known before they are read: the first part has few."""
    storage, engine = made("lookup")
    storage.table("items").insert_many({"id": key, "text": _TEXT, "n": 1} for key in range(_ROWS))
    run(storage, mode, columns)
    assert sum(engine.sizes) > 2 * _MOST
    assert max(engine.sizes) < _MOST
