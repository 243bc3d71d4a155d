"""The format record: the first table with a type raises it, so that older software refuses the database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import plyvel
import pytest

from structable.spi import Field, InvalidFieldError, TableAlreadyExistsError, TableSpecification, connect

from .support.processes import SERVE, Process

FIRST, SECOND = b"structable 1", b"structable 2"
PLAIN = TableSpecification("plain", [Field.long("k"), Field.long("n")], ["k"])
SUMS = TableSpecification(
    "sums", PLAIN.fields, ["k"], options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
)


def stored(folder: Path) -> bytes:
    """Return the record that every version compares with the formats that it knows."""
    with closing(plyvel.DB(str(folder / "database"))) as database:
        record: bytes = database.get(b"\x00\x00\x00\x00\x00\x01format")
        return record


@pytest.mark.parametrize("call", ["create", "create_or_update"])
def test_first_table_with_a_type_raises_the_format(folder: Path, call: str) -> None:
    url = f"leveldb://{folder}"
    with connect(url) as storage:
        storage.admin.create(PLAIN)
        storage.table("plain").upsert({"k": 1, "n": 2})
        with pytest.raises(TableAlreadyExistsError):
            storage.admin.create(TableSpecification("plain", SUMS.fields, ["k"], options=SUMS.options))
    assert stored(folder) == FIRST
    with connect(url) as storage:
        assert storage.table("plain").read((1,)) == {"k": 1, "n": 2}
    assert stored(folder) == FIRST, "opening changes nothing"
    with connect(url) as storage:
        getattr(storage.admin, call)(SUMS)
    assert stored(folder) == SECOND
    with connect(url) as storage:
        assert storage.table("plain").read((1,)) == {"k": 1, "n": 2}
        storage.table("sums").upsert({"k": 1, "n": 2})
        storage.admin.drop("sums")
    assert stored(folder) == SECOND


def test_client_raises_the_format_of_its_owner(folder: Path, run: Callable[[str], Process]) -> None:
    owner = run(SERVE)
    assert owner.receive() == "ready"
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(SUMS)
        storage.admin.create(TableSpecification("more", SUMS.fields, ["k"], options=SUMS.options))
        owner.end()
    assert stored(folder) == SECOND


def test_database_of_the_first_format_gets_types(folder: Path) -> None:
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(PLAIN)
    with closing(plyvel.DB(str(folder / "database"))) as database:
        database.put(b"\x00\x00\x00\x00\x00\x01format", FIRST)
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(SUMS)
        with pytest.raises(InvalidFieldError):
            storage.table("sums").upsert({"k": 1, "n": "two"})
    assert stored(folder) == SECOND
