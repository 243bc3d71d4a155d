"""Records of every type come back as they were put; old and new classes read each other's rows."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structable.datasets import Byte, Digits, Int, Json, Local, Record, RecordTable, Short, Single
from structable.spi import Storage, connect


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 200


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(Record):
    id: uuid.UUID
    flag: bool
    text: str | None
    data: bytes
    number: int
    byte: Annotated[int, Byte]
    short: Annotated[int, Short]
    small: Annotated[int, Int] | None
    real: float
    single: Annotated[float, Single]
    price: Annotated[Decimal, Digits(10, 2)]
    day: dt.date
    at: dt.datetime
    local: Annotated[dt.datetime, Local]
    level: Annotated[Level, Short]
    color: Color | None
    tags: list[str]
    counts: Annotated[dict[str, int], Json] = {}


TABLE = RecordTable(Everything, "everything", key=("id", "level"))
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
FIRST, LAST = dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)
RECORDS = st.builds(
    Everything,
    id=st.uuids(),
    flag=st.booleans(),
    text=st.none() | TEXTS,
    data=st.binary(max_size=20),
    number=st.integers(-(2**63), 2**63 - 1),
    byte=st.integers(-(2**7), 2**7 - 1),
    short=st.integers(-(2**15), 2**15 - 1),
    small=st.none() | st.integers(-(2**31), 2**31 - 1),
    real=st.floats(allow_nan=False),
    single=st.floats(allow_nan=False, width=32),
    price=st.decimals(-(10**7), 10**7, places=2),
    day=st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
    at=st.datetimes(FIRST, LAST).map(lambda at: at.replace(tzinfo=dt.UTC)),
    local=st.datetimes(FIRST, LAST),
    level=st.sampled_from(Level),
    color=st.none() | st.sampled_from(Color),
    tags=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=4),
    counts=st.dictionaries(TEXTS, st.integers(-(2**63), 2**63 - 1), max_size=4),
)


@pytest.fixture(scope="module", params=["memory", "leveldb"])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    folder: Path = tmp_path_factory.mktemp("round_trip")
    url = "memory://records_round_trip" if request.param == "memory" else f"leveldb://{folder}/store"
    with connect(url) as opened:
        opened.admin.create(TABLE.specification)
        yield opened
        opened.admin.drop(TABLE.name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=RECORDS)
def test_round_trip(storage: Storage, record: Everything) -> None:
    records = TABLE(storage)
    records.put(record)
    found = records.require(record.id, record.level)
    assert found == record
    assert type(found.level) is Level


class Old(Record):
    id: str
    name: str


class New(Record):
    id: str
    name: str
    size: int = 7


def test_old_and_new_class(storage: Storage) -> None:
    old, new = RecordTable(Old, "evolved", key=("id",)), RecordTable(New, "evolved", key=("id",))
    storage.admin.create(new.specification)
    old(storage).put(Old(id="a", name="x"))
    new(storage).put(New(id="b", name="y", size=1))
    assert new(storage).require("a") == New(id="a", name="x", size=7)
    assert old(storage).require("b") == Old(id="b", name="y")
    old(storage).put(Old(id="b", name="z"))
    assert new(storage).require("b") == New(id="b", name="z", size=1)
    storage.admin.drop("evolved")
