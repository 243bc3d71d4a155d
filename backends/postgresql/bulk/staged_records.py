"""The statements that record staged rows in a feed of the producer `input`, as the verb of the job's mode would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from structable.backends.postgresql.driver.statement import Call, command
from structable.backends.postgresql.feeds.record_statements import GIVEN, record_staged
from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.names import qualified
from structable.spi import RowKind, WriteMode

from .staging import StagedTable, staged_columns

__all__ = ["staged_records"]

_KINDS = {
    WriteMode.INSERT: RowKind.INSERT,
    WriteMode.UPSERT: RowKind.UPDATE_AFTER,
    WriteMode.REPLACE: RowKind.UPDATE_AFTER,
}


def staged_records(binding: TableBinding, mode: WriteMode, staged: Sequence[StagedTable]) -> Iterator[Call]:
    """Yield the calls that record a job's rows before they are written: in mode update the triggers do so."""
    if mode is WriteMode.UPDATE or not staged:
        return
    yield GIVEN
    if mode is WriteMode.DELETE:
        yield command(_deletes(binding, staged))
        return
    for one in staged:
        given = _columns(one)
        kind = f"c{len(given)}" if one.kinds else _KINDS[mode]
        yield command(record_staged(binding, given, qualified(binding.schema, one.name), kind=kind))


def _deletes(binding: TableBinding, staged: Sequence[StagedTable]) -> str:
    """Return the statement that records each key once, there or not."""
    key = binding.spec.primary_key
    names = staged_columns(len(key))
    queries = (
        f"select {', '.join(f'{_columns(one)[field]} as {name}' for field, name in zip(key, names, strict=True))} "
        f"from {qualified(binding.schema, one.name)}"
        for one in staged
    )
    given = dict(zip(key, names, strict=True))
    return record_staged(binding, given, f"({' union '.join(queries)})", kind=RowKind.DELETE, ordered=False)


def _columns(staged: StagedTable) -> dict[str, str]:
    return dict(zip(staged.columns, staged_columns(len(staged.columns)), strict=True))
