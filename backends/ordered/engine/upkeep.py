"""`Upkeep`: how the spaces of a map are created, emptied, inspected and repaired.

All methods default to one flat map in which spaces are only key prefixes and leave nothing behind. A store that keeps
each space in a table of its own, or whose processes leave remains when they die, overrides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from structable.spi import CompactionProgress, Finding

from .feed_entries import entries_begin
from .ordered_map import OrderedMap, WriteSet, successor

_DISCARDED_AT_ONCE = 1_000


class SpaceTakenError(Exception):
    """Remains of an interrupted call, or another call, make a space unusable: take the next one."""


@dataclass(frozen=True, slots=True)
class Spaces:
    """The spaces that the catalog knows.

    Parameters
    ----------
    tables : frozenset of bytes
        Spaces of tables and of their change feeds.
    loading : frozenset of bytes
        Spaces that write jobs load, for tables that are overwritten.
    leaving : frozenset of bytes
        Spaces of dropped tables that must still be discarded.
    following : bytes
        The first space never allocated. A lower space that is in no set is never used again.
    """

    tables: frozenset[bytes]
    loading: frozenset[bytes]
    leaving: frozenset[bytes]
    following: bytes


class Upkeep(OrderedMap):
    """An ordered map that looks after its spaces."""

    def create_space(self, space: bytes, *, feed: bool = False) -> None:
        """Make a space ready for its first key, before the catalog records its table; idempotent.

        `feed` says whether it belongs to a change feed.

        Another process may take the same number at the same time, or have died after taking it: the commit to the
        catalog decides which table gets the space.

        Raises
        ------
        TransactionConflictError
            If the space has keys already: another process took it.
        SpaceTakenError
            If the space is prepared for something else, and has never been used.
        """
        return None

    def exclude_older_software(self, *, feeds: bool = False) -> None:
        """Make older software, which does not know table types or change feeds, refuse the store from now on.

        Called before the catalog records the first table that older software could damage, and before each further one;
        idempotent. By default there is no older software.

        Raises
        ------
        StorageUnavailableError
            If older software uses the store now; nothing has changed.
        """
        return None

    def discard(self, beginning: bytes, stopped: Callable[[], bool]) -> bool:
        """Delete all keys that start with `beginning`, which no snapshot taken from now on reads.

        Parameters
        ----------
        beginning : bytes
            The prefix of the keys; at least a space.
        stopped : callable
            Called between steps; True ends the call early.

        Returns
        -------
        bool
            Whether all keys are gone. If not, as while an older snapshot of some process may read them, the call must
            be repeated later.
        """
        return self._delete(beginning, successor(beginning), stopped)

    def drop_entries(self, feed: bytes, since: int, until: int, stopped: Callable[[], bool]) -> bool:
        """Delete the entries in the space of a feed of the commits in (since, until]; see `discard`.

        All later reads are after `until`.
        """
        return self._delete(entries_begin(feed, since), entries_begin(feed, until), stopped)

    def _delete(self, begin: bytes, end: bytes, stopped: Callable[[], bool]) -> bool:
        with closing(self.begin(True)) as snapshot:
            keys = (key for key, _ in snapshot.scan(begin, end))
            while step := list(islice(keys, _DISCARDED_AT_ONCE)):
                if stopped():
                    return False
                self.commit(None, WriteSet(derived=dict.fromkeys(step)))
        return True

    def diagnose(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Yield the findings of the engine about its own state; see `Storage.diagnose`.

        Parameters
        ----------
        spaces : callable
            Reads the spaces that the catalog knows now, for comparison with those in the store.
        """
        return iter(())

    def repair(self, spaces: Callable[[], Spaces]) -> Iterator[Finding]:
        """Clean up after ended processes; see `Storage.repair`."""
        return iter(())

    def compact(self) -> Iterator[CompactionProgress] | None:
        """Rewrite everything, as `Storage.compact` does; None, the default, if the engine does not."""
        return None
