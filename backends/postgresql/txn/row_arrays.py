"""Many rows as the parameters of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from structable.backends.postgresql.sql.binding import TableBinding
from structable.backends.postgresql.sql.row_codec import Pieces
from structable.backends.postgresql.sql.types import array

__all__ = ["SINGLE", "arrays", "arrays_by_key", "portions"]

Item = TypeVar("Item")

SINGLE = 3
"""Number of rows up to which a statement for each takes less time than one for all."""
_PORTION = 8 << 20
"""Approximate size of one statement's arrays, in bytes."""


def arrays(binding: TableBinding, names: tuple[str, ...], given: list[Pieces]) -> list[bytes]:
    """Return the columns of rows with some fields, each as an array."""
    columns = zip(*given, strict=True)
    return [array(binding.oids[name], column) for name, column in zip(names, columns, strict=True)]


def arrays_by_key(binding: TableBinding, names: tuple[str, ...], given: list[Pieces]) -> list[bytes]:
    """Return the columns of rows of distinct keys, those of the key first, in the order of the keys' bytes.

    The server finds rows that lie close together a fifth faster, and two such statements lock rows in the same order.
    """
    return arrays(binding, names, sorted(given))


def portions(all_of_it: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield items in lists of about the size of one statement."""
    portion: list[Item] = []
    size = 0
    for one in all_of_it:
        portion.append(one)
        size += size_of(one)
        if size >= _PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
