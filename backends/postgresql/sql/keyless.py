"""Tables without a key: their rows have a hidden key, which begins with a digest of the row."""

from __future__ import annotations

from structable.backends.postgresql.driver.statement import Statement
from structable.backends.postgresql.driver.type_oids import BIGINT_ARRAY, BYTEA_ARRAY
from structable.spi.rules.keyless import DIGEST_BYTES

from .binding import TableBinding
from .names import HIDDEN_KEY, quoted
from .write_statements import Source, delete_where

__all__ = ["take_rows", "taken"]

_KEY = quoted(HIDDEN_KEY)
_ABOVE = "'\\x" + "ff" * (DIGEST_BYTES + 1) + "'::bytea"
"""Follows a digest in a bound above all keys that begin with it."""


def taken(binding: TableBinding, digests: str) -> str:
    """Return the statement that deletes some rows: of each `digest` in a source, the first `number`."""
    rows = (
        f"select t.{_KEY} from {binding.qualified} as t where t.{_KEY} >= g.digest and t.{_KEY} < g.digest || {_ABOVE} "
        f"order by t.{_KEY} limit g.number"
    )
    doomed = f"(select _rows.{_KEY} from {digests} as g, lateral ({rows}) as _rows) as _doomed"
    return delete_where(binding, Source(lambda _: "", doomed, f"t.{_KEY} = _doomed.{_KEY}"))


def take_rows(binding: TableBinding) -> Statement:
    """Return the statement that deletes rows of some digests, of each at most a number; both are arrays."""

    def make() -> Statement:
        text = taken(binding, "(select * from unnest($1, $2) as u(digest, number))")
        return Statement(text, (BYTEA_ARRAY, BIGINT_ARRAY), is_small=False)

    found: Statement = binding.kept("take_rows", make)
    return found
