"""The statements of `update_many`: where the rows of many keys are, and changes of rows at known places.

A place is that of a row's version in the snapshot: it holds until the transaction writes the row, and another
transaction's write of the row makes the change a conflict, as it does for a change by key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import sqlalchemy as sa

from structable.backends.postgresql.driver.statement import Statement
from structable.backends.postgresql.driver.type_oids import TID, TID_ARRAY

from .binding import DIALECT, TableBinding
from .merging import column
from .row_codec import Pieces
from .row_sizes import guarded
from .types import array, stored_type

__all__ = ["places_array", "places_of", "read_places", "update_places"]

_HEADER = 20
"""The bytes of an array before its elements, each of which follows its length."""
_NUMBERS = struct.Struct(">4xq")
_PLACES = struct.Struct(">4x6s")


def places_of(binding: TableBinding) -> Statement:
    """Return the statement that finds the rows of many keys: arrays of their numbers, from 1, and of their places."""

    def make() -> Statement:
        key = binding.spec.key_fields
        types = [stored_type(field).array_oid for field in key]
        names = [column(field.name) for field in key]
        same = " and ".join(f"t.{name} = g.{name}" for name in names)
        # OFFSET keeps the server from joining in another order.
        row = f"select t.ctid as _place from {binding.qualified} t where {same} and {binding.token} offset 0"
        text = (
            f"select array_agg(_n), array_agg(_place) from (select g._n, f._place from {_given(names)} "
            f"cross join lateral ({row}) f) s"
        )
        return Statement(text, types, is_small=False)

    found: Statement = binding.kept("places_of", make)
    return found


def read_places(keys: Sequence[Pieces], numbers: bytes | None, places: bytes | None) -> dict[Pieces, bytes]:
    """Return the places that `places_of` found, by their keys."""
    if numbers is None or places is None:
        return {}
    found = [keys[number - 1] for (number,) in _NUMBERS.iter_unpack(memoryview(numbers)[_HEADER:])]
    there = [place for (place,) in _PLACES.iter_unpack(memoryview(places)[_HEADER:])]
    return dict(zip(found, there, strict=True))


def places_array(places: Sequence[bytes]) -> bytes:
    """Return places as a parameter."""
    return array(TID, places)


def update_places(binding: TableBinding, names: tuple[str, ...], *, checked: bool) -> Statement:
    """Return the statement that changes rows at some places: arrays of the places, and of each field but the key.

    If `checked`, it fails if a row would be too large.
    """

    def make() -> Statement:
        key = binding.spec.primary_key
        fields = [binding.spec.field(name) for name in names if name not in key]
        columns = {field.name: column(field.name) for field in fields}
        new: dict[str, sa.ColumnElement[object]] = {
            field.name: sa.literal_column(f"_given.{columns[field.name]}", stored_type(field).core) for field in fields
        }
        changes = guarded(binding, new) if checked else new
        assigned = ", ".join(f"{columns[name]} = {value.compile(dialect=DIALECT)}" for name, value in changes.items())
        first = column(key[0])
        places = ", ".join(f"${place + 1}" for place in range(len(fields) + 1))
        text = (
            f"update {binding.qualified} set {assigned or f'{first} = {binding.qualified}.{first}'} "
            f"from unnest({places}) as _given({', '.join(['_place', *columns.values()])}) "
            f"where {binding.qualified}.ctid = _given._place and {binding.token}"
        )
        types = [TID_ARRAY, *(stored_type(field).array_oid for field in fields)]
        return Statement(text, types, is_small=False)

    found: Statement = binding.kept(("update_places", names, checked), make)
    return found


def _given(names: Sequence[str]) -> str:
    arrays = ", ".join(f"${place + 1}" for place in range(len(names)))
    return f"unnest({arrays}) with ordinality as g({', '.join([*names, '_n'])})"
