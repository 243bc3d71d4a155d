"""Rules of arguments that are nearly right: the same error, or the same plain value, on every store."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import MappingProxyType
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from structable.spi import (
    DataCorruptionError,
    Field,
    FieldType,
    InvalidFieldError,
    InvalidSpecificationError,
    Range,
    RecordExistsError,
    RecordNotFoundError,
    Storage,
    StructuredTable,
    TableSpecification,
    Value,
    col,
    connect,
    specification_from_document,
)

from .case import ConformanceCase, OpenTable
from .samples import ITEMS, TYPES, Record, item, keys, type_name


class Name(enum.StrEnum):
    """Names and texts of an enumeration."""

    ITEMS = "items"
    ID = "id"
    TAG = "tag"
    RED = "red"


class Number(enum.IntEnum):
    """Numbers of an enumeration."""

    ONE = 1


class Text(str):
    """A text that shows another."""

    def __str__(self) -> str:
        return "another"


class Real(float):
    """A float of another class."""


class Time(dt.datetime):
    """A datetime of another class."""


class Finer(dt.datetime):
    """A datetime with nanoseconds, as data frames have."""

    nanosecond = 7


class Day(dt.date):
    """A date of another class."""


class Amount(Decimal):
    """A decimal of another class."""


class NoTime(dt.datetime):
    """The datetime that stands for a missing one in data frames: it equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def utcoffset(self) -> dt.timedelta:
        raise ValueError("it is not a time")


def shown(value: object) -> str:
    """Return a value's part of a test's name: the same in every process."""
    return "memoryview" if isinstance(value, memoryview) else repr(value)


def generator() -> Iterator[int]:
    """Yield a meaningless value."""
    yield from ()


REFUSED: dict[str, Callable[[StructuredTable], object]] = {
    "multi_scan(1)": lambda table: table.multi_scan(cast(Any, 1)),
    "multi_scan(Range)": lambda table: table.multi_scan(cast(Any, Range.all())),
    "multi_scan of ints": lambda table: table.multi_scan(cast(Any, [1])),
    "multi_read(1)": lambda table: table.multi_read(cast(Any, 1)),
    "multi_read('ab')": lambda table: table.multi_read(cast(Any, "ab")),
    "upsert_many(1)": lambda table: table.upsert_many(cast(Any, 1)),
    "upsert_many('ab')": lambda table: table.upsert_many(cast(Any, "ab")),
    "count(1)": lambda table: table.count(cast(Any, 1)),
    "columns as a text": lambda table: table.read((1,), cast(Any, "id")),
    "columns as a number": lambda table: table.scan(columns=cast(Any, 1)),
    "a generator as reverse": lambda table: table.scan(reverse=cast(Any, generator())),
    "a number as reverse": lambda table: table.scan(reverse=cast(Any, 1)),
    "a text as reverse": lambda table: table.scan_index("tag", "a", reverse=cast(Any, "no")),
    "a generator as inclusive": lambda table: table.scan(Range((1,), None, cast(Any, generator()))),
    "limit=True": lambda table: table.scan(limit=True),
    "limit=1.0": lambda table: table.scan(limit=cast(Any, 1.0)),
    "a list as key": lambda table: table.read(cast(Any, [1])),
    "a number as key": lambda table: table.delete(cast(Any, 1)),
    "a list as field of compare_and_swap": lambda table: table.compare_and_swap((1,), cast(Any, []), 1, 2),
    "a list as field of increment": lambda table: table.increment((1,), cast(Any, [])),
    "a list as field of scan_index": lambda table: table.scan_index(cast(Any, []), 1),
    "a list as order": lambda table: table.scan(order_by=cast(Any, [])),
    "a list as column": lambda table: table.read((1,), cast(Any, [[]])),
    "a bool as amount": lambda table: table.increment((1,), "n", True),
    "a list as row": lambda table: table.upsert(cast(Any, [1])),
    "a number as row": lambda table: table.upsert(cast(Any, 1)),
    "a list as changes": lambda table: table.update_all(Range.all(), cast(Any, [])),
    "None as changes": lambda table: table.update_all(Range.all(), cast(Any, None)),
    "a list as range": lambda table: table.delete_all(cast(Any, [])),
    "a bound that is a list": lambda table: table.scan(Range(cast(Any, [1]))),
    "a text as filter": lambda table: table.scan(where=cast(Any, "id = 1")),
}


