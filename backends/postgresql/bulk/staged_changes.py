"""Publishes staged changes of a table with a key: mode changes, and mode upsert where a merge engine merges."""

from __future__ import annotations

from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import command
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merging import MergeEffect, MergeSql, effect_of
from structable.backends.postgresql.sql.names import qualified
from structable.backends.postgresql.sql.row_limit import require_size
from structable.backends.postgresql.sql.write_statements import GivenRows, WriteShape, all_of, same_key, write_sql
from structable.spi import RowKind
from structable.spi.authors import Effect, Merger

from .ranked_rows import MOST_ROUNDS, RankedRows
from .staged_merge import returned_rows
from .staging import StagedTable

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
        self._given = staged.given
        self._effects: dict[MergeEffect, list[int]] = {}
        for kind in map(RowKind, staged.kinds or (RowKind.INSERT,)):
            self._effects.setdefault(effect_of(binding.spec, self._merger, kind), []).append(_KINDS.index(kind))
        self._has_one_effect = len(self._effects) == 1
        self._effects.pop(MergeEffect.NOTHING, None)

    @property
    def retracts(self) -> bool:
        """Whether the rows may retract numbers: the negative of the lowest one does not fit its field."""
        return MergeEffect.RETRACT in self._effects

    def publish(self, connection: ServerConnection, *, repeated: bool, one_by_one: bool) -> None:
        """Merge the rows into the table.

        The server rejects repeated keys, unless they may be `repeated`. `one_by_one` merges without the server's
        arithmetic.
        """
        if not self._effects:
            return
        self._require_size()
        if self._has_one_effect and not one_by_one and (not repeated or MergeEffect.DELETE in self._effects):
            [effect] = self._effects
            self._merge(connection, effect, qualified(self._binding.schema, self._staged.name))
            return
        effective = [number for numbers in self._effects.values() for number in numbers]
        ranked = RankedRows(connection, self._binding, self._staged, effective)
        source = ranked.source
        if not self._binding.merges:
            if MergeEffect.DELETE in self._effects:
                self._merge(connection, MergeEffect.DELETE, source, self._kinds_test(MergeEffect.DELETE))
            if MergeEffect.ADD in self._effects:
                self._merge(connection, MergeEffect.ADD, source, f"s.r = s.n and {self._kinds_test(MergeEffect.ADD)}")
        else:
            above = 0 if one_by_one else MOST_ROUNDS
            for number in range(1, min(above, ranked.most) + 1):
                for effect in self._effects:
                    test = f"s.r = {number} and s.n <= {above} and {self._kinds_test(effect)}"
                    self._merge(connection, effect, source, test)
            if ranked.most > above:
                ranked.merge_one_by_one(self._merger, above)
        ranked.drop()

    def _require_size(self) -> None:
        """Reject a row that becomes too large by the flag of a soft delete, which the merge adds."""
        spec = self._binding.spec
        softly = spec.table_options.soft_delete
        if softly is not None and softly not in self._given:
            require_size(spec.name, self._staged.largest + spec.field(softly).type.width)

    def _kinds_test(self, effect: MergeEffect) -> str:
        if not self._staged.kinds:
            return "true"
        return f"s.c{len(self._given)} in ({', '.join(map(str, self._effects[effect]))})"

    def _merge(self, connection: ServerConnection, effect: MergeEffect, source: str, test: str = "true") -> None:
        """Merge rows of distinct keys."""
        binding, names = self._binding, tuple(self._staged.columns)
        if effect is not MergeEffect.DELETE:
            changes = GivenRows(self._value, f"{source} s", test=test)
            shape = WriteShape(Effect.MERGE, names, waits=True, merge=effect)
            connection.pipeline((command(write_sql(binding, shape, changes)),))
            return
        condition = MergeSql(binding.write_spec, effect, names).condition(self._value)
        where = all_of(same_key(binding, self._value), condition, test, binding.token)
        doomed = f"{source} s where {where}"
        delete = command(f"delete from {binding.qualified} as t using {doomed}")
        deleted, given = connection.pipeline((delete, command(f"select count(*) from {source} s where {test}")))
        if (deleted.command_tuples or 0) < int(str(connection.rows(given)[0][0])):
            left = command(f"select exists (select from {binding.qualified} as t, {doomed})")
            if connection.ask(left)[0][0]:
                raise returned_rows()

    def _value(self, name: str) -> str:
        return f"s.{self._given[name]}"
