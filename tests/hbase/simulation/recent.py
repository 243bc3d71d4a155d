"""The recent writes of one process, which it lists for the others before it looks for theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .cluster import Bug, Listed, WriteList

_MOST_ENDED = 1


class RecentWrites:
    """The state that all threads of a process share."""

    def __init__(self, process: int, bug: Bug | None) -> None:
        self.process = process
        self._bug = bug
        self._number = 0
        self._floor = 0
        self._listed: dict[int, Listed] = {}  # by transaction

    def enter(self, tx: int, rows: frozenset[str] | None) -> WriteList:
        """The list with one more transaction; ended ones leave it, except the last."""
        self._listed[tx] = Listed(rows, 0)
        ended = [one for one, listed in self._listed.items() if listed.cts]
        if self._bug is Bug.LIST_LEAVES_OUT_UNDECIDED:
            ended = [one for one in self._listed if one != tx]
        for one in ended[: len(ended) - _MOST_ENDED]:
            left = self._listed.pop(one)
            if self._bug is not Bug.LIST_HAS_NO_FLOOR:
                self._floor = max(self._floor, left.cts)
        self._number += 1
        return WriteList(self._number, self._floor, tuple(self._listed.values()))

    def end(self, tx: int, cts: int | None) -> None:
        """Note that a transaction has ended; an aborted one adds nothing to the list."""
        if cts is None:
            self._listed.pop(tx, None)
        elif tx in self._listed:
            self._listed[tx] = self._listed[tx]._replace(cts=cts)

    def suspects(self, tx: int, start: int, rows: Iterable[str], lists: Mapping[int, WriteList]) -> set[str]:
        """The rows that another transaction than `tx` may have written after `start`, or may be about to."""
        mine = set(rows)
        found: set[str] = set()
        for process, written in lists.items():
            if process == self.process:
                continue
            if written.floor > start:
                return mine
            found |= _written(start, mine, written.listed)
        if self._bug is not Bug.OWN_LIST_IS_IGNORED:
            if self._floor > start:
                return mine
            found |= _written(start, mine, (listed for one, listed in self._listed.items() if one != tx))
        return found


def _written(start: int, mine: set[str], listed: Iterable[Listed]) -> set[str]:
    found: set[str] = set()
    for rows, cts in listed:
        if not cts or cts > start:
            found |= mine if rows is None else mine & rows
    return found
