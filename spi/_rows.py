"""The rows that reads return: immutable mappings with attribute access."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ._notebooks import html_rows
from ._values import Value


class RowShape:
    """The column names that all rows of one read share; backends make one per read and pass it to each `Row`.

    Parameters
    ----------
    table : str
        The table's name, for messages.
    columns : tuple of str
        The names of the values, in the order of the values.
    key : tuple of str
        The names of the primary key's fields; `columns` includes them all.

    Attributes
    ----------
    row_type : type
        The class of the rows, a subclass of `Row` with a property for each column.
    """

    __slots__ = ("columns", "key_positions", "positions", "row_type", "table")

    def __init__(self, table: str, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
        self.table = table
        self.columns = columns
        self.positions = {name: position for position, name in enumerate(columns)}
        self.key_positions = tuple(self.positions[name] for name in key)
        own: dict[str, object] = {
            name: _column(position) for name, position in self.positions.items() if name not in _OWN_NAMES
        }
        # The name is for the AttributeError of a column that is not there.
        self.row_type: type[Row] = type(
            f"Row of {table}", (Row,), {**own, "__slots__": (), "__doc__": None, "_shape": self}
        )

    def __reduce__(self) -> tuple[object, ...]:
        return shared_shape, (self.table, self.columns, tuple(self.columns[i] for i in self.key_positions))


@lru_cache(maxsize=256)
def shared_shape(table: str, columns: tuple[str, ...], key: tuple[str, ...]) -> RowShape:
    """Return a shape that all reads of these columns share: each shape makes a class."""
    return RowShape(table, columns, key)


def _column(position: int) -> property:
    return property(lambda row: row._values[position])


class Row(Mapping[str, Value]):
    """One row: `row["status"]`, `row.status`, `row.key`, `dict(row)`. Immutable, hashable, picklable.

    A row equals any mapping of the same names to equal values. Fields that were not set are None. A column that was
    not read, or that does not exist, is a `KeyError` or an `AttributeError`. Attributes of the class itself (`key`,
    `keys`, `items`, `values`, `get`, `astuple`) win over fields of that name, which are read as `row["key"]`.

    Parameters
    ----------
    shape : RowShape
        The names.
    values : tuple of Value
        The values, one for each column of the shape.
    """

    # Only this slot can be set: any other name raises AttributeError, without the cost of a __setattr__.
    __slots__ = ("_values",)
    _shape: ClassVar[RowShape]
    _values: tuple[Value, ...]

    def __new__(cls, shape: RowShape, values: tuple[Value, ...]) -> Self:
        # Slow: a decoder of many rows makes instances of `row_type` itself.
        self: Self = object.__new__(shape.row_type)  # type: ignore[assignment]
        self._values = values
        return self

    @property
    def key(self) -> tuple[Value, ...]:
        """The primary key, in key order."""
        values = self._values
        return tuple([values[position] for position in self._shape.key_positions])

    def astuple(self) -> tuple[Value, ...]:
        """Return the values, in the order of the columns, without a copy: the fastest way to read a whole row."""
        return self._values

    def __getitem__(self, name: str) -> Value:
        return self._values[self._shape.positions[name]]

    if TYPE_CHECKING:
        # For checkers alone: a class that has it is slower at every attribute, by 15 to 35 ns in a scan.
        # Any: a field's type is known to the table, not to the checker.
        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape.columns)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._shape.positions

    def keys(self) -> KeysView[str]:
        """Return the column names."""
        return self._shape.positions.keys()

    def values(self) -> ValuesView[Value]:
        """Return the values, in the order of the columns."""
        return dict(zip(self._shape.columns, self._values, strict=True)).values()

    def items(self) -> ItemsView[str, Value]:
        """Return names and values."""
        return dict(zip(self._shape.columns, self._values, strict=True)).items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            if other._shape.columns == self._shape.columns:
                return self._values == other._values
            return dict(self.items()) == dict(other.items())
        if isinstance(other, Mapping):
            return dict(self.items()) == dict(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def _repr_html_(self) -> str:
        return html_rows(self._shape.columns, (self,))

    def __reduce__(self) -> tuple[object, ...]:
        return Row, (self._shape, self._values)


# The attributes of instances: unlike `hasattr`, without the metaclass's names (`mro`, `register`).
_OWN_NAMES = frozenset(dir(Row))
