"""Values of subclasses in records and documents, those of other libraries among them, and a clock that stands still."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

import freezegun
import msgspec
import numpy as np
import pandas as pd
import pendulum
import pytest

from structable.datasets import Digits, DocumentError, Json, Local, Record, RecordTable, new_run_id
from structable.datasets.identifiers import run_id_bound, run_time
from structable.datasets.records.documents import Document
from structable.spi import InvalidFieldError, connect

ANY = Document("t", "d", Any)
NOON = dt.datetime(2020, 2, 3, 12, 30, 0, 5, ZoneInfo("Europe/Paris"))


class Text(str):
    def __str__(self) -> str:
        return "another"


class Amount(Decimal):
    pass


class Size(enum.IntEnum):
    LARGE = 3


class Nested(msgspec.Struct):
    at: dt.datetime
    day: dt.date


class Visit(Record):
    id: int
    at: dt.datetime
    local: Annotated[dt.datetime | None, Local] = None
    day: dt.date | None = None
    price: Annotated[Decimal | None, Digits(10, 2)] = None
    nested: Annotated[Nested | None, Json] = None
    anything: Annotated[Any, Json] = None


VALUES = {
    "text": (Text("a"), "a"),
    "int": (Size.LARGE, 3),
    "float": (np.float64(1.5), 1.5),
    "decimal": (Amount("1.50"), Decimal("1.50")),
    "time": (pendulum.instance(NOON), NOON),
    "pandas": (pd.Timestamp(NOON), NOON),
    "day": (pendulum.date(2020, 2, 3), dt.date(2020, 2, 3)),
    "hour": (pendulum.time(12, 30), dt.time(12, 30)),
    "duration": (pendulum.duration(days=-3, hours=5, microseconds=1), dt.timedelta(days=-3, hours=5, microseconds=1)),
}


@pytest.mark.parametrize("name", VALUES)
def test_document_of_a_subclass_is_that_of_its_base(name: str) -> None:
    given, plain = VALUES[name]
    for wrap in (lambda one: one, lambda one: [one, {"b": one}], lambda one: {"x": {one}}):
        assert ANY.encode(wrap(given)) == ANY.encode(wrap(plain))
        assert ANY.equals(ANY.encode(wrap(plain)), wrap(given))
    assert ANY.merge('{"a":1}', {"b": given}) == ANY.merge('{"a":1}', {"b": plain})


@pytest.mark.parametrize("key", [Text("a"), Size.LARGE, pendulum.date(2020, 2, 3)])
def test_key_of_a_subclass(key: object) -> None:
    text = ANY.encode({key: 1})
    assert ANY.decode(text) in ({"a": 1}, {"3": 1}, {"2020-02-03": 1})


@pytest.mark.parametrize(
    "value",
    [
        pd.NaT,
        pd.NA,
        pd.Timestamp("2020-01-01 00:00:00.000000001"),
        pd.Timedelta(1, "ns"),
        np.int64(1),
        object(),
    ],
    ids=["NaT", "NA", "nanosecond", "a nanosecond", "int64", "object"],
)
def test_document_refuses(value: object) -> None:
    with pytest.raises(DocumentError):
        ANY.encode({"a": [value]})


@pytest.mark.parametrize(
    "missing", [pd.NaT, pd.NA, np.datetime64("NaT"), float("nan")], ids=["NaT", "NA", "datetime64", "NaN"]
)
def test_missing_values_are_refused(missing: Any) -> None:  # noqa: ANN401
    table = RecordTable(Visit, "visits", key=("id",))
    with connect("memory://") as storage:
        storage.admin.create(table.specification)
        visits = table(storage)
        for visit in (Visit(id=1, at=missing), Visit(id=1, at=NOON, day=missing), Visit(id=1, at=NOON, local=missing)):
            with pytest.raises(InvalidFieldError, match="None"):
                visits.put(visit)
        assert visits.get(1) is None


def test_times_of_libraries_name_runs() -> None:
    for time in (pendulum.instance(NOON), pd.Timestamp(NOON)):
        assert run_time(new_run_id(time)) == NOON.replace(microsecond=0)
        assert run_id_bound(time) == run_id_bound(NOON)
    with pytest.raises(ValueError, match="None"):
        new_run_id(cast(Any, pd.NaT))


@pytest.mark.parametrize("url", ["memory://", "leveldb://{folder}/store"])
def test_records_under_a_clock_that_stands_still(url: str, tmp_path: Any) -> None:  # noqa: ANN401
    with freezegun.freeze_time("2020-02-03 12:30", real_asyncio=True):

        class Frozen(Record):
            id: int
            at: dt.datetime
            day: Annotated[dt.date | None, Json] = None

        now = dt.datetime.now(dt.UTC)
        late, defined = RecordTable(Visit, "visits", key=("id",)), RecordTable(Frozen, "frozen", key=("id",))
        with connect(url.format(folder=tmp_path)) as storage:
            for table in (late, defined):
                storage.admin.create(table.specification)
            nested = Nested(at=now, day=dt.date.today())
            visit = Visit(id=1, at=now, local=dt.datetime.now(), day=dt.date.today(), nested=nested, anything=[now])
            late(storage).put(visit)
            defined(storage).put(Frozen(id=1, at=now, day=dt.date.today()))
            found = late(storage).get(1)
            assert found == msgspec.structs.replace(visit, anything=["2020-02-03T12:30:00Z"])
            assert defined(storage).get(1) == Frozen(id=1, at=now, day=dt.date.today())
            assert [one.id for one in late(storage).page(limit=1).items] == [1]
            assert late(storage).swap((1,), "nested", nested, None)
    assert found is not None
    assert type(found.at) is dt.datetime
    assert type(found.nested) is Nested
