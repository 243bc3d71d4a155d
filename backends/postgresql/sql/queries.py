"""Scans as queries: their statements, kept by the shape of the request."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from structable.backends.postgresql.driver.statement import BIGINT, Call, Statement
from structable.spi.authors import And, Comparison, Operator, ScanRequest

from .binding import TableBinding
from .conditions import Conditions, GivenPrefixes, union
from .names import column
from .templates import Prefixes, Template, Templated, templated
from .write_statements import all_of, columns_of, values_of

MOST_FEW = 1_000
"""The largest result of `few_rows`."""
_FEW_OF_ANY_SIZE = 100
_FEW_BYTES = 64 << 10
MANY_COUNTED = 1_000
"""The number of rows from which the next count of a shape is planned freely."""
_MOST_KEPT_VALUES = 64
_LONG = struct.Struct(">q")

Make = Callable[[Conditions, bool], str]
"""Makes a statement with these conditions, to be planned by index or not."""
MakeOf = Callable[[Conditions, Template], str]
"""Makes a statement of the rows of a template."""


class Query:
    """The statements of one shape, which `make` makes.

    `index` is the index that finds the rows whatever their number: an indexed field, or "" for the key; None if it
    depends on the values. `by_index` says whether the statement is prepared and planned by its index. It is false after
    a call that found many rows: the server then plans each call separately, until one finds few.
    """

    __slots__ = ("_binding", "_freely", "_index", "_make", "_prepared", "by_index")

    def __init__(self, binding: TableBinding, make: Make, index: str | None) -> None:
        self._binding = binding
        self._make = make
        self._index = index
        self._prepared: Statement | None = None
        self._freely: Statement | None = None
        self.by_index = index is not None

    def call(self, pieces: Sequence[bytes | None]) -> Call:
        """Return the call for the values of a request."""
        if not self.by_index:
            return self.call_freely(pieces)
        if self._prepared is None:
            conditions = Conditions(self._binding, self._index or None)
            self._prepared = conditions.statement(self._make(conditions, True), prepare=True)
        return Call(self._prepared, pieces)

    def call_freely(self, pieces: Sequence[bytes | None], prefix: str = "") -> Call:
        """Return the call that the server plans for its values, after a prefix such as DECLARE."""
        if self._freely is None:
            conditions = Conditions(self._binding)
            self._freely = conditions.statement(self._make(conditions, False), prepare=False)
        return Call(self._freely.after(prefix) if prefix else self._freely, pieces)

    def explained(self, pieces: Sequence[bytes | None]) -> Call:
        """Return the call that explains the plan."""
        statement, parameters = self.call(pieces)
        return Call(statement.after("explain (format json) "), parameters)

    def note(self, *, many: bool) -> None:
        """Record whether a call has found many rows."""
        self.by_index = self._index is not None and not many


def query_of(
    binding: TableBinding,
    request: ScanRequest,
    kind: tuple[object, ...],
    make: MakeOf,
    given: Sequence[bytes | None] = (),
) -> tuple[Query, list[bytes | None]]:
    """Return the query of an operation on a request's rows, and its values: the template's, then the given ones.

    `kind` has everything except the template on which `make` depends.
    """
    template, pieces = templated(binding, request)
    pieces += given
    return _kept(binding, kind, template, pieces, lambda conditions, _: make(conditions, template), None)


def _kept(
    binding: TableBinding,
    kind: tuple[object, ...],
    template: Template,
    pieces: list[bytes | None],
    make: Make,
    order_by: str | None,
    *,
    is_scan: bool = False,
) -> tuple[Query, list[bytes | None]]:
    def built() -> Query:
        return Query(binding, make, _index_of(binding, template, order_by, is_scan=is_scan))

    return built() if len(pieces) > _MOST_KEPT_VALUES else binding.kept_query((kind, template), built), pieces


def _index_of(binding: TableBinding, template: Template, order_by: str | None, *, is_scan: bool) -> str | None:
    """Return the index that is right for all values and any size of the table: "" is the key's; None if there is none.

    A plan is kept while the table grows, so that only the shape of the request may decide. The server uses the index of
    a value within a range of keys only for the order of a scan.
    """
    if order_by is not None:
        return None
    ranges, where = template
    conjuncts = where.parts if isinstance(where, And) else () if where is None else (where,)
    indexed = [one for one in conjuncts if not binding.indexed.isdisjoint(one.fields())]
    if isinstance(ranges, Prefixes):
        return None if indexed else ""
    if len(ranges) != 1 or ranges[0] is None:
        return None
    if not indexed:
        return "" if not ranges[0].is_open or (is_scan and where is None) else None
    found = indexed[0]
    if len(indexed) == 1 and isinstance(found, Comparison) and found.operator is Operator.EQ:
        return found.field if is_scan or ranges[0].is_open else None
    return None


def few_rows(binding: TableBinding, columns: tuple[str, ...] | None) -> int:
    """Return the maximum number of rows with these columns that a scan reads at once, before it opens a cursor."""

    def count() -> int:
        width = binding.width(columns or binding.shape.columns)
        return _FEW_OF_ANY_SIZE if width is None else max(min(MOST_FEW, _FEW_BYTES // width), _FEW_OF_ANY_SIZE)

    return binding.kept(("few", columns), count)


def scan_query(
    binding: TableBinding, request: ScanRequest, known: Templated | None = None
) -> tuple[Query, list[bytes | None]]:
    """Return the query of a scan in its order, and its values; `known` is the result of `templated`.

    Called by index, it reads at most one row more than `few_rows`; called freely, all rows.
    """
    if request.limit_per_range is not None and len(request.ranges) == 1:
        [request] = request.per_range
    template, pieces = templated(binding, request) if known is None else known
    limits = [one for one in (request.limit, request.limit_per_range) if one is not None]
    pieces += [_LONG.pack(one) for one in limits]
    has_limit, per_range = request.limit is not None, request.limit_per_range is not None
    few = few_rows(binding, request.columns)
    are_few = request.limit is not None and request.limit <= few
    # The cached query must not hold the values of the request.
    columns, order_by, reverse = request.columns or binding.shape.columns, request.order_by, request.reverse

    def make(conditions: Conditions, by_index: bool) -> str:
        ranges = template.ranges
        prefixes = conditions.prefixes(ranges) if isinstance(ranges, Prefixes) else None
        inside = [] if prefixes is not None else conditions.ranges(template)
        where = all_of(conditions.where(template), binding.token)
        most = conditions.parameter_of(BIGINT) if has_limit else ""
        most_per_range = conditions.parameter_of(BIGINT) if per_range else ""
        if by_index and not are_few:
            most = str(few + 1)
        order = _ScanOrder(binding, columns, order_by or conditions.index, reverse=reverse)
        if prefixes is not None:
            return _of_prefixes(order, prefixes, where, most, most_per_range)
        if most_per_range:
            inside = [order.of_firsts(one, where, most_per_range) for one in inside]
            where = binding.token
        return order.select(all_of(union(inside), where), most=most)

    kind = ("scan", columns, order_by, reverse, has_limit, are_few, per_range)
    return _kept(binding, kind, template, pieces, make, order_by, is_scan=not per_range)


class _ScanOrder:
    """The columns and the order of a scan."""

    def __init__(self, binding: TableBinding, columns: tuple[str, ...], first: str | None, *, reverse: bool) -> None:
        self.binding = binding
        self.columns = columns
        self._reverse = reverse
        self._names = [name for name in (first, *binding.spec.primary_key) if name is not None]
        self.needed = list(dict.fromkeys([*self.columns, *self._names]))

    def of(self, source: str) -> str:
        """Return the clause ORDER BY for columns of a source; empty if there is no order."""
        key, direction = self.binding.spec.primary_key, " desc" if self._reverse else ""
        nulls = f" nulls {'last' if self._reverse else 'first'}"
        terms = (f"{source}.{column(name)}{direction}{'' if name in key else nulls}" for name in self._names)
        return f" order by {', '.join(terms)}" if self._names else ""

    def select(self, where: str, names: Sequence[str] = (), *, most: str = "") -> str:
        """Return the query of some columns of the table's rows, by default the scan's."""
        wanted = columns_of(names or self.columns)
        return f"select {wanted} from {self.binding.qualified} as t where {where}{self.of('t')}{_limit(most)}"

    def of_firsts(self, inside: str, where: str, most: str) -> str:
        """Return the condition that a row is among the first of a range."""
        key = self.binding.version.stored_key
        columns = ", ".join(map(values_of("t"), key))
        return f"({columns}) in ({self.select(all_of(inside, where), key, most=most)})"


def _limit(most: str) -> str:
    return f" limit {most}" if most else ""


def _of_prefixes(order: _ScanOrder, prefixes: GivenPrefixes, where: str, limit: str, per_range: str) -> str:
    """Return the query of the rows of some prefixes; an index finds each prefix."""
    most = per_range or limit
    inside = all_of(prefixes.matches, where)
    if not most or prefixes.are_keys:
        rows = f"select {columns_of(order.needed)} from {order.binding.qualified} as t where {inside}"
        joined = prefixes.joined(rows)
    else:
        joined = prefixes.joined(order.select(inside, order.needed, most=most), limited=True)
    columns = ", ".join(map(values_of("r"), order.columns))
    return f"select {columns} from {joined}{order.of('r')}{_limit(limit)}"


def count_query(binding: TableBinding, request: ScanRequest) -> tuple[Query, list[bytes | None]]:
    """Return the query of the number of a scan's rows, and its values."""

    def make(conditions: Conditions, template: Template) -> str:
        if not isinstance(template.ranges, Prefixes):
            return f"select count(*) from {binding.qualified} as t where {conditions.tests(template)}"
        prefixes = conditions.prefixes(template.ranges)
        where = all_of(prefixes.matches, conditions.where(template), binding.token)
        return f"select count(*) from {prefixes.joined(f'select 1 from {binding.qualified} as t where {where}')}"

    return query_of(binding, request, ("count",), make)
