"""The commit of a write job: merges its runs into one sequence of keys and decides the fate of each row."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import NoReturn, TypeAlias

from structable.backends.base.job_rules import staged_for_dropped
from structable.backends.ordered.engine import SPACE_BYTES, BulkCommit, EngineSnapshot, RunStore
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.table_schema import TableSchema
from structable.spi import RecordExistsError, RecordNotFoundError, Value, WriteMode

__all__ = ["JobCommit", "JobRows", "StagedRows"]

_CHUNK_ROWS = 2_000

_Row: TypeAlias = tuple[bytes, bytes, tuple[str, ...] | None]
"""Raw key, raw value, and the columns that the row names; None for all."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged rows of one attempt."""

    schema: TableSchema  # as of the encoding of the rows
    columns: tuple[str, ...]  # those that the rows name; all others are null in the staged values
    runs: tuple[bytes, ...]  # the arguments of `RunStore.read_run`


class JobRows:
    """The rows of a job in key order, each key once, as raw pairs of the table's current layout."""

    def __init__(self, engine: RunStore, binding: TableBinding, mode: WriteMode, staged: list[StagedRows]) -> None:
        self._engine = engine
        self._binding = binding
        self._mode = mode
        self._staged = staged
        for one in staged:
            self._require_readable(one.schema)
        everything = {field.name for field in binding.spec.fields}
        self._partial = mode in (WriteMode.UPSERT, WriteMode.UPDATE) and any(
            set(one.columns) != everything for one in staged
        )

    def _require_readable(self, staged: TableSchema) -> None:
        """Raise if the rows were staged for a dropped table of the same name."""
        schema = self._binding.schema
        if (staged.identity, staged.spec.key_fields, staged.value_fields) != (
            schema.identity,
            schema.spec.key_fields,
            schema.layouts.get(staged.version),
        ):
            raise staged_for_dropped(schema.spec.name)

    def check(self, latest: EngineSnapshot) -> None:
        """Raise if the current table rejects a row: its key exists, or does not, or it is too large."""
        for one in self._staged:
            for state in one.runs:
                self._engine.check_run(state)
        if self._mode is WriteMode.INSERT:
            self._check_new(latest)
        elif self._mode is WriteMode.UPDATE:
            self._check_existing(latest)
        self.check_sizes()
        if self._partial:
            for _ in self.chunks(latest):  # merging raises for rows over the limits; the chunks are discarded
                continue

    def check_sizes(self) -> None:
        """Raise if a row is too large for an index that was added after the row was staged."""
        indexed = set(self._binding.schema.maintained)
        if self._mode is WriteMode.DELETE or all(indexed <= set(one.schema.maintained) for one in self._staged):
            return
        for raw_key, raw, _ in self._unique():
            self._binding.merged(raw_key, raw, {})

    def _check_new(self, latest: EngineSnapshot) -> None:
        before: bytes | None = None
        for chunk in _chunked(self._merged_runs()):
            for raw_key, _, _ in chunk:
                if raw_key == before:
                    self._refuse(RecordExistsError, raw_key)
                before = raw_key
            raw_keys = [raw_key for raw_key, _, _ in chunk]
            for raw_key, raw in zip(raw_keys, latest.get_many(raw_keys), strict=True):
                if raw is not None:
                    self._refuse(RecordExistsError, raw_key)

    def _check_existing(self, latest: EngineSnapshot) -> None:
        for chunk in _chunked(self._unique()):
            raw_keys = [raw_key for raw_key, _, _ in chunk]
            for raw_key, raw in zip(raw_keys, latest.get_many(raw_keys), strict=True):
                if raw is None:
                    self._refuse(RecordNotFoundError, raw_key)

    def _refuse(self, error: type[RecordExistsError] | type[RecordNotFoundError], raw_key: bytes) -> NoReturn:
        raise error(self._binding.spec.name, self._binding.keys.decode(raw_key))

    def chunks(self, latest: EngineSnapshot | None) -> Iterator[dict[bytes, bytes | None]]:
        """Yield the changes of rows and index entries, some thousand rows at a time; `latest` is None for no rows."""
        binding = self._binding
        needs_old = latest is not None and (self._partial or bool(binding.maintained))
        for chunk in _chunked(self._unique()):
            raw_keys = [raw_key for raw_key, _, _ in chunk]
            found: list[bytes | None] = [None] * len(chunk)
            if latest is not None and needs_old:
                found = latest.get_many(raw_keys)
            olds = dict(zip(raw_keys, found, strict=True))
            writes: dict[bytes, bytes | None] = {
                raw_key: self._outcome(raw_key, raw, columns, olds[raw_key]) for raw_key, raw, columns in chunk
            }
            derived: dict[bytes, bytes | None] = {}
            binding.derive(writes, olds, derived)
            writes.update(derived)
            yield writes

    def _outcome(self, raw_key: bytes, raw: bytes, columns: tuple[str, ...] | None, old: bytes | None) -> bytes | None:
        if self._mode is WriteMode.DELETE:
            return None
        if columns is None or old is None or not self._partial:
            return self._binding.current(raw)
        binding = self._binding
        staged = dict(zip(binding.value_names, binding.rows.decode_values(raw), strict=True))
        changes: dict[str, Value] = {name: staged[name] for name in columns if name in staged}
        return binding.merged(raw_key, old, changes)

    def _merged_runs(self) -> Iterator[_Row]:
        everything = len(self._binding.spec.fields)
        runs = [
            self._run(one.schema.space, state, None if len(one.columns) == everything else one.columns)
            for one in self._staged
            for state in one.runs
        ]
        return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=itemgetter(0))

    def _run(self, space: bytes, state: bytes, columns: tuple[str, ...] | None) -> Iterator[_Row]:
        now = self._binding.schema.space
        for raw_key, raw in self._engine.read_run(state):
            # The table may have moved to another space since: this job, or an earlier one, overwrites it.
            yield raw_key if space == now else now + raw_key[SPACE_BYTES:], raw, columns

    def _unique(self) -> Iterator[_Row]:
        """Yield each key once: of several rows with one key, the last staged."""
        merged = self._merged_runs()
        last = next(merged, None)
        for row in merged:
            if last is not None and row[0] != last[0]:
                yield last
            last = row
        if last is not None:
            yield last


def _chunked(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        yield chunk


class JobCommit(BulkCommit):
    """A job's commit in place, applied by an engine; `decision` and `completion` are its record during and after it.

    `recheck` raises if the job ended or the table changed before the engine blocked writers; it is None when a crash is
    repaired by applying the decided commit again.
    """

    def __init__(
        self,
        rows: JobRows,
        space: bytes,
        decision: dict[bytes, bytes | None],
        completion: dict[bytes, bytes | None],
        recheck: Callable[[EngineSnapshot], None] | None,
    ) -> None:
        self._rows = rows
        self.space = space
        self.decision = decision
        self.completion = completion
        self._recheck = recheck

    def check(self, latest: EngineSnapshot) -> None:
        if self._recheck is not None:
            self._recheck(latest)
            self._rows.check(latest)
        else:
            for _ in self._rows.chunks(latest):  # an unreadable row must be found before the first is written
                continue

    def chunks(self, latest: EngineSnapshot) -> Iterator[dict[bytes, bytes | None]]:
        return self._rows.chunks(latest)
