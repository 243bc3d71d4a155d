"""The SQL of writes, generated from their effect (`WriteShape`) and the source of their rows (`GivenRows`).

There are three sources: the parameters of one row, arrays of many rows with distinct keys, and a staging table. The SQL
calls the row of a key `t`.

In a transaction a write changes the rows that its snapshot has, and inserts the others. ON CONFLICT is unsuitable: if
another transaction has deleted a row, it would insert the row without the conflict that the contract demands. The
server reports a conflict if the row has changed since the snapshot; the unique key reports a row inserted since then.
Arrays find each row by the index of the key, and then by its address, whatever the sizes of table and arrays: the
server can keep their plans.

A write that waits takes effect on the rows that other writers leave, in its own snapshot, by ON CONFLICT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from structable.backends.postgresql.driver.statement import BIGINT_ARRAY, BYTEA_ARRAY, TID_ARRAY, Statement
from structable.spi import TableSpecification
from structable.spi.authors import DIGEST_BYTES, MAX_ROW_SIZE, Effect, When

from .binding import TableBinding
from .merging import MergeEffect, MergeSql, Name, fitting, written
from .names import HIDDEN_KEY, column, quoted
from .row_limit import TOO_LARGE, failing, guarded, row_size

ADDRESS = "_address"
"""The column of the addresses where rows are stored; no field's column has the name."""
_KEY = quoted(HIDDEN_KEY)
"""The column of the key of tables without one, which begins with a digest of the row."""
_ABOVE = "'\\x" + "ff" * (DIGEST_BYTES + 1) + "'::bytea"
"""The bytes that follow a digest in a bound above all keys that begin with it."""


class WriteShape(NamedTuple):
    """The effect of a statement on its rows.

    Parameters
    ----------
    effect : Effect
        PUT, CHANGE, STEP, REMOVE or MERGE.
    names : tuple of str
        The fields of its rows, the key first; a STEP gives amounts of fields.
    when : When
        ANY; ABSENT, where the unique key rejects existing rows; or PRESENT, which leaves out absent rows.
    checked : bool
        Whether a CHANGE fails if a row would be too large; all other effects except PUT always do.
    waits : bool
        Whether it waits for other writers of its rows, and takes effect on the rows that they leave.
    merge : MergeEffect
        The effect of a MERGE.
    """

    effect: Effect
    names: tuple[str, ...]
    when: When = When.ANY
    checked: bool = False
    waits: bool = False
    merge: MergeEffect = MergeEffect.ADD

    @property
    def removes(self) -> bool:
        return self.effect is Effect.REMOVE or (self.effect is Effect.MERGE and self.merge is MergeEffect.DELETE)


class GivenRows(NamedTuple):
    """The given rows of a statement.

    Parameters
    ----------
    value : function
        Returns the SQL of a field's given value.
    rows : str
        The item of FROM; none for parameters.
    same : str, optional
        The condition that `t` is the row of a given row, unless equal keys are the condition.
    test : str
        The condition that a row is given.
    locates : bool
        Whether the statement finds rows by their keys first, and then by their addresses.
    """

    value: Name
    rows: str = ""
    same: str | None = None
    test: str = "true"
    locates: bool = False


def parameters(names: Sequence[str]) -> GivenRows:
    """Return the source of one row, with a parameter for each field."""
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    return GivenRows(numbers.__getitem__)


def arrays(names: Sequence[str]) -> GivenRows:
    """Return the source of rows with distinct keys, with an array for each field."""
    given = ", ".join(f"${place + 1}" for place in range(len(names)))
    return GivenRows(values_of("g"), f"unnest({given}) as g({columns_of(names)})", locates=True)


def write_statement(binding: TableBinding, shape: WriteShape, *, many: bool) -> Statement:
    """Return the statement of a write of one row or of `many`; its parameters are values or arrays of its fields."""

    def make() -> Statement:
        source = arrays(shape.names) if many else parameters(shape.names)
        oids = binding.array_oids if many else binding.oids
        return Statement(write_sql(binding, shape, source), [oids[name] for name in shape.names], is_small=not many)

    return binding.kept((shape, many), make)


def update_at_addresses(binding: TableBinding, names: tuple[str, ...], *, checked: bool) -> Statement:
    """Return the statement that changes rows at known addresses: arrays of these, and of each field but the key.

    An address belongs to a row's version in the snapshot: it holds until the transaction writes the row, and another
    transaction's write of the row makes the change a conflict, as it does for a change by key.
    """

    def make() -> Statement:
        shape = WriteShape(Effect.CHANGE, names, When.PRESENT, checked)
        fields = [name for name in names if name not in binding.spec.primary_key]
        given = ", ".join(f"${place + 1}" for place in range(len(fields) + 1))
        rows = f"unnest({given}) as _given({', '.join([ADDRESS, *map(column, fields)])})"
        text = write_sql(binding, shape, GivenRows(values_of("_given"), rows, f"t.ctid = _given.{ADDRESS}"))
        return Statement(text, [TID_ARRAY, *(binding.array_oids[name] for name in fields)], is_small=False)

    return binding.kept(("update_at_addresses", names, checked), make)


