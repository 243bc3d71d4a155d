"""Encoding of the batches that are staged, as pairs of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from structable.backends.base.job_rules import conformed_batches
from structable.backends.base.patches import patched_batches
from structable.backends.ordered.engine import Pair
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import WriteJob, WriteMode
from structable.spi.bulk import StagedData

from .patching import of_marks
from .staged import of_kinds

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from structable.backends.ordered.arrow.encoder import ArrowEncoder

__all__ = ["EncodedBatch", "encoded_batches"]


class EncodedBatch(NamedTuple):
    """A batch that has rows."""

    columns: tuple[str, ...]
    """The columns, the same in all batches."""
    pairs: list[Pair]
    size: int
    """The size of the batch, in bytes."""


def encoded_batches(job: WriteJob, binding: TableBinding, batches: StagedData) -> Iterator[EncodedBatch]:
    """Yield the batches of a job that have rows; rejects rows as `Storage.stage` does."""
    encoder: ArrowEncoder | None = None
    if job.mode is WriteMode.PATCH:
        for batch, marks in patched_batches(job, binding.spec, batches):
            encoder = encoder or _encoder(binding, batch)
            yield _encoded(batch, of_marks(encoder.encode(batch), marks, batch.num_columns))
        return
    for batch, kinds in conformed_batches(job, binding.spec, batches):
        encoder = encoder or _encoder(binding, batch)
        pairs = encoder.encode(batch)
        yield _encoded(batch, pairs if kinds is None else of_kinds(pairs, kinds))


def _encoder(binding: TableBinding, batch: RecordBatch) -> ArrowEncoder:
    from structable.backends.ordered.arrow.encoder import ArrowEncoder

    return ArrowEncoder(binding.schema, tuple(batch.schema.names))


def _encoded(batch: RecordBatch, pairs: list[Pair]) -> EncodedBatch:
    return EncodedBatch(tuple(batch.schema.names), pairs, batch.nbytes)
