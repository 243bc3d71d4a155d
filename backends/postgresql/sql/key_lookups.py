"""Reads of rows by their keys: the statements, the calls, and the rows of their results.

The result of a read stays valid until a write of the transaction runs: the snapshot does not change, and a row that
another transaction writes in between is a conflict. Until then no lock is held, and the first of two transactions to
commit wins.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from structable.backends.postgresql.driver.statement import Call, Statement, Values
from structable.spi import Row, Value
from structable.spi.authors import MAX_ROW_SIZE, RowShape

from .binding import TableBinding
from .names import column
from .row_codec import Pieces
from .row_limit import row_size
from .write_statements import ADDRESS, all_of, arrays, columns_of, found_row, parameters, same_key, values_of

_HEADER = 20
"""The bytes of an array's header; each element after it is preceded by its length."""
_NUMBERS = struct.Struct(">4xq")
_ADDRESSES = struct.Struct(">4x6s")


def current(binding: TableBinding) -> Statement:
    """Return the statement that the server rejects unless the binding is the table's current version."""
    return binding.kept("current", lambda: Statement(f"select {binding.token}"))


def identified(binding: TableBinding, identify: Call) -> Call:
    """Return a call that identifies the transaction, which the server also rejects as `current` is rejected."""
    statement = identify.statement
    found: Statement = binding.kept(
        ("identified", statement), lambda: Statement(f"{statement.text.decode()} where {binding.token}")
    )
    return Call(found)


def _look(
    binding: TableBinding, kind: object, names: tuple[str, ...], wanted: Callable[[], str], more: Sequence[int] = ()
) -> Statement:
    """Return the kept statement that evaluates expressions on the row of a key.

    Its parameters are the fields `names`, key fields first, then one parameter of each type in `more`.
    """

    def make() -> Statement:
        where = all_of(same_key(binding, parameters(names).value), binding.token)
        types = [*(binding.oids[name] for name in names), *more]
        return Statement(f"select {wanted()} from {binding.qualified} as t where {where}", types)

    return binding.kept(kind, make)


def lookup_call(binding: TableBinding, key: Pieces, shape: RowShape) -> Call:
    """Return the call that reads a row's fields outside the key; the caller has the key, whose types never change."""
    names = shape.columns[len(key) :]
    kind = ("lookup", names)
    return Call(_look(binding, kind, binding.spec.primary_key, lambda: columns_of(names) or "1"), key)


def decode_row(values: Values, key: tuple[Value, ...], shape: RowShape) -> Row:
    """Return the row of a key, with the values that `lookup_call` returned."""
    return Row(shape, key + values if len(shape.columns) > len(key) else key)


def look_at_size(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that finds the size that a row would have with some fields changed."""

    def wanted() -> str:
        new = parameters(names).value
        return row_size(binding.spec, {name: new(name) for name in names})

    return _look(binding, ("look_at_size", names), names, wanted)


def look_at_swap(binding: TableBinding, names: tuple[str, ...], *, is_null: bool) -> Statement:
    """Return the statement that compares the last of some fields with an expected value, and finds the new size.

    The expected value is the parameter after the new one, unless it is null.
    """
    name = names[-1]

    def wanted() -> str:
        old, expected = f"t.{column(name)}", f"${len(names) + 1}"
        test = f"{old} is null" if is_null else f"coalesce({old} = {expected}, false)"
        return f"{test}, {row_size(binding.spec, {name: f'${len(names)}'})}"

    more = () if is_null else (binding.oids[name],)
    return _look(binding, ("look_at_swap", name, is_null), names, wanted, more)


def lookup_many_call(binding: TableBinding, keys: list[Pieces], shape: RowShape) -> Call:
    """Return the call that reads rows of many keys, in key order and each once."""
    # Rows that lie close together are found a fifth faster one after the other. A dict keeps an order that is there:
    # then sorting takes a tenth of its time.
    given = binding.arrays(binding.spec.primary_key, sorted(dict.fromkeys(keys)))
    return Call(_lookup_many(binding, shape.columns), given)


def _lookup_many(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    key = binding.spec.primary_key

    def make() -> Statement:
        order = columns_of(key)
        if len(key) == 1:
            # One scan of the index, in two thirds of the time. With more fields the server may choose to read all rows
            # with the first fields while these are few, and keep that plan.
            text = f"select {columns_of(names)} from {binding.qualified} where {order} = any($1) and {binding.token}"
        else:
            source = arrays(key)
            row = found_row(binding, source.value, map(column, dict.fromkeys([*names, *key])))
            text = f"select {_columns(names, 'r')} from {source.rows} join lateral ({row}) as r on true"
            order = _columns(key, "r")
        return Statement(f"{text} order by {order}", [binding.array_oids[name] for name in key], is_small=False)

    return binding.kept(("lookup_many", names), make)


def _columns(names: Sequence[str], source: str) -> str:
    return ", ".join(map(values_of(source), names))


def oversized(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that finds a row that would be too large with some fields changed, and its size."""

    def make() -> Statement:
        source = arrays(names)
        size = row_size(binding.spec, {name: source.value(name) for name in names})
        row = found_row(binding, source.value, [f"{size} as _size"])
        text = (
            f"select r._size from {source.rows} join lateral ({row}) as r on true "
            f"where r._size > {MAX_ROW_SIZE} limit 1"
        )
        return Statement(text, [binding.array_oids[name] for name in names], is_small=False)

    return binding.kept(("oversized", names), make)


def addresses_of(binding: TableBinding) -> Statement:
    """Return the statement that finds rows of many keys: arrays of their numbers, from 1, and addresses (ctid)."""

    def make() -> Statement:
        key = binding.spec.primary_key
        given = ", ".join(f"${place + 1}" for place in range(len(key)))
        source = f"unnest({given}) with ordinality as g({columns_of(key)}, _n)"
        where = all_of(same_key(binding, values_of("g")), binding.token)
        # OFFSET keeps the server from joining in another order; LIMIT takes more time.
        row = f"select t.ctid as {ADDRESS} from {binding.qualified} as t where {where} offset 0"
        text = (
            f"select array_agg(_n), array_agg({ADDRESS}) from "
            f"(select g._n, r.{ADDRESS} from {source} join lateral ({row}) as r on true) as s"
        )
        return Statement(text, [binding.array_oids[name] for name in key], is_small=False)

    return binding.kept("addresses_of", make)


def read_addresses(keys: Sequence[Pieces], numbers: bytes | None, addresses: bytes | None) -> dict[Pieces, bytes]:
    """Return the row addresses that `addresses_of` found, by their keys."""
    if numbers is None or addresses is None:
        return {}
    found = [keys[number - 1] for (number,) in _NUMBERS.iter_unpack(memoryview(numbers)[_HEADER:])]
    there = [address for (address,) in _ADDRESSES.iter_unpack(memoryview(addresses)[_HEADER:])]
    return dict(zip(found, there, strict=True))


def build_rows(values: list[Values], shape: RowShape) -> Iterator[Row]:
    """Yield rows of all columns of a shape.

    Each is made when it is asked for: rows that live together are traversed by every garbage collection, at length. An
    exception of a signal handler while a row is made loses that row: the next call returns the one behind it.
    """
    kind, new = shape.row_type, object.__new__

    def made(one: Values) -> Row:
        row = new(kind)
        row._values = one
        return row

    return map(made, values)
