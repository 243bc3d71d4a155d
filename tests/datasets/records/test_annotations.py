"""The annotation table: what field each annotation is, and which annotations are none."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from structable.datasets import Byte, Digits, Int, Json, Local, Record, RecordTable, RecordTypeError, Short, Single
from structable.spi import Field, FieldType


class Color(enum.StrEnum):
    RED = "red"


class Shape(enum.Enum):
    ROUND = "round"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Part(msgspec.Struct):
    name: str


class Mate(msgspec.Struct):
    name: str


@dataclasses.dataclass
class Piece:
    name: str


class Loose(TypedDict):
    name: str


def table_of(annotation: object, *, key: tuple[str, ...] = ("id",)) -> RecordTable[Any]:
    made = type("Made", (Record,), {"__annotations__": {"id": str, "value": annotation}, "__module__": __name__})
    return RecordTable(made, "made", key=key)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (bool, FieldType.BOOLEAN),
        (str, FieldType.STRING),
        (bytes, FieldType.BYTES),
        (float, FieldType.DOUBLE),
        (int, FieldType.LONG),
        (Annotated[int, Byte], FieldType.BYTE),
        (Annotated[int, Short], FieldType.SHORT),
        (Annotated[int, Int], FieldType.INT),
        (Annotated[float, Single], FieldType.FLOAT),
        (dt.date, FieldType.DATE),
        (dt.datetime, FieldType.TIMESTAMP),
        (Annotated[dt.datetime, Local], FieldType.TIMESTAMP_NTZ),
        (Color, FieldType.STRING),
        (Shape, FieldType.STRING),
        (Level, FieldType.LONG),
        (Annotated[Level, Short], FieldType.SHORT),
        (uuid.UUID, FieldType.STRING),
        (Annotated[Any, Json], FieldType.STRING),
        (Annotated[int | str, Json], FieldType.STRING),
        (Part, FieldType.STRING),
        (Piece, FieldType.STRING),
        (Loose, FieldType.STRING),
        (dict[str, int], FieldType.STRING),
        (list[int], FieldType.STRING),
        (tuple[int, ...], FieldType.STRING),
        (set[int], FieldType.STRING),
    ],
    ids=str,
)
def test_annotation_is_field(annotation: Any, kind: FieldType) -> None:  # noqa: ANN401
    assert table_of(annotation).specification.field("value").type is kind
    optional = table_of(annotation | None)
    assert optional.specification.field("value").type is kind
    assert optional.fields["value"].optional


def test_decimal_has_digits() -> None:
    assert table_of(Annotated[Decimal, Digits(10, 2)]).specification.field("value") == Field.decimal("value", 10, 2)


@pytest.mark.parametrize(
    "annotation",
    [
        Decimal,
        Any,
        object,
        complex,
        int | str,
        int | str | None,
        Mixed,
        enum.Flag("Bits", "A B"),
        Annotated[str, Byte],
        Annotated[int, Single],
        Annotated[int, Byte, Short],
        Annotated[dt.date, Local],
        Annotated[Color, Int],
        Annotated[int, Digits(3, 1)],
        Annotated[int, Json, Byte],
        Annotated[Part | Mate, Json],  # structs that nothing tells apart
        list[Part | Mate],
    ],
    ids=str,
)
def test_other_annotation_is_rejected(annotation: object) -> None:
    with pytest.raises(RecordTypeError, match=r"Made\.value"):
        table_of(annotation)


@pytest.mark.parametrize("annotation", [str | None, list[int], Annotated[Any, Json]], ids=str)
def test_key_is_neither_optional_nor_document(annotation: object) -> None:
    with pytest.raises(RecordTypeError, match=r"Made\.value"):
        table_of(annotation, key=("value",))


def test_record_is_frozen_and_by_keyword() -> None:
    class One(Record):
        id: str

    with pytest.raises(AttributeError):
        One(id="a").id = "b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        One("a")  # type: ignore[call-arg]
    with pytest.raises(RecordTypeError, match="Thawed"):

        class Thawed(Record, frozen=False):  # type: ignore[misc]
            id: str
