"""The SQL that replaces rows by rows of other keys: one UPDATE, which writes one entry of each index, not two."""

from __future__ import annotations

from structable.backends.postgresql.driver.statement import Statement

from .binding import TableBinding
from .names import column
from .row_limit import guarded
from .write_statements import ADDRESS, all_of, found_row, parameters, same_key


def move_statement(
    binding: TableBinding, names: tuple[str, ...], *, expected: str | None = None, checked: bool = False
) -> Statement:
    """Return the statement that moves one row.

    Its parameters are the new values of the fields `names`, then the former key, then the expected value of a field. If
    `checked`, it fails if the row becomes too large.
    """

    def make() -> Statement:
        key = binding.spec.primary_key
        new = parameters(names).value
        old = {name: f"${len(names) + place}" for place, name in enumerate(key, 1)}
        test = "" if expected is None else f"t.{column(expected)} = ${len(names) + len(key) + 1}"
        values = {name: new(name) for name in names}
        if checked:
            values = guarded(binding.spec, values)
        where = all_of(same_key(binding, old.__getitem__), test, binding.token)
        given = (*names, *key, *(() if expected is None else (expected,)))
        return Statement(_update(binding, values, "", where), [binding.oids[name] for name in given])

    return binding.kept(("move", names, expected, checked), make)


def move_many(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that moves rows: arrays of the new values of the fields `names`, then of the former key."""

    def make() -> Statement:
        key = binding.spec.primary_key
        given = (*names, *key)
        columns = [f"_{place}" for place in range(len(given))]
        old = {name: f"g.{columns[len(names) + place]}" for place, name in enumerate(key)}
        row = found_row(binding, old.__getitem__, [f"t.ctid as {ADDRESS}"])
        arrays = ", ".join(f"${place + 1}" for place in range(len(given)))
        rows = f" from unnest({arrays}) as g({', '.join(columns)}) join lateral ({row}) as _found on true"
        values = {name: f"g.{columns[place]}" for place, name in enumerate(names)}
        text = _update(binding, values, rows, all_of(f"t.ctid = _found.{ADDRESS}", binding.token))
        return Statement(text, [binding.array_oids[name] for name in given], is_small=False)

    return binding.kept(("move_many", names), make)


def _update(binding: TableBinding, values: dict[str, str], rows: str, where: str) -> str:
    assigned = ", ".join(f"{column(name)} = {value}" for name, value in values.items())
    return f"update {binding.qualified} as t set {assigned}{rows} where {where}"
