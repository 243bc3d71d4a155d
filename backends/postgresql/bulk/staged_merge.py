"""The statements that publish staged rows, by the mode of their job, and the statements that record them in a feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.postgresql.driver.errors import SERIALIZATION_FAILURE, StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.feeds.record_statements import GIVEN, record_staged
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import HIDDEN_KEY, column, qualified
from structable.backends.postgresql.sql.row_limit import Judge, judge, row_size, size_of
from structable.backends.postgresql.sql.write_statements import GivenRows, WriteShape, same_key, taken, write_sql
from structable.spi import RowKind, WriteMode
from structable.spi.authors import DIGEST_BYTES, MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, MAX_ROW_SIZE, Effect, When

from .staging import StagedTable, staged_columns

_PUTS = (WriteMode.UPSERT, WriteMode.REPLACE, WriteMode.INSERT, WriteMode.OVERWRITE)
_PARTIAL = (WriteMode.UPSERT, WriteMode.UPDATE)
_KINDS = {
    WriteMode.INSERT: RowKind.INSERT,
    WriteMode.UPSERT: RowKind.UPDATE_AFTER,
    WriteMode.REPLACE: RowKind.UPDATE_AFTER,
}


class StagedMerge:
    """The SQL that writes one staging table into the table; the server rejects it if the table has another version.

    `source` is a query of some of its rows, in parentheses; given none, it writes all of them.
    """

    def __init__(self, binding: TableBinding, mode: WriteMode, staged: StagedTable, source: str | None = None) -> None:
        self._binding = binding
        self._mode = mode
        self._staged = staged
        self._source = source or qualified(binding.schema, staged.name)
        self._given = staged.given
        self._key_given = [self._value(name) for name in binding.spec.primary_key]
        # Fixed aliases for both tables: the table's own name could be any.
        self._target = f"{binding.qualified} as t"
        self._same_key = same_key(binding, self._value)

    def there(self) -> str:
        """Return the query that checks whether the rows still exist: a crash of the server empties staging tables."""
        return f"select exists (select from {self._source})"

    def write(self, *, each_key_once: bool) -> str:
        """Return the statement that writes the rows.

        `each_key_once` keeps one row of each key, which costs a sort. Otherwise the server rejects repeated keys.
        """
        rows = self._source
        if each_key_once and self._mode in _PUTS:
            key = ", ".join(self._key_given)
            rows = f"(select distinct on ({key}) s.* from {rows} s order by {key}, s.ctid desc)"
        value = self._new_value if self._mode is WriteMode.UPDATE else self._value
        return write_sql(self._binding, self._shape(each_key_once=each_key_once), GivenRows(value, f"{rows} s"))

    def _shape(self, *, each_key_once: bool) -> WriteShape:
        key, given = self._binding.spec.primary_key, tuple(self._given)
        match self._mode:
            case WriteMode.DELETE:
                return WriteShape(Effect.REMOVE, key)
            case WriteMode.UPDATE:
                changed = [name for name in self._staged.changed or given if name not in key]
                return WriteShape(Effect.CHANGE, (*key, *changed), When.PRESENT)
            case WriteMode.UPSERT:
                return WriteShape(Effect.CHANGE, given, waits=True)
        inserts = self._mode is WriteMode.INSERT or (self._mode is WriteMode.OVERWRITE and not each_key_once)
        return WriteShape(Effect.PUT, given, When.ABSENT if inserts else When.ANY, waits=True)

    def key_written(self) -> str:
        """Return the columns of the key, for the end of an update that returns the keys of its rows."""
        return ", ".join(f"t.{column(name)}" for name in self._binding.spec.primary_key)

    def _value(self, name: str) -> str:
        return f"s.{self._given[name]}"

    def _new_value(self, name: str) -> str:
        """Return the value that an update assigns: the row's own where a row of a patch does not name the field."""
        given = self._value(name)
        if not self._staged.partial or name in self._binding.spec.primary_key:
            return given
        named = f"s.{staged_columns(len(self._given) + 3)[-1]}"
        place = self._staged.columns.index(name)
        return f"case when {named} is null or get_bit({named}, {place}) = 1 then {given} else t.{column(name)} end"

    def expected(self, *, each_key_once: bool) -> int | None:
        """Return the number of rows that `write` reports; None if that depends on the table."""
        return self._staged.rows if self._mode in _PUTS and not each_key_once else None

    def existing(self) -> str:
        """Return the query of a key that the table has."""
        return self._keys(f"join {self._target} on {self._same_key}")

    def missing(self) -> str:
        """Return the query of a key that the table does not have."""
        return self._keys(f"where not exists (select from {self._target} where {self._same_key})")

    def _keys(self, rest: str) -> str:
        return f"select {', '.join(self._key_given)} from {self._source} s {rest} limit 1"

    def left_out(self, written: int) -> str:
        """Return the query that checks whether an update or a delete, which has `written` rows, has left out any."""
        if self._mode is WriteMode.DELETE:
            return f"select exists ({self.existing()})"
        keys = f"select distinct {', '.join(self._key_given)} from {self._source} s"
        return f"select count(*) > {written} from ({keys}) as k"

    def all_keys(self) -> str:
        """Return the query of all keys, repeated as often as they occur."""
        return f"select {', '.join(self._key_given)} from {self._source} s"

    def may_outgrow(self) -> bool:
        """Return whether merged rows may exceed the limit together with the fields they keep."""
        width = self._binding.width_without(() if self._staged.partial else self._staged.changed or self._given)
        return self._mode in _PARTIAL and judge(width, self._staged.largest, None)[1] is not Judge.NOBODY

    def outgrown(self) -> str:
        """Return the query of the size of a written row over the limit."""
        size = row_size(self._binding.spec, {})
        rows = f"from {self._source} s join {self._target} on {self._same_key}"
        return f"select {size} {rows} where {size} > {MAX_ROW_SIZE} limit 1"

    def outsized(self) -> list[tuple[str, str]]:
        """Return the fields that were indexed after their values were staged, and the queries of too large values.

        Such a query returns the sizes of the value and of the key.
        """
        if self._mode is WriteMode.DELETE:
            return []
        spec = self._binding.write_spec
        found = []
        for name in spec.indexes:
            if name in self._given and name not in self._staged.indexes and not spec.field(name).type.width:
                value, key = self._size((name,)), self._size(spec.primary_key)
                limits = f"{value} > {MAX_KEY_SIZE} or {key} + {value} > {MAX_KEY_AND_INDEX_SIZE}"
                query = f"select {value}, {key} from {self._source} s where {limits} limit 1"
                found.append((name, query))
        return found

    def _size(self, names: Sequence[str]) -> str:
        spec = self._binding.spec
        return f"({size_of(spec, ((spec.field(name), self._value(name)) for name in names)) or '0'})"


