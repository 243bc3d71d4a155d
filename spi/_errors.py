"""Every error that structable raises, and the promises of each.

    StructableError
      InvalidSpecificationError                          (also ValueError)
      InvalidFieldError                                  (also ValueError)
        FieldSizeLimitError
      PlanError                                          (also ValueError)
        PlanChangedError
      TableNotFoundError                                 (also LookupError)
      RecordNotFoundError                                (also LookupError)
      BackendNotFoundError                               (also LookupError)
      StoreNotFoundError                                 (also LookupError)
      ChangesLostError                                   (also LookupError)
      TableAlreadyExistsError
      RecordExistsError
      SchemaIncompatibleError
      TransactionError
        TransactionConflictError
          RecordChangedError
        TransactionClosedError
        CommitOutcomeUnknownError
      StorageUnavailableError                            (also ConnectionError)
      UnsupportedOperationError
      DataCorruptionError

All are picklable, as Spark executors and client processes send them to other processes. `StorageUnavailableError` and
`TransactionConflictError` mean that nothing was committed; `CommitOutcomeUnknownError` is the only error
after which a commit may stand.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Protocol

from ._positions import FeedPosition

__all__ = [
    "BackendNotFoundError",
    "ChangesLostError",
    "CommitOutcomeUnknownError",
    "DataCorruptionError",
    "FieldSizeLimitError",
    "InvalidFieldError",
    "InvalidSpecificationError",
    "PlanChangedError",
    "PlanError",
    "RecordChangedError",
    "RecordExistsError",
    "RecordNotFoundError",
    "SchemaIncompatibleError",
    "StorageUnavailableError",
    "StoreNotFoundError",
    "StructableError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TransactionClosedError",
    "TransactionConflictError",
    "TransactionError",
    "UnsupportedOperationError",
]


class StructableError(Exception):
    """The root of structable's errors."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by calling the class with `args`, the message, which the classes below that take
        # facts would not accept. Message and facts travel as state instead.
        return _restore, (type(self), self.args), dict(self.__dict__)


def _restore(error: type[StructableError], args: tuple[object, ...]) -> StructableError:
    instance = error.__new__(error, *args)
    instance.args = args
    return instance


class InvalidSpecificationError(StructableError, ValueError):
    """A table specification breaks a rule; the message names the problem and the allowed values."""


class InvalidFieldError(StructableError, ValueError):
    """A field or its value does not fit the table.

    Parameters
    ----------
    table : str
        The table's name.
    field : str
        The field, or the argument.
    reason : str
        The problem and its remedy.
    """

    def __init__(self, table: str, field: str, reason: str) -> None:
        super().__init__(f"table {table!r}, field {field!r}: {reason}")
        self.table = table
        self.field = field
        self.reason = reason


class FieldSizeLimitError(InvalidFieldError):
    """A key, an indexed value or a row is larger than the contract allows; nothing was written.

    Parameters
    ----------
    table, field : str
        The table and the field, or "primary key" or "row" for a sum.
    size, limit : int
        Both in bytes.
    """

    def __init__(self, table: str, field: str, size: int, limit: int) -> None:
        super().__init__(table, field, f"{size:,} bytes are over the limit of {limit:,} bytes")
        self.size = size
        self.limit = limit


class _PlanProblem(Protocol):
    """A reason why a pipeline cannot run."""

    @property
    def joins(self) -> Sequence[str]:
        """The joins that it concerns, by their names."""

    @property
    def members(self) -> Sequence[object]:
        """The streams that it concerns; the text of each is `name: count (reasons)`."""

    @property
    def text(self) -> str:
        """The problem and its remedy."""


class PlanError(StructableError, ValueError):
    """A pipeline cannot run; nothing was started.

    Parameters
    ----------
    what : str
        The pipeline: "pipeline 'views'".
    problems : iterable
        Every problem: `joins`, `members` and `text` of each say which joins and streams it concerns, and the cure.
    """

    def __init__(self, what: str, problems: Iterable[_PlanProblem]) -> None:
        self.problems = tuple(problems)
        texts = [problem.text for problem in self.problems]
        super().__init__(
            f"{what} cannot run: " + (texts[0] if len(texts) == 1 else "".join(f"\n- {one}" for one in texts))
        )


class PlanChangedError(PlanError):
    """The definition has changed since an earlier start; nothing was started.

    Parameters
    ----------
    what : str
        The name of the definition: "pipeline 'views'".
    differences : iterable of str
        Every difference that is not allowed.
    cure : str
        The remedy.
    """

    def __init__(self, what: str, differences: Iterable[str], cure: str) -> None:
        super().__init__(what, ())
        self.differences = tuple(differences)
        self.args = (f"{what} has changed since it was first started: {'; '.join(self.differences)}. {cure}",)


class TableNotFoundError(StructableError, LookupError):
    """There is no table of this name, or it is retired.

    Parameters
    ----------
    table : str
        The table's name.
    retired : datetime, optional
        The time at which it was retired.
    """

    def __init__(self, table: str, retired: dt.datetime | None = None) -> None:
        if retired is None:
            super().__init__(f"table {table!r} does not exist")
        else:
            super().__init__(
                f"table {table!r} has been retired since {retired.isoformat(sep=' ')}; rules without Retired restore "
                "it until it is dropped"
            )
        self.table = table
        self.retired = retired