def write_sql(binding: TableBinding, shape: WriteShape, source: GivenRows) -> str:
    """Return the SQL of a write; the server rejects it if the table has another version."""
    spec = binding.write_spec
    changes: _WriteEffect
    changes = MergeSql(spec, shape.merge, shape.names) if shape.effect is Effect.MERGE else _PlainSql(spec, shape)
    if shape.when is When.ABSENT or (shape.waits and not shape.removes):
        return _insert(binding, changes, shape, source)
    if not shape.removes and shape.when is When.ANY:
        return (_put_rows if source.rows else _put_row)(binding, changes, shape, source)
    if source.locates:
        given = {name: source.value(name) for name in shape.names}
        rows = _located(binding, source, given, "join")
        source = GivenRows(values_of("_given"), f"({rows}) as _given", f"t.ctid = _given.{ADDRESS}")
    if shape.removes:
        return delete_where(binding, source, changes.condition(source.value))
    return _update(binding, changes, source, source.value)


class _WriteEffect(Protocol):
    """The effect of a write on a row."""

    keeps_existing: bool

    def operand(self, given: Name) -> Mapping[str, str]:
        """Return the fields outside the key of a new row."""

    def takes_effect(self, given: Name) -> str:
        """Return the condition that the write has an effect."""

    def condition(self, new: Name) -> str:
        """Return the condition that the write changes an existing row."""

    def assignments(self, new: Name) -> Mapping[str, str]:
        """Return the new values of an existing row's fields."""


class _PlainSql:
    """A PUT, a CHANGE, a STEP or a REMOVE."""

    keeps_existing = False

    def __init__(self, spec: TableSpecification, shape: WriteShape) -> None:
        self._spec = spec
        self._shape = shape
        self._named = [name for name in shape.names if name not in spec.primary_key]

    def operand(self, given: Name) -> dict[str, str]:
        return {name: given(name) for name in self._named}

    def takes_effect(self, given: Name) -> str:
        return "true"

    def condition(self, new: Name) -> str:
        return "true"

    def assignments(self, new: Name) -> dict[str, str]:
        spec, effect = self._spec, self._shape.effect
        if effect is Effect.STEP:
            return written(spec, {name: _raised(spec, name, new(name)) for name in self._named})
        names = [field.name for field in spec.value_fields] if effect is Effect.PUT else self._named
        changes = {name: new(name) for name in names}
        return written(spec, guarded(spec, changes) if self._shape.checked else changes)


def _raised(spec: TableSpecification, name: str, amount: str) -> str:
    """Return a field plus an amount, which fails on overflow, or if its first value makes the row too large."""
    field, old = spec.field(name), f"t.{column(name)}"
    total = fitting(field, f"{old} + {amount}")
    first = amount
    if not all(one.type.width for one in spec.fields):
        size = f"{row_size(spec, {})} + {field.type.width}"
        first = failing([(size, MAX_ROW_SIZE, TOO_LARGE)], field, amount)
    return f"case when {old} is not null then {total} else {first} end"


def _put_row(binding: TableBinding, changes: _WriteEffect, shape: WriteShape, source: GivenRows) -> str:
    """Return the statement that changes the row of the parameters, or inserts it."""
    given = source.value
    operand = changes.operand(given)
    values = {**{name: given(name) for name in binding.spec.primary_key}, **operand}
    effective = changes.takes_effect(given)
    change = absent = ""
    if not changes.keeps_existing:
        update = _update(binding, changes, source._replace(test=effective), operand.__getitem__)
        change, absent = f"with _changed as ({update} returning 1) ", "not exists (select from _changed)"
    if shape.effect is Effect.MERGE:
        # An existing row may stay unchanged.
        absent = f"not exists (select from {binding.qualified} as t where {same_key(binding, given)})"
    where = all_of(absent, effective, binding.token)
    return (
        f"{change}insert into {binding.qualified} ({columns_of(values)}) select {', '.join(values.values())} "
        f"where {where}"
    )


def _put_rows(binding: TableBinding, changes: _WriteEffect, shape: WriteShape, source: GivenRows) -> str:
    """Return the statement that changes the rows of arrays that exist, and inserts the others."""
    given = source.value
    values = {**{name: given(name) for name in binding.spec.primary_key}, **changes.operand(given)}
    rows = _located(binding, source._replace(test=changes.takes_effect(given)), values, "left join")
    parts = [f"with _given as materialized ({rows})"]
    new = values_of("_given")
    if not changes.keeps_existing:
        found = GivenRows(new, "_given", f"t.ctid = _given.{ADDRESS}")
        parts.append(f", _changed as ({_update(binding, changes, found, new)})")
    columns = columns_of(values)
    parts.append(
        f" insert into {binding.qualified} ({columns}) select {columns} from _given "
        f"where {ADDRESS} is null and {binding.token}"
    )
    return "".join(parts)