def returned_rows() -> StatementRefusedError:
    """Return the error of a statement that has waited for a writer that deleted a row and inserted it again.

    At READ COMMITTED the statement sees neither.
    """
    return StatementRefusedError(SERIALIZATION_FAILURE, "another writer deleted and inserted rows at the same time")


def bag_statements(binding: TableBinding, staged: StagedTable) -> list[str]:
    """Return the statements that put the rows of a staging table and, in mode `changes`, delete retracted rows.

    A retract removes an equal row that was put before it, or else a row of the table. Rows that are put and not
    retracted again are inserted.
    """
    rows = qualified(binding.schema, staged.name)
    width = len(staged.columns)
    if not staged.kinds:
        return [_insert(binding, staged, f"c{width}", rows)]
    kind, key = f"c{width}", f"c{width + 1}"
    retracts = ", ".join(str(place) for place, one in enumerate(RowKind) if one.retracts)
    signs = (
        f"select *, substring({key} from 1 for {DIGEST_BYTES}) as digest, ctid as address, "
        f"case when {kind} in ({retracts}) then -1 else 1 end as sign from {rows}"
    )
    sums = f"select *, sum(sign) over (partition by digest order by address) as so_far from ({signs}) _signs"
    doomed = f"(select digest, -min(so_far) as number from ({sums}) _sums group by digest having min(so_far) < 0)"
    left = (
        f"select *, sum(sign) over whole - least(min(so_far) over whole, 0) as number, "
        f"row_number() over (partition by digest, sign order by address desc) as r from ({sums}) _sums "
        "window whole as (partition by digest)"
    )
    return [taken(binding, doomed), _insert(binding, staged, key, f"({left})", "s.sign = 1 and s.r <= s.number")]


def _insert(binding: TableBinding, staged: StagedTable, key: str, rows: str, test: str = "true") -> str:
    given = {HIDDEN_KEY: key, **staged.given}
    source = GivenRows(lambda name: f"s.{given[name]}", f"{rows} s", test=test)
    return write_sql(binding, WriteShape(Effect.PUT, tuple(given), When.ABSENT), source)


def staged_records(binding: TableBinding, mode: WriteMode, staged: Sequence[StagedTable]) -> Iterator[Call]:
    """Yield the calls that record a job's rows, as the verb of its mode would, before they are written.

    In mode update the triggers do so.
    """
    if mode is WriteMode.UPDATE or not staged:
        return
    yield GIVEN
    if mode is WriteMode.DELETE:
        yield command(_deletes(binding, staged))
        return
    for one in staged:
        given = one.given
        kind = f"c{len(given)}" if one.kinds else _KINDS[mode]
        yield command(record_staged(binding, given, qualified(binding.schema, one.name), kind=kind))


def _deletes(binding: TableBinding, staged: Sequence[StagedTable]) -> str:
    """Return the statement that records each key once, whether it has a row or not."""
    key = binding.spec.primary_key
    names = staged_columns(len(key))
    queries = (
        f"select {', '.join(f'{one.given[field]} as {name}' for field, name in zip(key, names, strict=True))} "
        f"from {qualified(binding.schema, one.name)}"
        for one in staged
    )
    given = dict(zip(key, names, strict=True))
    return record_staged(binding, given, f"({' union '.join(queries)})", kind=RowKind.DELETE, ordered=False)
