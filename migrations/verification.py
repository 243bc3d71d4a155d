"""Verification: each row has what its rule demands, looked at range by range in short transactions that only read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from structable.spi import Storage, Transaction, Value

from .errors import VerificationError
from .fills import Fill
from .parts import Part, range_of_texts, text_of_key

__all__ = ["verify"]

_ROWS = 2_000
_SAMPLES = 20


def verify(
    storage: Storage,
    fill: Fill,
    parts: Iterable[Part],
    check: Callable[[Transaction], None],
    ended: threading.Event,
) -> None:
    """Look at all rows of some parts.

    Parameters
    ----------
    check : callable
        Is called in each transaction, and raises if the lease was lost.
    ended : Event
        Ends it early.

    Raises
    ------
    VerificationError
        If a row differs from the rule.
    """
    count = 0
    samples: list[str] = []
    for part in parts:
        cursor: str | None = None
        while not ended.is_set():
            found, cursor = _differing(storage, fill, part, cursor, check)
            count += len(found)
            samples += found[: _SAMPLES - len(samples)]
            if cursor is None:
                break
    if count:
        raise VerificationError(fill.table, fill.verified or "", count, samples)


def _differing(
    storage: Storage, fill: Fill, part: Part, cursor: str | None, check: Callable[[Transaction], None]
) -> tuple[list[str], str | None]:
    """Return how the next rows differ, and the cursor behind them, or None at the end."""

    def look(tx: Transaction) -> tuple[list[str], str | None]:
        check(tx)
        table = fill.open(tx)
        spec, field = table.specification, fill.verified or ""
        found: list[str] = []
        last: tuple[Value, ...] | None = None
        seen = 0
        with fill.scan(table, range_of_texts(spec, part.begin, part.end, cursor), _ROWS) as rows:
            for row in rows:
                last, changes = row.key, fill.change(row).changes
                seen += 1
                if changes is not None:
                    found.append(f"key {last!r}: stored {row[field]!r}, the rule gives {changes.get(field)!r}")
        return found, None if last is None or seen < _ROWS else text_of_key(spec, last)

    return storage.run(look, read_only=True)
