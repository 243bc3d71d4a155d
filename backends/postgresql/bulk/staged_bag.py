"""The statements that publish staged rows of tables without a key."""

from __future__ import annotations

from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.keyless import taken_ids
from structable.backends.postgresql.sql.merging import column
from structable.backends.postgresql.sql.names import HIDDEN_KEY, qualified, quoted
from structable.spi import RowKind
from structable.spi.rules.keyless import DIGEST_BYTES

from .staging import StagedTable, staged_columns

__all__ = ["bag_statements"]

_KEY = quoted(HIDDEN_KEY)


def bag_statements(binding: TableBinding, staged: StagedTable) -> list[str]:
    """Return the statements that put the rows of a staging table and, in mode changes, take rows away.

    Of the changes of equal rows, in their order, those that take away more than was put before take rows of the table.
    What was put, and is not taken away again, is inserted.
    """
    names = dict(zip(staged.columns, staged_columns(len(staged.columns)), strict=True))
    rows = qualified(binding.schema, staged.name)
    columns = ", ".join([_KEY, *map(column, names)])
    width = len(names)
    if not staged.kinds:
        values = ", ".join(f"s.{one}" for one in (f"c{width}", *names.values()))
        return [f"insert into {binding.qualified} ({columns}) select {values} from {rows} s where {binding.token}"]
    kind, key = f"c{width}", f"c{width + 1}"
    retracts = ", ".join(str(place) for place, one in enumerate(RowKind) if one.retracts)
    signs = (
        f"select *, substring({key} from 1 for {DIGEST_BYTES}) as digest, ctid as place, "
        f"case when {kind} in ({retracts}) then -1 else 1 end as sign from {rows}"
    )
    sums = f"select *, sum(sign) over (partition by digest order by place) as so_far from ({signs}) _signs"
    doomed = f"(select digest, -min(so_far) as number from ({sums}) _sums group by digest having min(so_far) < 0)"
    left = (
        f"select *, sum(sign) over whole - least(min(so_far) over whole, 0) as number, "
        f"row_number() over (partition by digest, sign order by place desc) as r from ({sums}) _sums "
        "window whole as (partition by digest)"
    )
    values = ", ".join(f"s.{one}" for one in (key, *names.values()))
    return [
        f"delete from {binding.qualified} as t using ({taken_ids(binding, doomed)}) as _doomed "
        f"where t.{_KEY} = _doomed.{_KEY} and {binding.token}",
        f"insert into {binding.qualified} ({columns}) select {values} from ({left}) s "
        f"where s.sign = 1 and s.r <= s.number and {binding.token}",
    ]