def _located(binding: TableBinding, source: GivenRows, values: Mapping[str, str], join: str) -> str:
    """Return the query of given rows with some of their values, and the addresses of the stored rows."""
    listed = [f"{value} as {column(name)}" for name, value in values.items()]
    rows, where = found_row(binding, source.value, [f"t.ctid as {ADDRESS}"]), all_of(source.test)
    query = f"select {', '.join([*listed, f'_found.{ADDRESS}'])} from {source.rows} {join} lateral ({rows}) as _found"
    return f"{query} on true{f' where {where}' if where else ''}"


def found_row(binding: TableBinding, value: Name, wanted: Iterable[str]) -> str:
    """Return the query of the row of a key, which its index finds.

    LIMIT keeps the server from joining in another order, which in a small table would always read all of it, and from
    reading versions of the row that the index lists behind it.
    """
    where = all_of(same_key(binding, value), binding.token)
    return f"select {', '.join(wanted)} from {binding.qualified} as t where {where} limit 1"


def _update(binding: TableBinding, changes: _WriteEffect, source: GivenRows, new: Name) -> str:
    assigned = ", ".join(f"{column(name)} = {value}" for name, value in changes.assignments(new).items())
    tests = (_same(binding, source), source.test, changes.condition(new), binding.token)
    rows = f" from {source.rows}" if source.rows else ""
    return f"update {binding.qualified} as t set {assigned}{rows} where {all_of(*tests)}"


def delete_where(binding: TableBinding, source: GivenRows, condition: str = "true") -> str:
    """Return the statement that deletes the rows of given keys for which a condition is true."""
    rows = f" using {source.rows}" if source.rows else ""
    where = all_of(_same(binding, source), condition, source.test, binding.token)
    return f"delete from {binding.qualified} as t{rows} where {where}"


def taken(binding: TableBinding, digests: str) -> str:
    """Return the statement that deletes, for each `digest` in a source, the first `number` rows."""
    rows = (
        f"select t.{_KEY} from {binding.qualified} as t where t.{_KEY} >= g.digest and t.{_KEY} < g.digest || {_ABOVE} "
        f"order by t.{_KEY} limit g.number"
    )
    doomed = f"(select _rows.{_KEY} from {digests} as g, lateral ({rows}) as _rows) as _doomed"
    return delete_where(binding, GivenRows(lambda _: "", doomed, f"t.{_KEY} = _doomed.{_KEY}"))


def take_rows(binding: TableBinding) -> Statement:
    """Return the statement that deletes at most a number of rows for each digest; both are arrays."""

    def make() -> Statement:
        text = taken(binding, "(select * from unnest($1, $2) as u(digest, number))")
        return Statement(text, (BYTEA_ARRAY, BIGINT_ARRAY), is_small=False)

    return binding.kept("take_rows", make)


def _insert(binding: TableBinding, changes: _WriteEffect, shape: WriteShape, source: GivenRows) -> str:
    """Return the statement that inserts rows and changes existing ones, whatever others write at the same time."""
    key, given = binding.spec.primary_key, source.value
    values = {**{name: given(name) for name in key}, **changes.operand(given)}
    rows = f" from {source.rows}" if source.rows else ""
    where = all_of(changes.takes_effect(given), source.test, binding.token)
    insert = (
        f"insert into {binding.qualified} as t ({columns_of(values)}) select {', '.join(values.values())}{rows} "
        f"where {where}"
    )
    if shape.when is When.ABSENT:
        return insert
    conflict = f"{insert} on conflict ({columns_of(key)})"
    if changes.keeps_existing:
        return f"{conflict} do nothing"
    new = values_of("excluded")
    assigned = ", ".join(f"{column(name)} = {value}" for name, value in changes.assignments(new).items())
    condition = all_of(changes.condition(new))
    return f"{conflict} do update set {assigned}{f' where {condition}' if condition else ''}"


def values_of(source: str) -> Name:
    """Return the function of a field's column in an item of FROM."""
    return lambda name: f"{source}.{column(name)}"


def columns_of(names: Iterable[str]) -> str:
    """Return the columns of fields, as a list."""
    return ", ".join(map(column, names))


def _same(binding: TableBinding, source: GivenRows) -> str:
    return same_key(binding, source.value) if source.same is None else source.same


def same_key(binding: TableBinding, value: Name) -> str:
    """Return the condition that `t` is the row of a key."""
    return " and ".join(f"t.{column(name)} = {value(name)}" for name in binding.spec.primary_key)


def all_of(*conditions: str) -> str:
    """Return the conjunction of conditions; empty if all are true."""
    return " and ".join(one for one in conditions if one not in ("true", ""))
