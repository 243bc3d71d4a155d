"""The format record: tables of types and change feeds raise it, so that older software refuses the database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import plyvel
import pytest

from structable.backends.leveldb.engine import LevelDBEngine
from structable.backends.leveldb.protocol import messages
from structable.backends.ordered.engine import EngineSnapshot
from structable.spi import (
    Field,
    InvalidFieldError,
    TableAlreadyExistsError,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    connect,
)

from .support.processes import SERVE, Process

FIRST, SECOND, THIRD = b"structable 1", b"structable 2", b"structable 3"
PLAIN = TableSpecification("plain", [Field.long("k"), Field.long("n")], ["k"])
SUMS = TableSpecification(
    "sums", PLAIN.fields, ["k"], options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
)
FED = TableSpecification("fed", PLAIN.fields, ["k"], options={"changelog-producer": "lookup"})


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


@pytest.mark.parametrize(("spec", "after"), [(SUMS, SECOND), (FED, THIRD)])
def test_client_raises_the_format_of_its_owner(
    folder: Path, run: Callable[[str], Process], spec: TableSpecification, after: bytes
) -> None:
    owner = run(SERVE)
    assert owner.receive() == "ready"
    with connect(f"leveldb://{folder}") as storage:
        storage.admin.create(spec)
        storage.admin.create(TableSpecification("more", spec.fields, ["k"], options=spec.options))
        owner.end()
    assert stored(folder) == after


def test_first_change_feed_raises_the_format_for_ever(folder: Path) -> None:
    url = f"leveldb://{folder}"
    with connect(url) as storage:
        storage.admin.create(PLAIN)
        storage.admin.create(SUMS)
    assert stored(folder) == SECOND
    with connect(url) as storage:
        storage.admin.create_or_update(TableSpecification("plain", PLAIN.fields, ["k"], options=FED.options))
    assert stored(folder) == THIRD
    with connect(url) as storage:
        storage.admin.create_or_update(
            TableSpecification("plain", PLAIN.fields, ["k"], options={"changelog-producer": "none"})
        )
        storage.admin.drop("sums")
        storage.admin.create(SUMS)
    assert stored(folder) == THIRD, "a table of a type does not lower it"


def test_processes_that_raise_the_format_at_once_agree_on_the_higher(engine: LevelDBEngine) -> None:
    """One raises it for a table of a type, and reads it before another process raises it for a change feed."""
    real = engine.begin
    raised = False

    def begin(read_only: bool) -> EngineSnapshot:
        nonlocal raised
        snapshot = real(read_only)
        if not raised:
            raised = True
            engine.exclude_older_software(feeds=True)
        return snapshot

    engine.begin = begin
    with pytest.raises(TransactionConflictError):
        engine.exclude_older_software()
    engine.exclude_older_software()
    assert engine.get(b"\x00\x00\x00\x00\x00\x01format") == THIRD


@pytest.mark.parametrize("older", ["client", "owner"])
def test_older_software_beside_newer_is_refused(
    folder: Path, run: Callable[[str], Process], monkeypatch: pytest.MonkeyPatch, older: str
) -> None:
    older_version = "from structable.backends.leveldb.protocol import messages\nmessages.VERSION -= 1\n"
    owner = run((older_version if older == "owner" else "") + SERVE)
    assert owner.receive() == "ready"
    if older == "client":
        monkeypatch.setattr(messages, "VERSION", messages.VERSION - 1)
    with pytest.raises(UnsupportedOperationError, match=r"speaks version .* use one version of structable"):
        connect(f"leveldb://{folder}")
    monkeypatch.undo()
    if older == "client":
        connect(f"leveldb://{folder}").close()


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
