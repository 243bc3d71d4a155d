"""Unusual but legal arguments, and errors that must be structable's own."""

import datetime as dt
import enum
from collections import defaultdict
from zoneinfo import ZoneInfo

import pytest

from structable.spi import (
    Field,
    InvalidFieldError,
    Storage,
    StructuredTable,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    Value,
    col,
    connect,
)

ITEMS = TableSpecification(
    "items",
    [
        Field.string("kind"),
        Field.int("number"),
        Field.string("status"),
        Field.double("weight"),
        Field.decimal("price", 38, 10),
    ],
    ["kind", "number"],
    ["status"],
)


@pytest.fixture
def storage() -> Storage:
    storage = connect("memory://")
    storage.admin.create(ITEMS)
    return storage


@pytest.fixture
def table(storage: Storage) -> StructuredTable:
    return storage.table("items")


class Status(str, enum.Enum):  # noqa: UP042  str() of a StrEnum is its value, of this one it is not
    RUNNING = "running"


def test_a_text_enumeration_is_written_as_its_text(table: StructuredTable) -> None:
    table.upsert({"kind": Status.RUNNING, "number": 1, "status": Status.RUNNING})
    assert list(table.scan(where=col("status") == Status.RUNNING)) == [
        {"kind": "running", "number": 1, "status": "running", "weight": None, "price": None}
    ]


def test_a_mapping_with_defaults_does_not_make_up_a_key(table: StructuredTable) -> None:
    row: dict[str, Value] = defaultdict(int, {"kind": "a"})
    for write in (table.upsert, table.replace, table.insert, table.update, lambda row: table.upsert_many([row])):
        with pytest.raises(InvalidFieldError, match="number"):
            write(row)
    assert dict(row) == {"kind": "a"}


def test_a_limit_over_64_bits(table: StructuredTable) -> None:
    table.upsert({"kind": "a", "number": 1})
    assert len(list(table.scan(limit=2**70))) == 1
    assert len(list(table.scan(order_by="status", limit=2**70))) == 1
    with pytest.raises(InvalidFieldError):
        table.scan(limit=-(10**5_000))


def test_columns_that_are_no_names(storage: Storage, table: StructuredTable) -> None:
    wrong: list[object] = [[["kind"]], [1], 5, "kind", b"kind"]
    with storage.transaction() as transaction:
        for view in (table, transaction.table("items")):
            for columns in wrong:
                with pytest.raises(InvalidFieldError):
                    view.read(("a", 1), columns)  # type: ignore[arg-type]
    for columns in wrong:
        with pytest.raises(InvalidFieldError):
            storage.plan_scan("items", columns=columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["\ud800", ["items"], 5, None])
def test_invalid_names_are_no_tables(storage: Storage, name: object) -> None:
    assert not storage.admin.exists(name)  # type: ignore[arg-type]
    with pytest.raises(TableNotFoundError):
        storage.table(name)  # type: ignore[arg-type]
    with storage.transaction() as transaction, pytest.raises(TableNotFoundError):
        transaction.table(name)  # type: ignore[arg-type]


def test_a_default_with_the_same_instant_in_a_repeated_hour(storage: Storage) -> None:
    """Python never takes a time of a repeated hour for equal to one of another zone; as keys they are equal."""
    storage.admin.create(TableSpecification("hours", [Field.timestamp("hour"), Field.int("count")], ["hour"]))
    hour = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    storage.table("hours").update({"hour": hour, "count": 1}, {"count": 0})
    storage.table("hours").update({"hour": hour, "count": 2}, {"hour": hour.astimezone(dt.UTC), "count": 0})
    assert [row.count for row in storage.table("hours").scan()] == [2]


def test_the_specification_of_an_ended_transaction(storage: Storage) -> None:
    with storage.transaction() as transaction:
        table = transaction.table("items")
    with pytest.raises(TransactionClosedError):
        _ = table.specification
