"""The staged rows of a job, as the pairs of runs.

In mode `changes` a byte with the row's kind precedes the value. In mode `patch` the row's effect does: a byte with the
number of its arm, whose third bit says whether the row is required, then a bit for each column of the batch, 1 if the
row names the column; the lowest bit of the first byte is for the first column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from structable.backends.base.job_rules import conformed_batches
from structable.backends.base.patches import PatchMarks, patched_batches
from structable.backends.ordered.engine import Pair
from structable.backends.ordered.schema.binding import TableBinding
from structable.spi import DataCorruptionError, PatchArm, RowKind, WriteJob, WriteMode
from structable.spi.authors import StagedData

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from structable.backends.ordered.arrow.encoder import ArrowEncoder

_KINDS = tuple(RowKind)
_KIND_BYTES = {kind: bytes([number]) for number, kind in enumerate(_KINDS)}
_ARMS = tuple(PatchArm)
_NUMBERS = {arm: number for number, arm in enumerate(_ARMS)}
_REQUIRED = 4


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
            yield _encoded(batch, _of_marks(encoder.encode(batch), marks, batch.num_columns))
        return
    for batch, kinds in conformed_batches(job, binding.spec, batches):
        encoder = encoder or _encoder(binding, batch)
        pairs = encoder.encode(batch)
        yield _encoded(batch, pairs if kinds is None else _of_kinds(pairs, kinds))


def _encoder(binding: TableBinding, batch: RecordBatch) -> ArrowEncoder:
    from structable.backends.ordered.arrow.encoder import ArrowEncoder

    return ArrowEncoder(binding.schema, tuple(batch.schema.names))


def _encoded(batch: RecordBatch, pairs: list[Pair]) -> EncodedBatch:
    return EncodedBatch(tuple(batch.schema.names), pairs, batch.nbytes)


def _of_kinds(pairs: Iterable[Pair], kinds: Iterable[RowKind]) -> list[Pair]:
    return [(raw_key, _KIND_BYTES[kind] + raw) for (raw_key, raw), kind in zip(pairs, kinds, strict=True)]


def _of_marks(pairs: Iterable[Pair], marks: PatchMarks, columns: int) -> list[Pair]:
    size = mark_bytes(columns) - 1
    heads = [
        bytes([_head(mark.arm, required=mark.required)]) + mark.named.to_bytes(size, "little")
        for mark in marks.distinct
    ]
    return [(raw_key, heads[place] + raw) for (raw_key, raw), place in zip(pairs, marks.places.tolist(), strict=True)]


def _head(arm: PatchArm, *, required: bool) -> int:
    rest, low = divmod(_NUMBERS[arm], _REQUIRED)
    return low + _REQUIRED * (required + 2 * rest)


def kind_of(raw: bytes) -> RowKind:
    """Return the kind of a row that was staged in mode changes."""
    try:
        return _KINDS[raw[0]]
    except IndexError:
        raise DataCorruptionError(f"a staged row begins with {raw[:1].hex()}, which is not a row kind") from None


def mark_bytes(columns: int) -> int:
    """Return the size of the prefix of a row staged in mode `patch`, for a number of columns."""
    return 1 + -(-columns // 8)


def mark_of(columns: tuple[str, ...], raw: bytes) -> tuple[PatchArm, bool, list[str]]:
    """Return the arm of a row that was staged in mode patch, whether it is required, and the columns that it names."""
    try:
        marks, low = divmod(raw[0], _REQUIRED)
        rest, required = divmod(marks, 2)
        arm = _ARMS[low + _REQUIRED * rest]
    except IndexError:
        raise DataCorruptionError(f"a staged row begins with {raw[:1].hex()}, which is not an arm") from None
    named = int.from_bytes(raw[1:], "little")
    return arm, bool(required), [name for place, name in enumerate(columns) if named >> place & 1]
