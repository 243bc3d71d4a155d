"""Distributed access: splits of one snapshot to read in parallel, and atomic write jobs of many processes."""

from __future__ import annotations

import enum
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

from ._errors import TransactionClosedError
from ._notebooks import html_text
from ._positions import FeedPosition

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ._specification import TableSpecification


class WriteMode(enum.StrEnum):
    """The operation that a write job applies to each of its rows.

    INSERT refuses a job with a key that exists or appears twice, UPDATE one with a key that does not exist. DELETE
    takes batches of key columns. OVERWRITE replaces the whole table. UPSERT and CHANGES merge as the table's merge
    engine says, rows of one key by the number of their partition and then in the order staged; REPLACE and OVERWRITE
    keep the last of them, UPDATE any. Batches of CHANGES have a column `_change_type` of row kinds in either notation;
    their columns `_commit_version` and `_commit_timestamp`, if any, are left out.

    The column `_arm` of a PATCH row selects its effect, judged on the row of its key before the job: see `PatchArm`.
    A column `_set` (binary) may say which columns the row names: bit i, the lowest of the first byte first, is for
    column i of the batch, where `_arm`, `_set` and `_required` do not count, and bits of the key mean nothing; null, or
    no such column: all. A column `_required` (boolean, null is false) may say that the key is missing if it has no
    row before the job.
    """

    UPSERT = "upsert"
    INSERT = "insert"
    REPLACE = "replace"
    UPDATE = "update"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    CHANGES = "changes"
    PATCH = "patch"


class PatchArm(enum.StrEnum):
    """The effect of a row in a write job of mode patch, judged on the row of its key before the job.

    A key has at most one arm PRESENT and one ABSENT, or one REPLACE, or DELETE, or one INSERT. With INSERT and DELETE
    the row is replaced; any other arm with an INSERT is a RecordExistsError. A key may also have EXPECT, whatever its
    other arms are. DELETE and EXPECT may be repeated. A key with no arm but PRESENT and EXPECT is missing if it has no
    row.
    """

    PRESENT = "present"
    """Change the named fields if the row exists."""
    ABSENT = "absent"
    """Put a row of the named fields if there is none."""
    REPLACE = "replace"
    """Put a row of the named fields in any case."""
    DELETE = "delete"
    """Delete the row, if there is one."""
    INSERT = "insert"
    """Put a row of the named fields, unless there is one: RecordExistsError, and the job writes nothing."""
    EXPECT = "expect"
    """Refuse the job unless there is a row that has these values in the named fields: RecordChangedError."""


PATCH_COLUMNS = ("_arm", "_set", "_required")
"""The columns in batches of mode patch that are not fields of the table."""


class SnapshotHold:
    """Keeps a plan's snapshot until it is closed, or this process references neither the plan nor one of its splits.

    Parameters
    ----------
    release : callable without arguments
        Frees the snapshot; called once, by the thread that ends the hold, and never in a process forked from the
        planning one. It must not reference the hold.
    """

    __slots__ = ("__weakref__", "_finalizer")

    def __init__(self, release: Callable[[], None]) -> None:
        self._finalizer = weakref.finalize(self, _release, os.getpid(), release)

    @property
    def closed(self) -> bool:
        """Whether the snapshot was freed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Free the snapshot; idempotent."""
        self._finalizer()


def _release(planned_in: int, release: Callable[[], None]) -> None:
    if os.getpid() == planned_in:
        release()


@dataclass(frozen=True, slots=True, eq=False)
class ScanSplit:
    """A part of a plan, readable by `storage.read_split` in any process that can connect to the store; picklable.

    Parameters
    ----------
    table : str
        The table.
    columns : tuple of str
        The columns of the batches, in their order.
    index : int
        The split's number within the plan, from 0.
    state : bytes
        The backend's description of the split.
    hold : SnapshotHold or None
        The plan's hold, in the planning process only: it is not pickled.
    """

    table: str
    columns: tuple[str, ...]
    index: int
    state: bytes = field(repr=False)
    hold: SnapshotHold | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return ScanSplit, (self.table, self.columns, self.index, self.state)

    def require_open(self) -> None:
        """Check that the plan's snapshot is still held, as far as this process can know.

        Raises
        ------
        TransactionClosedError
            If the plan was closed in this process.
        """
        if self.hold is not None and self.hold.closed:
            raise TransactionClosedError(
                f"the plan of this split of table {self.table!r} was closed, and its snapshot with it"
            )


