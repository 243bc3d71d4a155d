"""Staged changes with several changes of one key: numbered, and merged in rounds or, if there are many, singly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.errors import SERIALIZATION_FAILURE, StatementRefusedError
from structable.backends.postgresql.driver.statement import Call, Values, command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import column, qualified
from structable.backends.postgresql.sql.row_codec import Pieces, at_most
from structable.backends.postgresql.sql.write_statements import WriteShape, same_key, write_statement
from structable.spi import RowKind
from structable.spi.authors import IGNORED, Effect, Merger, When

from .staging import StagedTable

MOST_ROUNDS = 8
"""The maximum number of rows of one key that are merged in rounds; more are merged one by one."""
_FETCHED = 10_000
_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 8 << 20
_KINDS = tuple(RowKind)


class RankedRows:
    """The rows of a staging table with `r`, a row's number among the rows of its key, and `n`, their number.

    Only rows of the given `kinds` are in it. The transaction of the commit makes and drops the table.
    """

    def __init__(
        self, connection: ServerConnection, binding: TableBinding, staged: StagedTable, kinds: Sequence[int]
    ) -> None:
        self._connection = connection
        self._binding = binding
        self._given = staged.given
        self._kind = f"s.c{len(staged.columns)}" if staged.kinds else "0"
        wanted = f"{self._kind} in ({', '.join(map(str, kinds))})"
        self.source = qualified(binding.schema, f"{staged.name}_r")
        key = ", ".join(self._given[name] for name in binding.spec.primary_key)
        rows = qualified(binding.schema, staged.name)
        connection.pipeline(
            (
                command(
                    f"create unlogged table {self.source} with (autovacuum_enabled = false) as select *, "
                    f"row_number() over (partition by {key} order by ctid) as r, "
                    f"count(*) over (partition by {key}) as n from {rows} s where {wanted}"
                ),
                command(f"create index on {self.source} (r)"),
                command(f"analyze {self.source}"),
            )
        )
        self.most = int(str(connection.ask(command(f"select max(n) from {self.source}"))[0][0]))

    def drop(self) -> None:
        self._connection.pipeline((command(f"drop table {self.source}"),))

    def merge_one_by_one(self, merger: Merger, above: int) -> None:
        """Merge the rows of keys that have more than `above` rows into the rows of the table, which are locked."""
        binding, key = self._binding, self._binding.spec.primary_key
        same = same_key(binding, lambda name: f"s.{self._given[name]}")
        hot = f"select from {self.source} s where n > {above} and r = 1 and {same}"
        lock = command(f"select from {binding.qualified} t where exists ({hot}) and {binding.token} for update")
        locked = self._connection.run(lock).ntuples
        given = ", ".join(f"s.{one}" for one in self._given.values())
        old = ", ".join(f"t.{column(name)}" for name in (key[0], *merger.columns))
        keys = ", ".join(f"s.{self._given[name]}" for name in key)
        query = (
            f"select {given}, {self._kind}, {old} from {self.source} s left join {binding.qualified} t on {same} "
            f"where s.n > {above} order by {keys}, s.r"
        )
        writer = _Writer(self._connection, binding)
        found = 0
        for _, rows in groupby(self._fetched(query), key=self._key_of):
            whole, there, is_there, written = self._merged(merger, list(rows))
            found += there
            writer.add(whole, there, is_there, written)
        writer.flush()
        if found != locked:
            raise StatementRefusedError(
                SERIALIZATION_FAILURE, "rows were inserted by another writer while they were merged"
            )

    def _fetched(self, query: str) -> Iterator[Values]:
        self._connection.pipeline((command(f"declare _ranked no scroll cursor for {query}"),))
        rows: Sequence[Values] = ()
        while True:
            rows = self._connection.ask(command(f"fetch {_FETCHED} from _ranked"))
            yield from rows
            if len(rows) < _FETCHED:
                break
        self._connection.pipeline((command("close _ranked"),))

    def _key_of(self, row: Values) -> tuple[Any, ...]:
        names = list(self._given)
        return tuple([row[names.index(name)] for name in self._binding.spec.primary_key])

    def _merged(self, merger: Merger, rows: list[Values]) -> tuple[dict[str, Any], bool, bool, bool]:
        """Return the row of a key, whether it existed before, whether it exists now, and whether it is written."""
        names = list(self._given)
        width = len(names)
        there = rows[0][width + 1] is not None
        values = tuple(rows[0][width + 2 :]) if there else None
        written = False
        for row in rows:
            merged = merger.apply(values, _KINDS[row[width]], dict(zip(names, row[:width], strict=True)))
            if merged is not IGNORED:
                values, written = merged, True
        key = dict(zip(self._binding.spec.primary_key, self._key_of(rows[0]), strict=True))
        whole = key if values is None else {**key, **dict(zip(merger.columns, values, strict=True))}
        return whole, there, values is not None, written


class _Writer:
    """Rows to put, insert and delete, written in chunks."""

    def __init__(self, connection: ServerConnection, binding: TableBinding) -> None:
        self._connection = connection
        self._binding = binding
        self._changed: list[Pieces] = []
        self._new: list[Pieces] = []
        self._doomed: list[Pieces] = []
        self._bytes = 0

    def add(self, row: dict[str, Any], there: bool, is_there: bool, written: bool) -> None:
        if not written or not (there or is_there):
            return
        binding = self._binding
        names = binding.shape.columns if is_there else binding.spec.primary_key
        pieces = binding.row_pieces(names, row)
        (self._doomed if not is_there else self._changed if there else self._new).append(pieces)
        self._bytes += at_most(pieces)
        if len(self._changed) + len(self._new) + len(self._doomed) >= _CHUNK_ROWS or self._bytes >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        binding = self._binding
        names, key = binding.shape.columns, binding.spec.primary_key
        self._run(WriteShape(Effect.CHANGE, names), self._changed)
        # Not an upsert: a row that another writer has just inserted must be merged with.
        self._run(WriteShape(Effect.PUT, names, When.ABSENT), self._new)
        self._run(WriteShape(Effect.REMOVE, key), self._doomed)
        self._changed, self._new, self._doomed, self._bytes = [], [], [], 0

    def _run(self, shape: WriteShape, rows: list[Pieces]) -> None:
        if rows:
            statement = write_statement(self._binding, shape, many=True)
            self._connection.pipeline((Call(statement, self._binding.arrays(shape.names, rows)),))
