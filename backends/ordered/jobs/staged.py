"""The staged rows of a job: written as sorted runs, read as one sequence in the order in which they count."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, TypeAlias

from structable.backends.base.job_rules import require_same_rules, staged_for_dropped
from structable.backends.ordered.engine import SPACE_BYTES, RunStore
from structable.backends.ordered.schema.binding import TableBinding
from structable.backends.ordered.table_schema import TableSchema, dropped_name
from structable.spi import DataCorruptionError, InvalidFieldError, WriteMode
from structable.spi.authors import rules_digest

StagedRow: TypeAlias = tuple[bytes, bytes, tuple[str, ...] | None]
"""Raw key, raw value, and the columns that the row names; None for all. `encoding` defines the value's prefix."""


def run_order(binding: TableBinding, mode: WriteMode) -> Callable[[tuple[Any, ...]], bytes]:
    """Return the sort key of the rows of a run: the key, or the part of it that equal rows of a bag share.

    Rows of a log keep the order of staging.
    """
    if binding.log:
        return lambda row: b""
    if mode is WriteMode.CHANGES and binding.spec.keyless:
        equal_rows = binding.keys.equal_rows
        return lambda row: equal_rows(row[0])[0]
    return itemgetter(0)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged rows of one attempt."""

    schema: TableSchema  # as of the encoding of the rows
    columns: tuple[str, ...]  # the columns that the rows name; all others are null in the staged values
    runs: tuple[bytes, ...]  # the arguments of `RunStore.read_run`
    mode: WriteMode | None = None  # the mode of the job; None if staged by older software

    def encode(self) -> bytes:
        document = {
            "schema": self.schema.encode().decode(),
            "columns": self.columns,
            "runs": [run.hex() for run in self.runs],
            "mode": self.mode,
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, raw: str | bytes) -> StagedRows:
        try:
            document = json.loads(raw)
            mode = document.get("mode")
            return cls(
                TableSchema.decode(document["schema"].encode()),
                tuple(document["columns"]),
                tuple(bytes.fromhex(run) for run in document["runs"]),
                None if mode is None else WriteMode(mode),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataCorruptionError(f"the staged rows of a write job cannot be decoded: {error!r}") from error


class StagedRuns:
    """The runs of a job's attempts, which are in the order of their partitions."""

    def __init__(self, engine: RunStore, binding: TableBinding, mode: WriteMode, staged: list[StagedRows]) -> None:
        self._engine = engine
        self._binding = binding
        self._mode = mode
        self._order = run_order(binding, mode)
        self._staged = staged
        for one in staged:
            self._require_readable(one)
            if one.mode not in (mode, None):
                reason = (
                    f"the rows were staged for a job of mode {one.mode}, and are not committed by one of mode {mode}"
                )
                raise InvalidFieldError(binding.spec.name, "staged", reason)
        self._everything = {field.name for field in binding.spec.fields}
        self.partial = any(set(one.columns) != self._everything for one in staged)
        """Whether a row may leave out fields."""
        self.mixed = len({frozenset(one.columns) for one in staged if one.runs}) > 1
        """Whether rows may leave out different fields."""

    def _require_readable(self, staged: StagedRows) -> None:
        """Raise if the rows are of a dropped table of the same name, have a dropped field, or follow other rules."""
        schema, then = self._binding.schema, staged.schema
        if then.spec.rules or schema.spec.rules:
            now = rules_digest(schema.spec.rules)
            require_same_rules(schema.spec.name, rules_digest(then.spec.rules), now)
        known = {dropped_name(field.name): field for field in then.value_fields if field.name not in staged.columns}
        layout = tuple(known.get(field.name, field) for field in schema.layouts.get(then.version, ()))
        if (then.identity, then.key_fields, then.value_fields) != (schema.identity, schema.key_fields, layout):
            raise staged_for_dropped(schema.spec.name)

    def check(self) -> None:
        """Raise if a run is lost or damaged, as far as the engine can tell without reading it."""
        for one in self._staged:
            for state in one.runs:
                self._engine.check_run(state)

    def fit_indexes(self) -> bool:
        """Return whether all rows were staged under every index that the table has now."""
        indexed = set(self._binding.schema.maintained)
        return all(indexed <= set(one.schema.maintained) for one in self._staged)

    def rows(self) -> Iterator[StagedRow]:
        """Yield the rows in the order of runs; rows that are equal in it by partition, then in the order of staging."""
        runs = [
            self._run(one.schema.space, state, self._named(one.columns)) for one in self._staged for state in one.runs
        ]
        if self._binding.log:
            return chain.from_iterable(runs)  # a merge would have all of them open at once
        return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=self._order)

    def by_key(self, after: bytes) -> Iterator[tuple[bytes, Iterator[StagedRow]]]:
        """Yield the keys after `after` in the order of runs, each with its rows, to be read before the next key."""
        return (group for group in groupby(self.rows(), self._order) if group[0] > after)

    def _named(self, columns: tuple[str, ...]) -> tuple[str, ...] | None:
        return columns if self._mode is WriteMode.PATCH or set(columns) != self._everything else None

    def _run(self, space: bytes, state: bytes, columns: tuple[str, ...] | None) -> Iterator[StagedRow]:
        now = self._binding.schema.space
        for raw_key, raw in self._engine.read_run(state):
            # The table may have moved to another space: this job, or an earlier one, overwrites it.
            yield raw_key if space == now else now + raw_key[SPACE_BYTES:], raw, columns
