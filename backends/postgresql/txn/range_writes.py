"""`delete_all` and `update_all`: one statement for all rows of a range, run with the commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from structable.backends.postgresql.driver.statement import Call
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.conditions import Conditions
from structable.backends.postgresql.sql.merging import written
from structable.backends.postgresql.sql.names import column
from structable.backends.postgresql.sql.queries import MANY_COUNTED, Query, count_query, query_of
from structable.backends.postgresql.sql.row_limit import require_size, size_of
from structable.backends.postgresql.sql.templates import Template
from structable.backends.postgresql.sql.types import encode_value
from structable.spi import FieldSizeLimitError, Value
from structable.spi.authors import MAX_KEY_AND_INDEX_SIZE, MAX_KEY_SIZE, ScanRequest, value_size

from .bound_table import BoundTable
from .server_transaction import ServerTransaction


def delete_matching(tx: ServerTransaction, table: BoundTable, request: ScanRequest) -> int:
    """Delete the rows of a scan and return their number."""

    def build(binding: TableBinding) -> Call:
        def make(conditions: Conditions, template: Template) -> str:
            return f"delete from {binding.qualified} as t where {conditions.tests(template)}"

        return _written(binding, request, *query_of(binding, request, ("delete",), make))

    return _defer(tx, table, build, count_matching(tx, table, request))


def count_matching(tx: ServerTransaction, table: BoundTable, request: ScanRequest) -> int:
    """Return the number of a scan's rows."""
    asked: list[Query] = []

    def build(binding: TableBinding) -> Call:
        query, values = count_query(binding, request)
        asked.append(query)
        return query.call(values)

    count = int(str(tx.rows_of(tx.ask(table, build))[0][0]))
    asked[-1].note(many=count >= MANY_COUNTED)
    return count


def _defer(
    tx: ServerTransaction, table: BoundTable, build: Callable[[TableBinding], Call], count: int, row_bytes: int = 0
) -> int:
    """Defer the statement that writes the rows of a scan, which were counted: the snapshot keeps them the same."""
    if count:
        tx.require_room(count * row_bytes)
        tx.defer(table, build)
        tx.note_written(count * row_bytes)
    return count


def _written(binding: TableBinding, request: ScanRequest, query: Query, values: list[bytes | None]) -> Call:
    """Return the call of a write, planned like the count of its rows."""
    query.by_index = count_query(binding, request)[0].by_index
    return query.call(values)


def update_matching(
    tx: ServerTransaction, table: BoundTable, request: ScanRequest, changes: Mapping[str, Value]
) -> int:
    """Change fields of the rows of a scan and return their number; changes none if a row would grow over a limit."""
    sizes = {name: value_size(table.binding.write_spec.field(name), value) for name, value in changes.items()}
    count = _count_fitting(tx, table, request, changes, sizes)
    names = tuple(changes)

    def build(binding: TableBinding) -> Call:
        def make(conditions: Conditions, template: Template) -> str:
            where = conditions.tests(template)
            new = {name: conditions.parameter(binding.spec.field(name)) for name in names}
            assigned = ", ".join(f"{column(name)} = {value}" for name, value in written(binding.spec, new).items())
            return f"update {binding.qualified} as t set {assigned} where {where}"

        pieces = [encode_value(binding.spec.field(name), value) for name, value in changes.items()]
        return _written(binding, request, *query_of(binding, request, ("update", *names), make, pieces))

    return _defer(tx, table, build, count, sum(sizes.values()))


def _count_fitting(
    tx: ServerTransaction,
    table: BoundTable,
    request: ScanRequest,
    changes: Mapping[str, Value],
    sizes: Mapping[str, int],
) -> int:
    """Return the number of a scan's rows, after checking that they all fit the limits with the changes."""
    spec = table.binding.write_spec
    indexed = {name: sizes[name] for name in spec.indexes if sizes.get(name, 0) + MAX_KEY_SIZE > MAX_KEY_AND_INDEX_SIZE}
    grows = any(sizes.values()) and table.binding.width_without(()) is None
    if not indexed and not grows:
        return count_matching(tx, table, request)
    names = tuple(changes)

    def build(binding: TableBinding) -> Call:
        def make(conditions: Conditions, template: Template) -> str:
            left = [field for field in binding.spec.fields if field.name not in names]
            of_fields = (
                size_of(binding.spec, ((field, f"t.{column(field.name)}") for field in fields))
                for fields in (left, binding.key_fields)
            )
            sizes = ", ".join(f"coalesce(max({size}), 0)" for size in of_fields)
            return f"select count(*), {sizes} from {binding.qualified} as t where {conditions.tests(template)}"

        return _written(binding, request, *query_of(binding, request, ("sizes", *names), make))

    count, others, key_size = (int(str(found)) for found in tx.rows_of(tx.ask(table, build))[0])
    count_query(table.binding, request)[0].note(many=count >= MANY_COUNTED)
    if count:
        require_size(spec.name, others + sum(sizes.values()))
    for name, size in indexed.items():
        if key_size + size > MAX_KEY_AND_INDEX_SIZE:
            raise FieldSizeLimitError(spec.name, f"primary key with {name}", key_size + size, MAX_KEY_AND_INDEX_SIZE)
    return count
