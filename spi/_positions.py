"""`FeedPosition`: a state of the store, as a place in a change feed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Self

from ._error_texts import shown

_TEXT = re.compile(r"([0-9a-f]{16}):(0|[1-9][0-9]{0,18})")
_MOST = (1 << 63) - 1


@total_ordering
@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A place in a change feed: all changes of commits up to `version` are before it.

    Immutable, picklable, and ordered within its feed: comparing positions of two feeds is a TypeError. Its text is
    `FEED:VERSION`.

    Parameters
    ----------
    feed : str
        16 hexadecimal digits that name one feed. A table that was dropped and made again, or has another producer, has
        another feed.
    version : int
        A commit version, 0 to 2**63 - 1; there need not be a commit of this version.

    Raises
    ------
    ValueError
        If a part is not such a text or number.
    """

    feed: str
    version: int

    def __post_init__(self) -> None:
        whole = isinstance(self.version, int) and not isinstance(self.version, bool) and 0 <= self.version <= _MOST
        if not isinstance(self.feed, str) or not whole or not _TEXT.fullmatch(str(self)):
            raise ValueError(
                f"{shown(self.feed)}, {shown(self.version)} is not a position: a feed is 16 hexadecimal digits, and a "
                "version a number from 0 to 2**63 - 1"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position whose `str` is this text.

        Raises
        ------
        ValueError
            If the text is not `FEED:VERSION`.
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[2]) > _MOST:
            raise ValueError(
                f"{shown(text)} is not a position of a change feed; write it FEED:VERSION, as str(position) returns it"
            )
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.feed}:{self.version}"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, FeedPosition):
            return NotImplemented
        if self.feed != other.feed:
            raise TypeError(f"cannot compare {self} with {other}: they are positions in different feeds")
        return self.version < other.version
