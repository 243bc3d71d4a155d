"""Values of other libraries' classes: of pandas, NumPy, pendulum and freezegun, in fields, documents and arguments."""

from __future__ import annotations

import datetime as dt
import enum
import importlib
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import freezegun
import numpy as np
import pandas as pd
import pendulum
import pytest

from structable.datasets import DocumentError, Record, RecordTable, SystemData, new_run_id
from structable.datasets.identifiers import run_time
from structable.datasets.records.documents import Document
from structable.spi import Field, FieldType, InvalidFieldError, TableSpecification, col, connect
from structable.spi.authors import check_value

ANY = Document("table", "field", Any)


class Level(enum.IntEnum):
    HIGH = 3


class Number(int):
    pass


class Text(str):
    pass


class Data(bytes):
    pass


class Amount(Decimal):
    pass


BERLIN = pendulum.datetime(2026, 10, 25, 12, 30, tz="Europe/Berlin")
PLAIN: list[tuple[Field, object, object]] = [
    (Field.int("f"), Level.HIGH, 3),
    (Field.int("f"), Number(3), 3),
    (Field.double("f"), np.float64(0.5), 0.5),
    (Field.string("f"), Text("text"), "text"),
    (Field.string("f"), np.str_("text"), "text"),
    (Field.bytes("f"), Data(b"data"), b"data"),
    (Field.bytes("f"), np.bytes_(b"data"), b"data"),
    (Field.decimal("f", 9, 1), Amount("1.5"), Decimal("1.5")),
    (Field.date("f"), pendulum.date(2026, 1, 5), dt.date(2026, 1, 5)),
    (Field.timestamp("f"), BERLIN, BERLIN.astimezone(dt.UTC)),
    (Field.timestamp("f"), pd.Timestamp("2026-01-05 02:00", tz="UTC"), dt.datetime(2026, 1, 5, 2, tzinfo=dt.UTC)),
    (Field.timestamp_ntz("f"), pd.Timestamp("2026-01-05 02:00"), dt.datetime(2026, 1, 5, 2)),
]  # fmt: skip
REFUSED = [np.int64(3), np.float32(0.5), np.bool_(True), np.datetime64("2026-01-05")]
MISSING = [pd.NaT, pd.NA, np.datetime64("NaT")]


@pytest.mark.parametrize(("field", "given", "kept"), PLAIN, ids=lambda value: type(value).__qualname__)
def test_fields_and_documents_take_the_same_subclasses(field: Field, given: object, kept: object) -> None:
    found = check_value("table", field, given)
    assert found == kept
    assert type(found) in (int, float, str, bytes, Decimal, dt.date, dt.datetime)
    instant = given if isinstance(given, dt.datetime) and given.tzinfo is not None else kept
    for document in (given, [given], {"a": given}):
        text = ANY.encode(document)
        assert ANY.decode(text) == ANY.decode(ANY.encode(_replaced(document, given, _plain(instant))))
    assert ANY.merge("{}", {"a": given}) == ANY.encode({"a": _plain(instant)})


def _replaced(document: object, one: object, other: object) -> object:
    match document:
        case list():
            return [other]
        case dict():
            return {"a": other}
    return other


def _plain(value: object) -> object:
    if isinstance(value, dt.datetime):
        return dt.datetime.fromisoformat(value.isoformat())
    return value


@pytest.mark.parametrize("value", [*REFUSED, pd.Timestamp("2026-01-05 00:00:00.000000001", tz="UTC")], ids=repr)
def test_others_are_refused(value: object) -> None:
    for field in TYPES:
        with pytest.raises(InvalidFieldError):
            check_value("table", field, value)
    with pytest.raises(DocumentError):
        ANY.encode({"a": value})


