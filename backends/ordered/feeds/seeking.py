"""`entry_with`: the entry of a commit that has the change of a number."""

from __future__ import annotations

from collections.abc import Callable

from structable.backends.ordered.codec.change_records import count_records, first_number

__all__ = ["entry_with"]

_MOST = 1 << 32
"""More entries than a commit can have."""


def entry_with(number: int, entry_of: Callable[[int], bytes | None]) -> int:
    """Return which entry of a commit has the change of a number, or else its last one.

    0, if older software wrote the entries, which do not have the number of their first change.

    Parameters
    ----------
    number : int
        The number of the change.
    entry_of : callable
        Returns the nth entry of the commit, None beyond its last.
    """
    entry = entry_of(0)
    low, first, behind = 0, 0, 0 if entry is None else count_records(entry)
    high, ceiling, step = _MOST if behind else 1, 0, 0
    while number >= behind and high - low > 1:
        step += 1
        if entry is None or step % 3 == 0:
            guess = (low + high) // 2  # so that the steps are few whatever the sizes of the entries
        elif ceiling:
            guess = low + (number - first) * (high - low) // (ceiling - first)
        else:
            guess = number * (low + 1) // behind
        guess = min(max(guess, low + 1), high - 1)
        entry = entry_of(guess)
        begins = number + 1 if entry is None else first_number(entry)
        if begins is None:
            return 0
        if begins > number:
            high, ceiling = guess, 0 if entry is None else begins
        elif entry is not None:
            low, first, behind = guess, begins, begins + count_records(entry)
    return low
