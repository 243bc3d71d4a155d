"""What a commit raises whose connection was lost."""

from __future__ import annotations

from structable.backends.postgresql.driver.errors import BrokenConnectionError
from structable.spi import CommitOutcomeUnknownError, StorageUnavailableError, StructableError

__all__ = ["error_of_lost_commit"]


def error_of_lost_commit(committed: bool | None, what: str, loss: BrokenConnectionError) -> StructableError | None:
    """Return the error of a commit that was looked up; None if it happened. `what` names the transaction."""
    if committed is None:
        return CommitOutcomeUnknownError(
            f"the connection was lost during the commit of {what}, and the server could not be asked about it: {loss}"
        )
    if committed:
        return None
    return StorageUnavailableError(f"the connection was lost before the commit; nothing was written: {loss}")