TYPES = [
    *(Field.boolean("f"), Field.int("f"), Field.double("f"), Field.decimal("f", 9, 1), Field.string("f")),
    *(Field.bytes("f"), Field.date("f"), Field.timestamp("f"), Field.timestamp_ntz("f")),
]


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_missing_values_are_refused_in_favour_of_none(value: object) -> None:
    for field in TYPES:
        with pytest.raises(InvalidFieldError, match="use None"):
            check_value("table", field, value)
    for document in (value, [value], {"a": value}):
        with pytest.raises(DocumentError, match="use None"):
            ANY.encode(document)
    with pytest.raises(DocumentError, match="use None"):
        ANY.merge("{}", {"a": value})


class Visit(Record):
    number: int
    at: dt.datetime
    opened: dt.date | None = None
    seen: dict[str, dt.datetime] = {}


def test_times_of_pendulum_everywhere() -> None:
    visits = RecordTable(Visit, "visits", key=("number", "at"))
    with connect("memory://") as storage:
        fed = TableSpecification(
            "visits", visits.specification.fields, ["number", "at"], options={"changelog-producer": "lookup"}
        )
        storage.admin.create(fed)
        records = visits(storage)
        records.put(Visit(number=1, at=BERLIN, opened=BERLIN.date(), seen={"a": BERLIN}))
        found = records.require(1, BERLIN)
        assert [type(one) for one in (found.at, found.opened, found.seen["a"])] == [dt.datetime, dt.date, dt.datetime]
        assert (found.at, found.seen["a"]) == (BERLIN, BERLIN)
        assert [one.number for one in records.scan(where=col("at") >= BERLIN)] == [1]
        changes = storage.changes("visits")
        assert changes.at(pendulum.now().subtract(days=1)) < changes.latest() == changes.at(pendulum.now().add(days=1))
    assert run_time(new_run_id(BERLIN)) == BERLIN
    with connect("memory://") as storage:
        SystemData.create(storage, clock=lambda: BERLIN)
        with SystemData.open(storage).transaction() as s:
            assert s.namespaces.require("default").created == BERLIN


ENTRIES = """
{future}
from datetime import date, datetime
from typing import Annotated
from structable.datasets import Local, Record

class Entry(Record):
    at: datetime
    day: date
    local: Annotated[datetime, Local] | None = None
    seen: dict[str, datetime] = {{}}
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_records_under_a_stopped_clock(future: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their types are the same, and what is read is of Python's own classes, then and later."""
    (tmp_path / "stopped_entries.py").write_text(ENTRIES.format(future=future))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "stopped_entries", None)  # so that it is removed in the end
    del sys.modules["stopped_entries"]
    with connect("memory://") as storage:
        with freezegun.freeze_time("2026-01-05 12:00"):
            Entry: Any = importlib.import_module("stopped_entries").Entry
            entries: RecordTable[Any] = RecordTable(Entry, "entries", key=("at", "day"))
            storage.admin.create(entries.specification)
            now = dt.datetime.now(dt.UTC)
            assert type(now).__name__ == "FakeDatetime"
            entry = Entry(at=now, day=dt.date.today(), local=dt.datetime.now(), seen={"a": now})
            entries(storage).put(entry)
            read = [entries(storage).require(now, dt.date.today()), next(entries(storage).scan())]
            with storage.transaction() as tx:
                tx.table("entries").upsert({"at": now, "day": dt.date.today(), "local": None})
                read.append(entries(tx).require(now, dt.date.today()))
        assert entries.specification == RecordTable(Entry, "entries", key=("at", "day")).specification
        kinds = [field.type for field in entries.specification.fields]
        assert kinds == [FieldType.TIMESTAMP, FieldType.DATE, FieldType.TIMESTAMP_NTZ, FieldType.STRING]
        for found in (*read, next(entries(storage).scan())):
            assert (type(found.at), type(found.day), type(found.seen["a"])) == (dt.datetime, dt.date, dt.datetime)
            assert found.at == found.seen["a"] == dt.datetime(2026, 1, 5, 12, tzinfo=dt.UTC)
