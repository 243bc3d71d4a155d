"""Long operations, and the order of their states."""

from __future__ import annotations

import datetime as dt

from structable.datasets.errors import IllegalTransitionError
from structable.datasets.identifiers import check_name
from structable.datasets.records import Page
from structable.datasets.tables.platform import OPERATIONS, Operation, OperationStatus
from structable.spi import Filter, col

from .context import Dataset
from .newest import newest_first

_S = OperationStatus
_NEXT: dict[OperationStatus, tuple[OperationStatus, ...]] = {
    _S.STARTING: (_S.RUNNING, _S.STOPPING, _S.KILLED, _S.FAILED),
    _S.RUNNING: (_S.STOPPING, _S.SUCCEEDED, _S.FAILED, _S.KILLED),
    _S.STOPPING: (_S.KILLED, _S.FAILED, _S.SUCCEEDED),
    _S.SUCCEEDED: (),
    _S.FAILED: (),
    _S.KILLED: (),
}
_OPEN = tuple(status for status, following in _NEXT.items() if following)


class Operations(Dataset):
    """The dataset `operations`: STARTING, RUNNING, STOPPING, and the final states SUCCEEDED, FAILED and KILLED."""

    def create(
        self, namespace: str, operation: str, *, kind: str, details: object = None, at: dt.datetime | None = None
    ) -> Operation:
        """Create an operation, STARTING.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        NotFoundError
            If there is no such namespace.
        """
        now = self._context.now(at)
        made = Operation(
            namespace=namespace,
            operation=check_name(operation, "operation"),
            kind=check_name(kind, "kind"),
            status=OperationStatus.STARTING,
            started=now,
            updated=now,
            details=details,
        )
        self._context.member_of(namespace)
        self._context.records(OPERATIONS).insert(made)
        return made

    def get(self, namespace: str, operation: str) -> Operation | None:
        """Return the operation, or None."""
        return self._context.records(OPERATIONS).get(namespace, operation)

    def move(
        self,
        namespace: str,
        operation: str,
        status: OperationStatus,
        *,
        error: object = None,
        at: dt.datetime | None = None,
    ) -> Operation:
        """Change the status, and return the operation.

        Raises
        ------
        NotFoundError
            If there is no such operation.
        IllegalTransitionError
            If the status cannot follow the present one.
        """
        status = OperationStatus(status)
        operations = self._context.records(OPERATIONS)
        before = operations.require(namespace, operation)
        if status not in _NEXT[before.status]:
            raise IllegalTransitionError(before.status, status)
        changes: dict[str, object] = {} if error is None else {"error": error}
        operations.change((namespace, operation), status=status, updated=self._context.now(at), **changes)
        return operations.require(namespace, operation)

    def page(
        self,
        namespace: str,
        kind: str | None = None,
        status: OperationStatus | None = None,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Operation]:
        """Return a page of a namespace's operations, of a kind and of a status if given, the one begun last first."""
        where: Filter | None = None if kind is None else col("kind") == kind
        if status is not None:
            of_status = col("status") == OperationStatus(status)
            where = of_status if where is None else where & of_status
        return newest_first(self._context.records(OPERATIONS), (namespace,), "started", where, cursor, limit)

    def count_open(self) -> int:
        """Return the number of operations that have not ended, in all namespaces."""
        return self._context.records(OPERATIONS).count(where=col("status").isin(_OPEN))
