"""Every error of the datasets, and the promises of each.

    DatasetError                                         (a StructableError)
      NotFoundError                                      (also RecordNotFoundError)
      AlreadyExistsError                                 (also RecordExistsError)
      StaleGenerationError
      StaleParentError
      InUseError
      NotEmptyError
      IllegalTransitionError
      InvalidCursorError                                 (also ValueError)
      RecordTypeError                                    (also ValueError)
      DocumentError                                      (also ValueError)
      RecordShapeError
      SchemaMissingError
      LeaseLostError
      MessagesLostError
      SecretError

All are picklable. An operation that raises one of them has written nothing, except that `MessagesLostError` has moved
its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structable.spi import FeedPosition, RecordExistsError, RecordNotFoundError, StructableError

__all__ = [
    "AlreadyExistsError",
    "DatasetError",
    "DocumentError",
    "IllegalTransitionError",
    "InUseError",
    "InvalidCursorError",
    "LeaseLostError",
    "MessagesLostError",
    "NotEmptyError",
    "NotFoundError",
    "RecordShapeError",
    "RecordTypeError",
    "SchemaMissingError",
    "SecretError",
    "StaleGenerationError",
    "StaleParentError",
]


class DatasetError(StructableError):
    """The root of the datasets' errors."""


class NotFoundError(DatasetError, RecordNotFoundError):
    """There is no record with this key.

    Parameters
    ----------
    table : str
        The table's name.
    key : tuple
        The key, in key order.
    reason : str, optional
        The message, where the missing thing is no row.
    """

    def __init__(self, table: str, key: tuple[object, ...], reason: str | None = None) -> None:
        super().__init__(table, key)
        if reason is not None:
            self.args = (reason,)


class AlreadyExistsError(DatasetError, RecordExistsError):
    """A record of this key exists.

    Parameters
    ----------
    table : str
        The table's name.
    key : tuple
        The key, in key order.
    """


class StaleGenerationError(DatasetError):
    """The record was changed after the caller read it: read it again.

    Parameters
    ----------
    expected : object
        The generation, version or position that the caller gave.
    found : object
        The stored one; None if there is none.
    """

    def __init__(self, expected: object, found: object) -> None:
        super().__init__(f"{expected!r} was expected, and {found!r} is stored; read it again")
        self.expected = expected
        self.found = found


class StaleParentError(DatasetError):
    """A version was not made from the latest one.

    Parameters
    ----------
    parent : str
        The version that the caller started from.
    latest : str or None
        The latest version; None if there is none.
    """

    def __init__(self, parent: str, latest: str | None) -> None:
        super().__init__(f"version {parent!r} is not the latest, which is {latest!r}; start from that one")
        self.parent = parent
        self.latest = latest


class InUseError(DatasetError):
    """Something cannot be deleted or begun while something else needs it.

    Parameters
    ----------
    what : str
        The thing that cannot be deleted or begun.
    by : str
        The user of it.
    problem : str, optional
        The problem and the remedy, if the user is no row.
    """

    def __init__(self, what: str, by: str, problem: str | None = None) -> None:
        super().__init__(f"{what} {problem or f'is in use by {by}'}")
        self.what = what
        self.by = by


class NotEmptyError(DatasetError):
    """A namespace cannot be deleted while it has members.

    Parameters
    ----------
    counts : mapping of str to int
        The number of members by dataset; those without members are left out.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        members = ", ".join(f"{name} ({count:,})" for name, count in self.counts.items())
        super().__init__(f"it still has members: {members}; delete them first")


class IllegalTransitionError(DatasetError):
    """A state cannot follow the present one.

    Parameters
    ----------
    before : str
        The present state.
    after : str
        The requested state.
    """

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"{str(after)!r} cannot follow {str(before)!r}")
        self.before = before
        self.after = after


class InvalidCursorError(DatasetError, ValueError):
    """A cursor is garbled, or belongs to another listing."""


class RecordTypeError(DatasetError, ValueError):
    """A class cannot be the record of a table, or an object is not a record of that class."""


class DocumentError(DatasetError, ValueError):
    """A value cannot be kept as a JSON document of its field's type.

    Parameters
    ----------
    table, field : str
        The field.
    reason : str
        The problem.
    """

    def __init__(self, table: str, field: str, reason: str) -> None:
        super().__init__(f"table {table!r}, field {field!r}: {reason}")
        self.table = table
        self.field = field


class RecordShapeError(DatasetError):
    """A row does not fit the record's class; it is readable by `Records.table`.

    Parameters
    ----------
    table : str
        The table's name.
    key : tuple
        The row's key.
    field : str
        The field that does not fit.
    reason : str
        The problem.
    """

    def __init__(self, table: str, key: tuple[object, ...], field: str, reason: str) -> None:
        super().__init__(f"table {table!r}, row {key!r}, field {field!r}: {reason}")
        self.table = table
        self.key = key
        self.field = field


class SchemaMissingError(DatasetError):
    """The store lacks tables, fields or indexes that the datasets need.

    Parameters
    ----------
    tables : iterable of str
        The missing tables.
    fields : iterable of str
        The missing fields and indexes of tables that exist: "table.field", or "index table.field".
    """

    def __init__(self, tables: Iterable[str], fields: Iterable[str]) -> None:
        self.tables = tuple(tables)
        self.fields = tuple(fields)
        super().__init__(f"the store lacks {', '.join((*self.tables, *self.fields))}")


class LeaseLostError(DatasetError):
    """The lease, permit, job or group has another owner, or none: stop the work under it.

    Parameters
    ----------
    lease : str
        Its name.
    """

    def __init__(self, lease: str) -> None:
        super().__init__(f"{lease!r} is no longer held")
        self.lease = lease


class MessagesLostError(DatasetError):
    """Messages expired before they were read; a group continues with the earliest that are kept.

    Parameters
    ----------
    wanted : FeedPosition
        The position after which messages were wanted.
    earliest : FeedPosition
        The position after which everything is kept, where a group continues.
    """

    def __init__(self, wanted: FeedPosition, earliest: FeedPosition) -> None:
        super().__init__(
            f"messages after {wanted} are not kept; what is kept begins after {earliest}; repair what was missed"
        )
        self.wanted = wanted
        self.earliest = earliest


class SecretError(DatasetError):
    """A sealed value cannot be opened or sealed: it was tampered with, its key is missing or wrong."""
