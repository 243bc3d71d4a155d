"""`Traffic`: what a storage and its store have exchanged."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of a storage with its store since it was connected; None for numbers that the store does not count.

    Parameters
    ----------
    round_trips : int or None
        How often a call has waited for an answer of the store. Requests that are sent together are one round trip; a
        store inside the process has none.
    sent, received : int or None
        Bytes.
    """

    round_trips: int | None = None
    sent: int | None = None
    received: int | None = None

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum; what only one of them counts is its number."""
        return Traffic(
            _sum(self.round_trips, other.round_trips), _sum(self.sent, other.sent), _sum(self.received, other.received)
        )


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
