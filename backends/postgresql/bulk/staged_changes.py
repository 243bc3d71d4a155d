"""Publishes staged changes of a table with a key: mode changes, and mode upsert where a merge engine merges."""

from __future__ import annotations

from collections.abc import Iterable

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merge_statements import upserting
from structable.backends.postgresql.sql.merging import Effect, MergeSql, column, effect_of
from structable.backends.postgresql.sql.names import qualified
from structable.spi import FieldSizeLimitError, RowKind
from structable.spi.merging import Merger
from structable.spi.values import MAX_ROW_SIZE

from .ranked_rows import MOST_ROUNDS, RankedRows
from .staging import StagedTable, staged_columns

__all__ = ["StagedChanges"]

_KINDS = tuple(RowKind)


class StagedChanges:
    """The changes of one staging table.

    Parameters
    ----------
    binding : TableBinding
        The table.
    staged : StagedTable
        The staged rows.
    """

    def __init__(self, binding: TableBinding, staged: StagedTable) -> None:
        self._binding = binding
        self._staged = staged
        self._merger = Merger(binding.spec)
        self._given = dict(zip(staged.columns, staged_columns(len(staged.columns)), strict=True))
        self._effects: dict[Effect, list[int]] = {}
        for kind in map(RowKind, staged.kinds or (RowKind.INSERT,)):
            self._effects.setdefault(effect_of(binding.spec, self._merger, kind), []).append(_KINDS.index(kind))
        self._has_one_effect = len(self._effects) == 1
        self._effects.pop(Effect.NOTHING, None)

    @property
    def retracts(self) -> bool:
        """Whether numbers may be taken back: the negative of the lowest one does not fit its field."""
        return Effect.RETRACT in self._effects

    def publish(self, connection: ServerConnection, *, repeated: bool, one_by_one: bool) -> None:
        """Merge the rows into the table.

        The server refuses keys that come again, unless they may be `repeated`. `one_by_one` merges without its
        arithmetic.
        """
        if not self._effects:
            return
        self._require_size()
        if self._has_one_effect and not one_by_one and (not repeated or Effect.DELETE in self._effects):
            [effect] = self._effects
            connection.pipeline((command(self._statement(effect, qualified(self._binding.schema, self._staged.name))),))
            return
        effective = [number for numbers in self._effects.values() for number in numbers]
        ranked = RankedRows(connection, self._binding, self._staged, effective)
        source = ranked.source
        if not self._binding.merges:
            texts = []
            if Effect.DELETE in self._effects:
                texts.append(self._statement(Effect.DELETE, source, self._kinds_test(Effect.DELETE)))
            if Effect.ADD in self._effects:
                texts.append(self._statement(Effect.ADD, source, f"s.r = s.n and {self._kinds_test(Effect.ADD)}"))
            connection.pipeline(map(command, texts))
        else:
            above = 0 if one_by_one else MOST_ROUNDS
            connection.pipeline(map(command, self._rounds(source, min(above, ranked.most), above)))
            if ranked.most > above:
                ranked.merge_one_by_one(self._merger, above)
        ranked.drop()

    def _require_size(self) -> None:
        """Reject a row that is too large with the flag of a soft delete, which the merge adds."""
        spec = self._binding.spec
        softly = spec.table_options.soft_delete
        if softly is not None and softly not in self._given:
            size = self._staged.largest + spec.field(softly).type.width
            if size > MAX_ROW_SIZE:
                raise FieldSizeLimitError(spec.name, "row", size, MAX_ROW_SIZE)

    def _rounds(self, source: str, rounds: int, most: int) -> Iterable[str]:
        for number in range(1, rounds + 1):
            for effect in self._effects:
                yield self._statement(
                    effect, source, f"s.r = {number} and s.n <= {most} and {self._kinds_test(effect)}"
                )

    def _kinds_test(self, effect: Effect) -> str:
        if not self._staged.kinds:
            return "true"
        return f"s.c{len(self._given)} in ({', '.join(map(str, self._effects[effect]))})"

    def _statement(self, effect: Effect, source: str, test: str = "true") -> str:
        """Return the statement that merges rows of distinct keys."""
        binding = self._binding
        merge = MergeSql(binding.write_spec, effect, self._staged.columns)
        where = f"{test} and {binding.token}"
        if effect is Effect.DELETE:
            same = " and ".join(f"t.{column(name)} = {self._value(name)}" for name in binding.spec.primary_key)
            condition = merge.condition(self._value)
            return f"delete from {binding.qualified} as t using {source} s where {same} and {condition} and {where}"
        takes_effect = merge.takes_effect(self._value)
        return upserting(binding, merge, self._value, f"from {source} s where {takes_effect} and {where}")

    def _value(self, name: str) -> str:
        return f"s.{self._given[name]}"
