"""`Upkeep`: how a map's spaces are made, emptied, examined and repaired.

All of it has a default, that of one flat map in which spaces are only beginnings of keys and nothing is left behind. A
store that keeps each space in a table of its own, or whose processes leave traces when they die, overrides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from structable.spi import Finding

from .ordered_map import OrderedMap, WriteSet, successor

__all__ = ["Spaces", "Upkeep"]

_DISCARDED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Spaces:
    """The spaces that the catalog knows.

    Parameters
    ----------
    tables : frozenset of bytes
        Those of tables.
    loading : frozenset of bytes
        Those that write jobs load, for tables that are overwritten.
    leaving : frozenset of bytes
        Those of dropped tables that still have to be discarded.
    following : bytes
        The first that was never allocated. One below it that is in no set is never used again.
    """

    tables: frozenset[bytes]
    loading: frozenset[bytes]
    leaving: frozenset[bytes]
    following: bytes


class Upkeep(OrderedMap):
    """An ordered map that looks after its spaces."""

    def create_space(self, space: bytes) -> None:
        """Make a space ready for its first key, before the catalog records its table; idempotent.

        Another process may take the same number at the same time, or have died after it did: the commit to the
        catalog decides which table gets the space.

        Raises
        ------
        TransactionConflictError
            If the space has keys already: another process has taken it.
        """
        return None

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        """Delete all keys that start with `beginning`, which no snapshot taken from now on reads.

        Parameters
        ----------
        beginning : bytes
            At least a space.
        stopped : callable
            Asked between steps; true ends the call early.

        Returns
        -------
        bool
            Whether all of them are gone. Otherwise, as while an older snapshot of some process may read them, the call
            has to be repeated later.
        """
        snapshot = self.begin(True)
        try:
            keys = (key for key, _ in snapshot.scan(beginning, successor(beginning)))
            while step := list(islice(keys, _DISCARDED_AT_ONCE)):
                if stopped():
                    return False
                self.commit(None, WriteSet(derived=dict.fromkeys(step)))
        finally:
            snapshot.close()
        return True

    def diagnose(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Yield what the engine finds in its own state; see `Storage.diagnose`.

        Parameters
        ----------
        spaces : callable
            Reads the spaces that the catalog knows at present, to compare with those in the store.
        """
        return iter(())

    def repair(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Finish what ended processes left; see `Storage.repair`."""
        return iter(())
