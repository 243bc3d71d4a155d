"""`StagedPatch`: publishes staged rows of mode patch, judged on the rows of their keys, which it changes or locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from structable.backends.base.patches import misfit
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.feeds.record_statements import GIVEN, RECORDED, record_staged
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.merging import column
from structable.backends.postgresql.sql.names import qualified
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import PatchArm, RecordNotFoundError, RowKind, WriteMode

from .marks import ARMS
from .staged_merge import StagedMerge
from .staging import StagedTable, staged_columns

__all__ = ["StagedPatch"]

_PRESENT, _ABSENT, _REPLACE, _DELETE = (ARMS.index(arm) for arm in PatchArm)
_SHOWN = 10
_STATISTICS = 10
"""Of the tables that a commit makes: a tenth of the usual sample tells enough of them."""


class StagedPatch:
    """The rows of a job's staging tables.

    Two tables, which the transaction makes and drops, tell of each key its arms, and of which there is a row: one that
    its arm `present` has changed, or that is locked if it has none. A row that another writer inserts meanwhile is
    noticed when one is put for its key, and refused as a conflict.
    """

    def __init__(self, connection: ServerConnection, binding: TableBinding, staged: Sequence[StagedTable]) -> None:
        self._connection = connection
        self._binding = binding
        self._staged = staged
        self._key = [f"k{place}" for place in range(len(binding.spec.primary_key))]
        self._keys, self._there = (qualified(binding.schema, f"{staged[0].name}_{end}") for end in "kt")
        self.present = [self._merge(one, _PRESENT, WriteMode.UPDATE) for one in staged if self._has(one, _PRESENT)]

    def publish(self, *, skips: bool) -> int:
        """Write the rows and return the number of missing keys.

        Raises
        ------
        InvalidFieldError
            If arms of one key do not fit together.
        RecordNotFoundError
            If keys are missing and the job does not skip them.
        """
        self._find_keys()
        self._refuse_misfits()
        # Puts come after changes, so that no row that was put is changed.
        self._find_rows()
        missing = self._missing()
        if missing and not skips:
            self._refuse_missing(missing)
        self._put_rows()
        return missing

    def drop(self) -> None:
        """Drop the tables that the transaction made."""
        self._run(f"drop table {self._keys}, {self._there}")

    def _run(self, *texts: str) -> list[int]:
        """Run statements and return the numbers of rows that they wrote."""
        return [result.command_tuples or 0 for result in self._connection.pipeline(map(command, texts))]

    def _ask(self, text: str) -> list[tuple[object, ...]]:
        return self._connection.ask(command(text))

    # What the job is to do, and the rows that it finds

    def _find_keys(self) -> None:
        self._run(
            f"set local default_statistics_target = {_STATISTICS}",
            f"create unlogged table {self._keys} with (autovacuum_enabled = false) as "
            f"select {', '.join(self._key)}, count(*) as n, bit_or(1 << arm) as arms, bool_or(required) as required "
            f"from ({self._all_arms()}) s group by {', '.join(self._key)}",
            f"analyze {self._keys}",
        )

    def _all_arms(self) -> str:
        parts = []
        for one in self._staged:
            given, (arm, required, _) = _columns(one)
            values = []
            for name, field in zip(self._key, self._binding.spec.key_fields, strict=True):
                collated = ' collate "C"' if stored_type(field).name == "text" else ""
                values.append(f"{given[field.name]}{collated} as {name}")
            source = qualified(self._binding.schema, one.name)
            parts.append(f"select {', '.join(values)}, {arm}::integer as arm, {required} as required from {source}")
        return " union all ".join(parts)

    def _refuse_misfits(self) -> None:
        both = 1 << _PRESENT | 1 << _ABSENT
        key = ", ".join(self._key)
        wrong = f"select {key} from {self._keys} where n > 1 and not (n = 2 and arms = {both}) order by {key} limit 1"
        found = self._ask(f"select {key}, arm from ({self._all_arms()}) s join ({wrong}) w using ({key})")
        if found:
            error = misfit(self._binding.spec.name, found[0][:-1], [ARMS[int(str(row[-1]))] for row in found])
            assert error is not None
            raise error

    def _find_rows(self) -> None:
        """Change the rows of arms `present`, lock those of other keys, and keep the keys of both; waits for writers."""
        names = [column(name) for name in self._binding.spec.primary_key]
        same = " and ".join(f"t.{name} = k.{one}" for name, one in zip(names, self._key, strict=True))
        values = ", ".join(f"t.{name} as {one}" for name, one in zip(names, self._key, strict=True))
        key = ", ".join(self._key)
        self._run(
            f"create unlogged table {self._there} with (autovacuum_enabled = false) as "
            f"select {key} from {self._keys} with no data",
            f"insert into {self._there} select {values} from {self._binding.qualified} t where exists "
            f"(select from {self._keys} k where {same} and k.arms & {1 << _PRESENT} = 0) and {self._binding.token} "
            "for update",
            *(
                f"with changed as ({one.write(each_key_once=False)} returning {one.key_written()}) "
                f"insert into {self._there} select * from changed"
                for one in self.present
            ),
            f"analyze {self._there}",
        )

    def _of_rows(self, source: str, names: Iterable[str]) -> str:
        """Return the test whether there is a row of the key in some columns of a source."""
        same = " and ".join(f"t.{one} = {source}.{name}" for one, name in zip(self._key, names, strict=True))
        return f"exists (select from {self._there} t where {same})"

    def _lacking(self) -> str:
        alone = f"k.arms = {1 << _PRESENT}"
        return f"from {self._keys} k where (k.required or {alone}) and not {self._of_rows('k', self._key)}"

    def _missing(self) -> int:
        return int(str(self._ask(f"select count(*) {self._lacking()}")[0][0]))

    def _refuse_missing(self, count: int) -> None:
        key = ", ".join(self._key)
        keys = tuple(self._ask(f"select {key} {self._lacking()} order by {key} limit {_SHOWN}"))
        raise RecordNotFoundError(self._binding.spec.name, keys[0], keys, count)

    # Writing

    def _put_rows(self) -> None:
        self._run(
            *(
                self._merge(one, _ABSENT, WriteMode.INSERT).write(each_key_once=False)
                for one in self._staged
                if self._has(one, _ABSENT)
            )
        )
        self._connection.pipeline(self._given_records())
        self._run(
            *(
                self._merge(one, arm, mode).write(each_key_once=False)
                for arm, mode in ((_REPLACE, WriteMode.REPLACE), (_DELETE, WriteMode.DELETE))
                for one in self._staged
                if self._has(one, arm)
            )
        )
        if self._binding.takes_input:
            self._connection.pipeline((RECORDED,))

    def _has(self, staged: StagedTable, arm: int) -> bool:
        return str(ARMS[arm]) in staged.kinds

    def _merge(self, staged: StagedTable, arm: int, mode: WriteMode) -> StagedMerge:
        return StagedMerge(self._binding, mode, staged, self._source(staged, arm))

    def _source(self, staged: StagedTable, arm: int) -> str:
        """Return the rows of an arm that take effect, as a query."""
        given, (mark, _, _) = _columns(staged)
        test = f"s.{mark} = {arm}"
        if arm == _ABSENT:
            test += f" and not {self._of_rows('s', (given[name] for name in self._binding.spec.primary_key))}"
        return f"(select s.* from {qualified(self._binding.schema, staged.name)} s where {test})"

    def _given_records(self) -> Iterator[Call]:
        """Yield the calls that record, in a feed of the producer `input`, what the triggers do not."""
        if not self._binding.takes_input:
            return
        yield GIVEN
        kinds = ((_REPLACE, RowKind.UPDATE_AFTER), (_DELETE, RowKind.DELETE))
        for arm, kind in kinds:
            for one in self._staged:
                if self._has(one, arm):
                    given, _ = _columns(one)
                    if arm == _DELETE:
                        given = {name: given[name] for name in self._binding.spec.primary_key}
                    source = self._source(one, arm)
                    yield command(record_staged(self._binding, given, source, kind=kind, ordered=False))


def _columns(staged: StagedTable) -> tuple[dict[str, str], list[str]]:
    """Return the columns of fields in a staging table, and those of the marks."""
    width = len(staged.columns)
    names = staged_columns(width + 3)
    return dict(zip(staged.columns, names, strict=False)), names[width:]
