"""The statements of tables without a key, whose rows have a hidden one."""

from __future__ import annotations

from structable.backends.postgresql.driver.statement import Statement
from structable.spi.rules.keyless import DIGEST_BYTES

from .binding import TableBinding
from .merging import column
from .names import HIDDEN_KEY, quoted
from .types import stored_type

__all__ = ["insert_rows", "take_rows", "taken_ids"]

_BYTES_ARRAY, _COUNTS_ARRAY = 1001, 1016
_KEY = quoted(HIDDEN_KEY)
_ABOVE = "'\\x" + "ff" * (DIGEST_BYTES + 1) + "'::bytea"
"""Follows a digest in a bound above all keys that begin with it."""


def insert_rows(binding: TableBinding, names: tuple[str, ...]) -> Statement:
    """Return the statement that inserts rows; its parameters are an array of hidden keys, then of each field."""

    def make() -> Statement:
        types = [_BYTES_ARRAY, *(stored_type(binding.spec.field(name)).array_oid for name in names)]
        columns = ", ".join([_KEY, *map(column, names)])
        arrays = ", ".join(f"${place + 1}" for place in range(len(types)))
        text = f"insert into {binding.qualified} ({columns}) select * from unnest({arrays}) where {binding.token}"
        return Statement(text, types, is_small=False)

    found: Statement = binding.kept(("insert_rows", names), make)
    return found


def taken_ids(binding: TableBinding, source: str) -> str:
    """Return the query of the hidden keys of some rows: of each `digest` in the source, the first `number`."""
    rows = (
        f"select t.{_KEY} from {binding.qualified} as t where t.{_KEY} >= g.digest and t.{_KEY} < g.digest || {_ABOVE} "
        f"order by t.{_KEY} limit g.number"
    )
    return f"select _rows.{_KEY} from {source} as g, lateral ({rows}) as _rows"


def take_rows(binding: TableBinding) -> Statement:
    """Return the statement that deletes rows of some digests, of each at most a number; both are arrays."""

    def make() -> Statement:
        source = "(select * from unnest($1, $2) as u(digest, number))"
        text = (
            f"delete from {binding.qualified} as t using ({taken_ids(binding, source)}) as _doomed "
            f"where t.{_KEY} = _doomed.{_KEY} and {binding.token}"
        )
        return Statement(text, (_BYTES_ARRAY, _COUNTS_ARRAY), is_small=False)

    found: Statement = binding.kept("take_rows", make)
    return found
