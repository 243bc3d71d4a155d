"""The interface of every output format: record batches in, bytes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchWriter"]


class BatchWriter(ABC):
    """Writes record batches of one schema to a stream; a context manager that finishes the output."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""

    def finish(self) -> None:  # noqa: B027 (most formats need nothing)
        """Write the end of the format. The stream stays open."""

    def abandon(self) -> None:  # noqa: B027
        """Release resources after a failure; the output is discarded."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        except BaseException:
            self.abandon()
            raise
        if error is not None:
            self.abandon()
