"""Verification: each row has what its rule demands, looked at range by range in short transactions that only read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from structable.spi import Storage, TableSpecification, Transaction, Value

from .errors import VerificationError
from .fills import Fill
from .key_texts import range_of_texts, text_of_key
from .parts import Part

__all__ = ["Verified", "verify"]

_ROWS = 2_000
_SAMPLES = 20


@dataclass(slots=True)
class Verified:
    """The result of a verification.

    Parameters
    ----------
    rows, differing, failed : int
        All rows, those that differ from the rule, and those that are null since the source has no value that fits.
    samples : list of str
        The first of those that differ.
    """

    rows: int = 0
    differing: int = 0
    failed: int = 0
    samples: list[str] = field(default_factory=list)


def verify(
    storage: Storage,
    fill: Fill,
    parts: Iterable[Part],
    check: Callable[[Transaction], None],
    ended: threading.Event,
) -> Verified:
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
    found = Verified()
    for part in parts:
        cursor: str | None = None
        while not ended.is_set():
            cursor = _look(storage, fill, part, cursor, found, check)
            if cursor is None:
                break
    if found.differing:
        raise VerificationError(fill.table, fill.verified or "", found.differing, found.samples)
    return found


def _look(
    storage: Storage,
    fill: Fill,
    part: Part,
    cursor: str | None,
    found: Verified,
    check: Callable[[Transaction], None],
) -> str | None:
    """Look at the next rows; return the cursor behind them, or None at the end."""

    def look(tx: Transaction) -> tuple[Verified, str | None]:
        check(tx)
        table = fill.open(tx)
        spec = table.specification
        seen = Verified()
        last: tuple[Value, ...] | None = None
        with fill.scan(table, range_of_texts(spec, part.begin, part.end, cursor), _ROWS) as rows:
            for row in rows:
                last = row.key
                changed = fill.change(row)
                seen.rows += 1
                seen.failed += changed.failed
                if changed.changes is not None:
                    seen.differing += 1
                    if len(seen.samples) < _SAMPLES:
                        seen.samples.append(_sample(fill, last, row[fill.verified or ""], changed.changes))
        return seen, _next(spec, last, seen.rows)

    seen, behind = storage.run(look, read_only=True)
    found.rows += seen.rows
    found.differing += seen.differing
    found.failed += seen.failed
    found.samples += seen.samples[: _SAMPLES - len(found.samples)]
    return behind


def _next(spec: TableSpecification, last: tuple[Value, ...] | None, rows: int) -> str | None:
    return None if last is None or rows < _ROWS else text_of_key(spec, last)


def _sample(fill: Fill, key: tuple[Value, ...], stored: Value, changes: object) -> str:
    wanted = changes[fill.verified] if isinstance(changes, dict) else None
    return f"key {key!r}: stored {stored!r}, the rule gives {wanted!r}"
