"""`StagedPatch`: publishes staged rows of mode `patch` by the present rows of their keys, which it changes or locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from structable.backends.base.patches import TOGETHER, misfit
from structable.backends.postgresql.driver.connection import ServerConnection
from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.feeds.record_statements import GIVEN, RECORDED, record_staged
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import column, qualified
from structable.backends.postgresql.sql.types import stored_type
from structable.spi import PatchArm, RecordChangedError, RecordExistsError, RecordNotFoundError, RowKind, WriteMode

from .staged_merge import StagedMerge, returned_rows
from .staging import ARMS, StagedTable, staged_columns

_PRESENT, _ABSENT, _REPLACE, _DELETE, _INSERT, _EXPECT = (ARMS.index(arm) for arm in PatchArm)
_SHOWN = 10
_STATISTICS = 10
"""The statistics target of the tables that a commit makes: a tenth of the usual sample is enough."""


class StagedPatch:
    """The rows of a job's staging tables.

    The transaction makes and drops two tables: the arms of each key, and the keys that have a row. Such a row was
    changed by the key's arm `present`, or is locked if the key has no such arm. If another writer inserts a row in the
    meantime, putting a row for its key fails as a conflict.
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
        RecordChangedError, RecordExistsError
            If a row is not as expected, or a key to insert has a row.
        RecordNotFoundError
            If keys are missing and the job does not skip them.
        """
        self._find_keys()
        self._refuse_misfits()
        self._refuse_changed()
        # Puts come after changes, so that no new row is changed.
        self._find_rows()
        self._refuse_returned()
        self._refuse_existing()
        missing = self._missing()
        if missing and not skips:
            self._refuse_missing(missing)
        self._put_rows()
        return missing

    def drop(self) -> None:
        """Drop the tables that the transaction made."""
        self._run(f"drop table {self._keys}, {self._there}")

    def _run(self, *texts: str) -> list[int]:
        """Run statements and return the number of rows that each wrote."""
        return [result.command_tuples or 0 for result in self._connection.pipeline(map(command, texts))]

    def _ask(self, text: str) -> list[tuple[object, ...]]:
        return self._connection.ask(command(text))

    def _find_keys(self) -> None:
        self._run(
            f"set local default_statistics_target = {_STATISTICS}",
            f"create unlogged table {self._keys} with (autovacuum_enabled = false) as "
            f"select {', '.join(self._key)}, count(*) filter (where arm not in ({_DELETE}, {_EXPECT})) "
            f"+ bool_or(arm = {_DELETE})::integer as n, bool_or(arm = {_EXPECT}) as expected, "
            f"coalesce(bit_or(1 << arm) filter (where arm <> {_EXPECT}), 0) as arms, bool_or(required) as required "
            f"from ({self._all_arms()}) s group by {', '.join(self._key)}",
            f"analyze {self._keys}",
        )

    def _all_arms(self) -> str:
        parts = []
        for one in self._staged:
            given, (arm, required, _) = _columns(one)
            source = qualified(self._binding.schema, one.name)
            parts.append(f"select {self._keys_of(given)}, {arm}::integer as arm, {required} as required from {source}")
        return " union all ".join(parts)

    def _keys_of(self, given: Mapping[str, str]) -> str:
        """Return the key's columns of a staging table, under the names of the key."""
        values = []
        for name, field in zip(self._key, self._binding.spec.key_fields, strict=True):
            collated = ' collate "C"' if stored_type(field).name == "text" else ""
            values.append(f"{given[field.name]}{collated} as {name}")
        return ", ".join(values)

    def _refuse_misfits(self) -> None:
        both = ", ".join(str(sum(1 << ARMS.index(arm) for arm in arms)) for arms in TOGETHER)
        key = ", ".join(self._key)
        wrong = (
            f"select {key} from {self._keys} where n > 1 and not (n = 2 and arms in ({both})) order by {key} limit 1"
        )
        found = self._ask(f"select {key}, arm from ({self._all_arms()}) s join ({wrong}) w using ({key})")
        if found:
            error = misfit(self._binding.spec.name, found[0][:-1], [ARMS[int(str(row[-1]))] for row in found])
            assert error is not None
            raise error

    def _refuse_changed(self) -> None:
        """Lock the expected rows, waiting for other writers; reject the job if one is missing or different."""
        parts = []
        for one in self._staged:
            if self._has(one, _EXPECT):
                given, (arm, _, named) = _columns(one)
                same = [f"t.{column(name)} = s.{given[name]}" for name in self._binding.spec.primary_key]
                for place, name in enumerate(one.columns):
                    if name not in self._binding.spec.primary_key:
                        unnamed = f"s.{named} is not null and get_bit(s.{named}, {place}) = 0"
                        same.append(f"({unnamed} or t.{column(name)} is not distinct from s.{given[name]})")
                as_expected = f"exists (select from {self._binding.qualified} t where {' and '.join(same)})"
                source = qualified(self._binding.schema, one.name)
                parts.append(
                    f"select distinct {self._keys_of(given)} from {source} s "
                    f"where s.{arm} = {_EXPECT} and not {as_expected}"
                )
        if not parts:
            return
        changed = f"({' union '.join(parts)}) c"
        is_locked = False
        while not is_locked:
            is_locked = self._lock_expected()
            count = int(str(self._ask(f"select count(*) from {changed}")[0][0]))
            if count:
                raise RecordChangedError(self._binding.spec.name, self._first(changed), count)

    def _lock_expected(self) -> bool:
        """Lock the expected rows, and return whether all exist. Rows that are inserted later are not locked."""
        locked = f"with locked as ({self._rows_of_keys('1', 'k.expected')}) select count(*)"
        return bool(self._ask(f"{locked} = (select count(*) from {self._keys} where expected) from locked")[0][0])

    def _refuse_existing(self) -> None:
        """Reject the job if a key that it inserts, and does not delete, has a row."""
        inserted = f"{self._keys} k where k.arms = {1 << _INSERT} and {self._of_rows('k', self._key)}"
        for key in self._first(inserted):
            raise RecordExistsError(self._binding.spec.name, key)

    def _refuse_returned(self) -> None:
        """Let the job begin again if a row to change or delete was not found, but exists."""
        wanted = f"k.arms & {1 << _PRESENT | 1 << _DELETE} <> 0 and not {self._of_rows('k', self._key)}"
        there = f"exists (select from {self._binding.qualified} t where {self._same_key()})"
        if self._ask(f"select exists (select from {self._keys} k where {wanted} and {there})")[0][0]:
            raise returned_rows()

    def _same_key(self) -> str:
        """Return the condition that a row `t` of the table has the key `k`."""
        names = [column(name) for name in self._binding.spec.primary_key]
        return " and ".join(f"t.{name} = k.{one}" for name, one in zip(names, self._key, strict=True))

    def _first(self, rows: str) -> tuple[tuple[object, ...], ...]:
        """Return the first keys of some rows."""
        key = ", ".join(self._key)
        return tuple(self._ask(f"select {key} from {rows} order by {key} limit {_SHOWN}"))

    def _rows_of_keys(self, values: str, test: str) -> str:
        """Return the query that locks the rows of some keys, waiting for other writers."""
        return (
            f"select {values} from {self._binding.qualified} t where exists "
            f"(select from {self._keys} k where {self._same_key()} and {test}) and {self._binding.token} for update"
        )

    def _find_rows(self) -> None:
        """Change the rows of arms `present`, lock the rows of other keys, and record all keys; waits for writers."""
        names = [column(name) for name in self._binding.spec.primary_key]
        values = ", ".join(f"t.{name} as {one}" for name, one in zip(names, self._key, strict=True))
        key = ", ".join(self._key)
        self._run(
            f"create unlogged table {self._there} with (autovacuum_enabled = false) as "
            f"select {key} from {self._keys} with no data",
            f"insert into {self._there} {self._rows_of_keys(values, f'k.arms & {1 << _PRESENT} = 0')}",
            *(
                f"with changed as ({one.write(each_key_once=False)} returning {one.key_written()}) "
                f"insert into {self._there} select * from changed"
                for one in self.present
            ),
            f"analyze {self._there}",
        )

    def _of_rows(self, source: str, names: Iterable[str]) -> str:
        """Return the test whether the key in some columns of a source has a row."""
        same = " and ".join(f"t.{one} = {source}.{name}" for one, name in zip(self._key, names, strict=True))
        return f"exists (select from {self._there} t where {same})"

    def _lacking(self) -> str:
        alone = f"k.arms = {1 << _PRESENT}"
        return f"{self._keys} k where (k.required or {alone}) and not {self._of_rows('k', self._key)}"

    def _missing(self) -> int:
        return int(str(self._ask(f"select count(*) from {self._lacking()}")[0][0]))

    def _refuse_missing(self, count: int) -> None:
        keys = self._first(self._lacking())
        raise RecordNotFoundError(self._binding.spec.name, keys[0], keys, count)

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
        self._run(
            *(
                self._merge(one, _INSERT, WriteMode.INSERT).write(each_key_once=False)
                for one in self._staged
                if self._has(one, _INSERT)
            )
        )

    def _has(self, staged: StagedTable, arm: int) -> bool:
        """Return whether a staging table may have rows of an arm; insertion and deletion of a key are a replacement."""
        return str(ARMS[arm]) in staged.kinds or (arm == _REPLACE and str(PatchArm.INSERT) in staged.kinds)

    def _merge(self, staged: StagedTable, arm: int, mode: WriteMode) -> StagedMerge:
        return StagedMerge(self._binding, mode, staged, self._source(staged, arm))

    def _source(self, staged: StagedTable, arm: int) -> str:
        """Return the query of an arm's rows that take effect."""
        given, (mark, _, _) = _columns(staged)
        names = [given[name] for name in self._binding.spec.primary_key]
        same = " and ".join(f"k.{one} = s.{name}" for one, name in zip(self._key, names, strict=True))
        moved = f"exists (select from {self._keys} k where {same} and k.arms = {1 << _DELETE | 1 << _INSERT})"
        test = f"s.{mark} = {arm}"
        if arm == _ABSENT:
            test += f" and not {self._of_rows('s', names)}"
        elif arm == _REPLACE and str(PatchArm.INSERT) in staged.kinds:
            test = f"({test} or (s.{mark} = {_INSERT} and {moved}))"
        elif arm in (_DELETE, _INSERT):
            test += f" and not {moved}"
        return f"(select s.* from {qualified(self._binding.schema, staged.name)} s where {test})"

    def _given_records(self) -> Iterator[Call]:
        """Yield the calls that record, in a feed of the producer `input`, the rows that the triggers do not record."""
        if not self._binding.takes_input:
            return
        yield GIVEN
        for one in self._staged:
            if self._has(one, _REPLACE):
                yield self._recorded(_columns(one)[0], self._source(one, _REPLACE), RowKind.UPDATE_AFTER)
        deleted = f"(select * from {self._keys} k where k.arms = {1 << _DELETE})"
        yield self._recorded(dict(zip(self._binding.spec.primary_key, self._key, strict=True)), deleted, RowKind.DELETE)

    def _recorded(self, given: dict[str, str], source: str, kind: RowKind) -> Call:
        return command(record_staged(self._binding, given, source, kind=kind, ordered=False))


def _columns(staged: StagedTable) -> tuple[dict[str, str], list[str]]:
    """Return the columns of fields in a staging table, and the columns of the marks."""
    width = len(staged.columns)
    names = staged_columns(width + 3)
    return dict(zip(staged.columns, names, strict=False)), names[width:]
