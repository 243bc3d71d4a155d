"""Change feeds: what changed in a table since a position."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Self

from ._bulk import ScanPlan, SnapshotHold
from ._changes import Change
from ._errors import UnsupportedOperationError
from ._positions import FeedPosition
from ._specification import TableSpecification


class ChangeIterator(Iterator[Change], ABC):
    """The changes of a range of a feed; close it, leave its `with` block or exhaust it to free its resources.

    It delays no expiry: changes that expire before they are read are lost to it.

    Raises
    ------
    ChangesLostError
        From `next`, if changes that were still to come have expired.
    TransactionClosedError
        From `next`, once the iterator was closed.
    """

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Free the iterator's resources; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class ChangePlan(ScanPlan):
    """The splits of a range of a feed; it holds no snapshot, and closing it does nothing.

    Parameters
    ----------
    specification, columns, states
        As in `ScanPlan`; `columns` end with `FEED_COLUMNS`.
    since, until : FeedPosition
        The range (since, until] as it was taken.
    """

    __slots__ = ("since", "until")

    def __init__(
        self,
        specification: TableSpecification,
        columns: tuple[str, ...],
        states: list[bytes],
        since: FeedPosition,
        until: FeedPosition,
    ) -> None:
        super().__init__(specification, columns, states, SnapshotHold(lambda: None))
        self.since = since
        self.until = until

    def close(self) -> None:
        """Do nothing: the splits can still be read."""


class ChangeFeed(ABC):
    """The change feed of a table: whole commits, in their order; looks the table up again at each call.

    A range is (since, until]: without `since` from the earliest position, without `until` to the latest at the call;
    since >= until is an empty one. A range has the same changes for ever: every commit after `latest()` returned a
    position is beyond that position.

    Every method raises

    TableNotFoundError
        If there is no such table any more.
    UnsupportedOperationError
        If the table has no feed.
    StorageUnavailableError
        If the store cannot be reached.

    and where it takes a position or a version

    ChangesLostError
        If that has expired, belongs to a feed that is gone, or is beyond the newest.
    """

    @abstractmethod
    def earliest(self) -> FeedPosition:
        """Return the position after which every change is kept."""

    @abstractmethod
    def latest(self) -> FeedPosition:
        """Return the newest stable position of the store, perhaps beyond the last change of this table."""

    @abstractmethod
    def at(self, timestamp: dt.datetime) -> FeedPosition:
        """Return the position just before the first kept change that is not older than a time; else `latest()`.

        Raises
        ------
        ValueError
            If the time has no time zone.
        """

    @abstractmethod
    def position(self, version: int) -> FeedPosition:
        """Return the position of a version from `earliest().version` to `latest().version`, of a commit or not."""

    @abstractmethod
    def advance(self, since: FeedPosition, rows: int) -> FeedPosition:
        """Return the last position at most `rows` changes after `since`, but at least one commit after it.

        A preimage and its postimage are two changes. If nothing has changed since, the position is `latest()`; it is
        never later.

        Raises
        ------
        ValueError
            If `rows` is below 1.
        """

    @abstractmethod
    def read(
        self,
        since: FeedPosition | None = None,
        until: FeedPosition | None = None,
        *,
        columns: Iterable[str] | None = None,
        net: bool = False,
        after: int | None = None,
    ) -> ChangeIterator:
        """Return the changes of a range, in the order of their versions; a postimage follows its preimage.

        Parameters
        ----------
        since, until : FeedPosition, optional
            The range.
        columns : iterable of str, optional
            The fields of the rows; the key always comes too. A change is returned even if these fields are equal.
        net : bool
            Return for each key only the difference between the row at `since` and the row at `until`, in no order,
            with version and time of the last change.
        after : int, optional
            The number of the last change that was read from the commit of `since`, in a feed of the producer `input`:
            the rest of the commit comes first. Omit it if the whole commit was read.

        Raises
        ------
        InvalidFieldError
            If a column does not exist, or there is none, or `net` is no bool.
        UnsupportedOperationError
            For `net` under the producer `input` or without a key, and for `after` under another producer.
        ChangesLostError
            Also for `after` if `since` is the earliest position: the rest of its commit is not kept.
        ValueError
            If `after` is not the number of a change, or comes without `since`.
        """

    @abstractmethod
    def plan(
        self,
        since: FeedPosition | None = None,
        until: FeedPosition | None = None,
        *,
        columns: Iterable[str] | None = None,
        splits: int = 1,
        net: bool = False,
    ) -> ChangePlan:
        """Divide a range into splits that `read_split` reads in any process; this delays no expiry.

        Parameters
        ----------
        since, until, net
            As in `read`. The splits, one after the other, are in the order of `read`, and no pair of images is divided.
        columns : iterable of str, optional
            The fields in the batches: exactly these, then `_change_type` (string), `_commit_version` (int64) and
            `_commit_timestamp` (timestamp of microseconds, UTC). All in the table's order, if not given.
        splits : int
            Approximate number of splits, at least 1; the plan may have fewer, never none.

        Raises
        ------
        InvalidFieldError, UnsupportedOperationError
            As `read` does; the latter also if other processes cannot read the store.
        """

    def plan_net(
        self, since: FeedPosition, until: FeedPosition, *, columns: Iterable[str] | None = None, splits: int = 1
    ) -> ChangePlan:
        """Divide the net changes between two positions, as `plan` does, but never only up to a mark.

        Applied to the rows at `until`, such as a snapshot's, they give the rows at `since`, and the reverse. A change
        has version and time of the last commit that made it. Here it is `plan` with `net`; a backend whose feeds have
        marks overrides it.

        Parameters
        ----------
        since, until, columns, splits
            As in `plan`.

        Raises
        ------
        InvalidFieldError, UnsupportedOperationError
            As `plan` does.
        """
        return self.plan(since, until, columns=columns, splits=splits, net=True)

    @abstractmethod
    def expire(self, until: FeedPosition | None = None) -> FeedPosition:
        """Drop the changes that are older than the retention, or all up to a position, however new.

        This happens by itself some minutes after the changes became too old, where the feed is written or read.

        Returns
        -------
        FeedPosition
            The result of `earliest()` from then on.

        Raises
        ------
        UnsupportedOperationError
            With `read_only`.
        """

    def restart(self) -> FeedPosition:
        """End the feed and begin another one, which is empty: all earlier positions are lost.

        Needed when the store has lost commits that readers have seen, as after a restored backup or a failover. A log
        loses its rows with its feed.

        Returns
        -------
        FeedPosition
            The earliest of the new feed.

        Raises
        ------
        UnsupportedOperationError
            With `read_only`, and if feeds of the backend cannot restart, which is the default.
        """
        raise UnsupportedOperationError("this store cannot restart change feeds; end the feed and begin another one")