class ScanPlan:
    """The splits of one snapshot, of about equal size. All of them see the same state of the table.

    The snapshot holds until the `with` block of the plan is left; without `with`, until neither the plan nor one of its
    splits is referenced in this process, or the storage closes.

    Parameters
    ----------
    specification : TableSpecification
        The table in the snapshot.
    columns : tuple of str
        The columns of the batches, in their order.
    states : list of bytes
        The backend's description of each split.
    hold : SnapshotHold
        Frees the snapshot.
    ordered : bool
        Whether the rows come in key order when the splits are read one after the other. False promises no order, not
        even within a split.
    position : FeedPosition or None
        The position of the snapshot in the table's change feed, if it has one: every later change in the feed was
        committed after the snapshot.
    """

    __slots__ = ("columns", "hold", "ordered", "position", "specification", "splits", "table")

    def __init__(
        self,
        specification: TableSpecification,
        columns: tuple[str, ...],
        states: list[bytes],
        hold: SnapshotHold,
        *,
        ordered: bool = False,
        position: FeedPosition | None = None,
    ) -> None:
        self.specification = specification
        self.table = table = specification.name
        self.columns = columns
        self.hold = hold
        self.ordered = ordered
        self.position = position
        self.splits = tuple(ScanSplit(table, columns, index, state, hold) for index, state in enumerate(states))
        """The splits, in key order if the plan is `ordered`."""

    def close(self) -> None:
        """Free the snapshot; idempotent."""
        self.hold.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ScanPlan(table={self.table!r}, columns={list(self.columns)!r}, splits={len(self.splits)})"

    def _repr_html_(self) -> str:
        return html_text(repr(self))


class ArrowStream(Protocol):
    """Data of any library that exports Arrow's PyCapsule interface, such as a `pyarrow.Table`, a reader or a frame."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


StagedData: TypeAlias = "Iterable[RecordBatch] | ArrowStream"
"""The data that `stage` accepts."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """An atomic write of many batches from many processes, as `begin_write` returns it; picklable.

    Parameters
    ----------
    table : str
        The table.
    mode : WriteMode
        The operation on each row.
    job_id : str
        The caller's name for the job, or one made of its stream and batch: committing one twice does nothing the second
        time. It belongs to the table that has the name at that moment, not to the name.
    state : bytes
        The backend's own data.
    committed : bool
        Whether the job had been committed when `begin_write` returned it; nothing need be staged then.
    stream : str or None
        The stream that the job is a batch of.
    batch : int or None
        Its number in the stream.
    on_missing : str
        The effect of missing keys on a job of mode patch: "fail" or "skip".
    """

    table: str
    mode: WriteMode
    job_id: str
    state: bytes = field(default=b"", repr=False)
    committed: bool = False
    stream: str | None = None
    batch: int | None = None
    on_missing: Literal["fail", "skip"] = "fail"


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """One attempt of one partition, staged and not yet visible, as `stage` returns it; picklable.

    Parameters
    ----------
    job_id : str
        The job it belongs to.
    partition, attempt : int
        As given to `stage`; if two attempts of a partition are passed to `commit_write`, the last one counts.
    rows : int
        The number of rows staged.
    state : bytes
        The backend's own data.
    rules : str
        The digest of the rules under which the rows were staged; `commit_write` rejects rows whose digest is not the
        table's.
    """

    job_id: str
    partition: int
    attempt: int
    rows: int
    state: bytes = field(default=b"", repr=False)
    rules: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of `commit_write`; true in a boolean context if that call made the rows visible.

    Parameters
    ----------
    applied : bool
        Whether this call made the rows visible. False if the job had been committed before, by any process, and
        the call did nothing.
    missing : int
        In mode patch, with `on_missing="skip"`: the number of keys that required a row and had none. 0 if the job
        had been committed before.
    """

    applied: bool
    missing: int = 0

    def __bool__(self) -> bool:
        return self.applied