class ArgumentRules(ConformanceCase):
    """Values of other classes in place of an argument's type: accepted as plain values, or refused."""

    @pytest.mark.parametrize("name", REFUSED)
    def test_argument_of_another_kind(self, open_table: OpenTable, name: str) -> None:
        """An argument of another kind is `InvalidFieldError` when the method is called, and nothing is done."""
        table = open_table(ITEMS)
        table.upsert({"id": 1, "n": 1})
        with pytest.raises(InvalidFieldError):
            REFUSED[name](table)
        assert table.read((1,)) == item(1, n=1)

    def test_subclasses_are_kept_as_plain_values(self, open_table: OpenTable) -> None:
        """A subclass of str, int, float or datetime is accepted in place of its base, and kept as a plain value."""
        table = open_table(TYPES)
        zone = dt.timezone(dt.timedelta(hours=2))
        table.upsert(
            MappingProxyType(
                {
                    "id": Number.ONE,
                    "int": Number.ONE,
                    "double": Real(0.5),
                    "string": Text("text"),
                    "decimal": Amount("1.5"),
                    "date": Day(2020, 1, 1),
                    "timestamp": Time(2020, 1, 1, 2, tzinfo=zone),
                    "timestamp_ntz": Time(2020, 1, 1, fold=1),
                }
            )
        )
        wanted: Record = {
            "id": 1,
            "int": 1,
            "double": 0.5,
            "string": "text",
            "decimal": Decimal("1.5"),
            "date": dt.date(2020, 1, 1),
            "timestamp": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            "timestamp_ntz": dt.datetime(2020, 1, 1),
        }
        row = table.read((Number.ONE,))
        assert row is not None
        found = {name: row[name] for name in wanted}
        assert found == wanted
        assert [type(value) for value in (*row.key, *found.values())] == [int, *map(type, wanted.values())]
        for column in ("timestamp", "timestamp_ntz"):
            value = row[column]
            assert isinstance(value, dt.datetime)
            assert value.fold == 0

    @pytest.mark.parametrize("kind", [FieldType.TIMESTAMP, FieldType.TIMESTAMP_NTZ, FieldType.DATE], ids=type_name)
    def test_missing_time_of_data_frames(self, open_table: OpenTable, kind: FieldType) -> None:
        """A data frame's missing time is `InvalidFieldError`, which names None, in rows, keys and filters."""
        table = open_table(TableSpecification("times", [Field("k", kind), Field("v", kind)], ["k"]))
        good: Value = dt.date(2024, 1, 1) if kind is FieldType.DATE else dt.datetime(2024, 1, 1)
        if kind is FieldType.TIMESTAMP:
            good = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
        none = NoTime(2024, 1, 1)
        table.upsert({"k": good, "v": good})
        for refused in (
            lambda: table.upsert({"k": none}),
            lambda: table.upsert({"k": good, "v": none}),
            lambda: table.upsert_many([{"k": good, "v": none}]),
            lambda: table.insert({"k": none}),
            lambda: table.replace({"k": good, "v": none}),
            lambda: table.update({"k": good, "v": none}),
            lambda: table.update({"k": good, "v": good}, {"v": none}),
            lambda: table.read((none,)),
            lambda: table.multi_read([{"k": none}]),
            lambda: table.scan(Range.at_least((none,))),
            lambda: table.scan(where=col("v") == none),
            lambda: table.count(where=col("v").isin([good, none])),
            lambda: table.update_all(Range.all(), {"v": none}),
            lambda: table.compare_and_swap((good,), "v", none, None),
            lambda: table.compare_and_swap((good,), "v", good, none),
        ):
            with pytest.raises(InvalidFieldError, match="None"):
                refused()
        assert [dict(row) for row in table.scan()] == [{"k": good, "v": good}]

    def test_fold_counts_for_the_instant_alone(self, open_table: OpenTable) -> None:
        """A key with `fold=1` equals the key without it, and is read without it."""
        spec = TableSpecification("times", [Field.timestamp_ntz("at"), Field.int("n")], ["at"])
        table = open_table(spec)
        folded = dt.datetime(2024, 10, 27, 2, 30, fold=1)
        table.upsert({"at": folded, "n": 1})
        table.upsert({"at": folded.replace(fold=0), "n": 2})
        row = table.read((folded,))
        assert row is not None
        assert row["n"] == 2
        [at] = row.key
        assert isinstance(at, dt.datetime)
        assert at.fold == 0
        assert table.count() == 1

    def test_default_of_the_same_instant_in_a_repeated_hour(self, open_table: OpenTable) -> None:
        """A default's key equals the row's if both are one instant, even in a repeated hour, where Python differs."""
        table = open_table(TableSpecification("times", [Field.timestamp("at"), Field.int("n")], ["at"]))
        at = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
        table.update({"at": at, "n": 1}, {"n": 0})
        table.update({"at": at, "n": 2}, {"at": at.astimezone(dt.UTC), "n": 0})
        assert [row["n"] for row in table.scan()] == [2]

    def test_error_has_the_key_as_a_table_keeps_it(self, open_table: OpenTable) -> None:
        """The key in an error, of an absent or an existing row, has neither the caller's time zone nor `fold`."""
        spec = TableSpecification("times", [Field.timestamp("at"), Field.int("n")], ["at"])
        table = open_table(spec)
        given: Record = {"at": dt.datetime(2024, 1, 1, 2, fold=1, tzinfo=dt.timezone(dt.timedelta(hours=2))), "n": 1}
        kept = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
        for _ in range(3):  # the first calls of a connection may be others than later ones
            with pytest.raises(RecordNotFoundError) as missing:
                table.update(given)
            table.insert(given)
            with pytest.raises(RecordExistsError) as existing:
                table.insert(given)
            for error in (missing.value, existing.value):
                [at] = error.key
                assert isinstance(at, dt.datetime)
                assert (at, at.tzinfo, at.fold) == (kept, dt.UTC, 0)
            table.delete((kept,))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("bytes", bytearray(b"a")),
            ("bytes", memoryview(b"a")),
            ("bytes", "a"),
            ("string", b"a"),
            ("int", 1.0),
            ("int", True),
            ("boolean", 1),
            ("double", True),
            ("double", "1"),
            ("decimal", 1.5),
            ("date", dt.datetime(2020, 1, 1)),
            ("timestamp", dt.datetime(2020, 1, 1)),
            ("timestamp_ntz", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
            ("timestamp", Finer(2020, 1, 1, tzinfo=dt.UTC)),
            ("timestamp_ntz", Finer(2020, 1, 1)),
        ],
        ids=shown,
    )
    def test_nothing_else_is_coerced(self, open_table: OpenTable, field: str, value: object) -> None:
        """Values of other types than the field's are rejected, and so is a datetime finer than microseconds."""
        table = open_table(TYPES)
        with pytest.raises(InvalidFieldError):
            table.upsert({"id": 1, field: cast(Any, value)})
        assert table.count() == 0

    def test_names_of_an_enumeration(self, storage: Storage) -> None:
        """A str subclass is a name wherever a str is one, of tables, fields and columns, and kept as plain text."""
        spec = TableSpecification(
            Name.ITEMS,
            [Field.long(Name.ID), Field.string(Name.TAG)],
            [Name.ID],
            [Name.TAG],
            {Text("user.a"): Text("b")},
        )
        assert {type(name) for name in (spec.name, *spec.field_names, *spec.primary_key, *spec.indexes)} == {str}
        assert spec.options == {"user.a": "b"}
        storage.admin.create(spec)
        assert storage.admin.list() == ["items"]
        assert storage.admin.get_specification(Name.ITEMS) == spec
        table = storage.table(Name.ITEMS)
        table.upsert({Name.ID: 1, Name.TAG: Name.RED})
        row = table.read({Name.ID: 1}, [Name.TAG])
        assert row == {"id": 1, "tag": "red"}
        assert {type(name) for name in row} == {str}
        assert keys(table.scan_index(Name.TAG, Name.RED, order_by=Name.TAG)) == [(1,)]
        with storage.transaction() as transaction:
            assert transaction.table(Name.ITEMS).compare_and_swap((1,), Name.TAG, Name.RED, Text("blue"))
        assert table.read((1,)) == {"id": 1, "tag": "blue"}
        storage.admin.drop_index(Name.ITEMS, Name.TAG)
        storage.admin.drop(Name.ITEMS)

    @pytest.mark.parametrize("several", [False, True], ids=["one", "many"])
    def test_arguments_may_change_after_the_call(self, storage: Storage, several: bool) -> None:
        """A write has taken its arguments when it returns, also in a transaction, which sends them later."""
        storage.admin.create(ITEMS)
        storage.table("items").upsert_many({"id": number, "n": 1, "note": "old"} for number in range(3, 8))
        rows: list[dict[str, Any]] = [{"id": number, "tag": "given", "n": 2} for number in range(1, 5)]
        increased, deleted = {"id": 5}, {"id": 6}
        with storage.transaction() as transaction:
            table = transaction.table("items")
            if several:
                table.upsert_many(rows[:1])
                table.insert_many(rows[1:2])
                table.update_many(rows[2:3])
                table.replace_many(rows[3:])
                table.increment_many([(increased, "n", 1)])
                table.delete_many([deleted])
            else:
                table.upsert(rows[0])
                table.insert(rows[1])
                table.update(rows[2])
                table.replace(rows[3])
                table.increment(increased, "n")
                table.delete(deleted)
            for row in rows:
                row |= {"id": 7, "tag": "changed", "cost": 1.0}
            rows.clear()
            increased["id"] = deleted["id"] = 7
        expected = [item(number, n=2, tag="given", note="old" if number == 3 else None) for number in range(1, 5)]
        expected += [item(5, n=2, note="old"), item(7, n=1, note="old")]
        assert [dict(row) for row in storage.table("items").scan()] == expected

    def test_deep_document(self) -> None:
        """An endlessly nested document is not a specification; the error that rejects it is short."""
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        for document in (deep, {"name": deep, "fields": [], "primary_key": []}, {"name": "t", "fields": deep}):
            with pytest.raises((InvalidSpecificationError, DataCorruptionError)) as refusal:
                specification_from_document(document)
            assert len(str(refusal.value)) < 1_000

    @pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e300", float("inf"), float("nan"), 10**400, "9" * 400])
    @pytest.mark.parametrize("option", ["pool_timeout", "ddl_timeout"])
    def test_option_that_no_clock_can_count(self, storage_url: str, option: str, value: object) -> None:
        """Times are finite, and at most 2,000,000 seconds: else `ValueError` that names the option."""
        with pytest.raises(ValueError, match=option):
            connect(storage_url, **{option: value})