class TableAlreadyExistsError(StructableError):
    """`create` found a table of this name."""

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table!r} already exists")
        self.table = table


class RecordNotFoundError(StructableError, LookupError):
    """`update` without a default, or a write job that must find its rows, found no row of this key.

    Parameters
    ----------
    table : str
        The table's name.
    key : tuple
        The key, of several the lowest.
    keys : tuple of tuple
        The first 10 of the keys that are missing, in key order; not given: `key` alone.
    count : int
        The number of keys that are missing.
    """

    def __init__(
        self, table: str, key: tuple[object, ...], keys: tuple[tuple[object, ...], ...] = (), count: int = 1
    ) -> None:
        if count == 1:
            super().__init__(f"table {table!r} has no row with the key {key!r}")
        else:
            shown = ", ".join(map(repr, keys)) + (", ..." if count > len(keys) else "")
            super().__init__(f"table {table!r} has no rows with {count:,} of the keys: {shown}")
        self.table = table
        self.key = key
        self.keys = keys or (key,)
        self.count = count


class RecordExistsError(StructableError):
    """`insert`, `insert_many` or a write job that only inserts found a row of this key; nothing was written."""

    def __init__(self, table: str, key: tuple[object, ...]) -> None:
        super().__init__(f"table {table!r} already has a row with the key {key!r}")
        self.table = table
        self.key = key


class BackendNotFoundError(StructableError, LookupError):
    """No usable backend for a URL's scheme; the message lists the installed ones, or names the driver to install."""


class StoreNotFoundError(StructableError, LookupError):
    """The URL names an absent store, and `create=False` or `read_only=True` kept `connect` from creating it."""


class ChangesLostError(StructableError, LookupError):
    """The changes after a position are no longer kept; start again from a snapshot (`plan_scan`).

    Parameters
    ----------
    table : str
        The table's name.
    position : FeedPosition
        The position that was given.
    earliest : FeedPosition
        The position after which every change is kept, of the feed that the table has now.
    reason : str
        Why: the position has expired, belongs to a feed that is gone, or is beyond the newest.
    """

    def __init__(self, table: str, position: FeedPosition, earliest: FeedPosition, reason: str) -> None:
        super().__init__(
            f"table {table!r}, position {position}: {reason}; changes are kept after {earliest}; start again from a "
            "snapshot (plan_scan) and its position, or, for a log, from its earliest position"
        )
        self.table = table
        self.position = position
        self.earliest = earliest


class SchemaIncompatibleError(StructableError):
    """A table does not fit the specification or the rules that a call needs, and cannot be changed to fit.

    Parameters
    ----------
    table : str
        The table's name.
    differences : iterable of str
        Every difference that is not allowed, one sentence each.
    problem : str
        The form that the table cannot take, as the message describes it.
    """

    def __init__(
        self, table: str, differences: Iterable[str], problem: str = "cannot be changed to this specification"
    ) -> None:
        self.table = table
        self.differences = tuple(differences)
        super().__init__(f"table {table!r} {problem}: " + "; ".join(self.differences))


class TransactionError(StructableError):
    """A failure of a whole transaction."""


class TransactionConflictError(TransactionError):
    """Another transaction won; nothing of this one was committed, and it may be run again."""


class RecordChangedError(TransactionConflictError):
    """Rows are not as a write job of mode patch expects them; nothing was written.

    Another commit of the job is refused too, until the rows have changed back: stage the rows again in another job.

    Parameters
    ----------
    table : str
        The table's name.
    keys : tuple of tuple
        The first 10 of the keys of such rows, in key order.
    count : int
        The number of such rows.
    """

    def __init__(self, table: str, keys: tuple[tuple[object, ...], ...], count: int) -> None:
        shown = ", ".join(map(repr, keys)) + (", ..." if count > len(keys) else "")
        rows = "row has" if count == 1 else "rows have"
        super().__init__(
            f"table {table!r}: {count:,} {rows} changed since the job read them, and nothing was written: {shown}"
        )
        self.table = table
        self.keys = keys
        self.count = count


class TransactionClosedError(TransactionError):
    """A table, an iterator, a plan or a transaction was used after its end."""


class CommitOutcomeUnknownError(TransactionError):
    """The commit may or may not have happened, and the store could not determine which. Never retried."""


class StorageUnavailableError(StructableError, ConnectionError):
    """The store cannot be reached or used now. Raised by a commit, it means that nothing was committed.

    Attributes
    ----------
    lasting : bool
        Whether the cause must be removed by hand, like a missing right: `Transactional.run` raises such an error at
        once instead of retrying.
    """

    lasting: bool = False


class UnsupportedOperationError(StructableError):
    """The operation is not possible here: a write in a read-only transaction, or one that the store does not offer."""


class DataCorruptionError(StructableError):
    """The store's content cannot be decoded, was written by a newer version, or is not structable's."""


for _name in __all__:  # as tracebacks, Spark's messages and pickles show them
    globals()[_name].__module__ = "structable.spi"
