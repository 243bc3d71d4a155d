"""`ByteColumn`: many byte strings in one buffer; a field of all of them is cut out in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .buffers import Array, Integers, Numbers, bytes_array, parts_of, select


class TooLargeError(Exception):
    """The byte strings together exceed 2 GiB, the limit of an Arrow array."""


class BadElementError(Exception):
    """The byte string at a position is malformed."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class ByteColumn:
    """Byte strings, at least one, one after the other in one buffer of less than 2 GiB, perhaps with gaps.

    Methods take and return offsets in that buffer, as `begins` and `ends` are. They raise `BadElementError` for the
    first byte string that ends too early.
    """

    def __init__(self, begins: Integers, ends: Integers, buffer: pa.Buffer) -> None:
        self.begins = begins
        self.ends = ends
        self._buffer = buffer
        self._zeros: dict[int, Integers] = {}

    @classmethod
    def of(cls, raws: Sequence[bytes]) -> Self:
        """Return copies of byte strings."""
        array: Array | pa.ChunkedArray[Any] = pa.array(raws, pa.binary())
        if isinstance(array, pa.ChunkedArray):
            raise TooLargeError
        edges32, buffer = parts_of(array)
        edges = edges32.astype(np.int64)
        return cls(edges[:-1], edges[1:], buffer)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, position: int) -> bytes:
        """Return one of the byte strings."""
        return self._buffer.slice(
            int(self.begins[position]), int(self.ends[position] - self.begins[position])
        ).to_pybytes()

    def take(self, positions: Integers | slice) -> ByteColumn:
        """Return the byte strings at ascending positions."""
        return ByteColumn(self.begins[positions], self.ends[positions], self._buffer)

    def require(self, good: npt.NDArray[np.bool_]) -> None:
        """Raise `BadElementError` for the first byte string for which an array of bools says False."""
        if not good.all():
            raise BadElementError(int(np.argmin(good)))

    def records(self, dtype: np.dtype[Any], at: Integers) -> Numbers:
        """Return the record at the given offset of each byte string; offsets may be unaligned."""
        self.require((self.begins <= at) & (at + dtype.itemsize <= self.ends))
        # A view with a stride of one byte has every offset as an index.
        count = self._buffer.size - dtype.itemsize + 1
        # Gathered as plain bytes: NumPy copies a record field by field, ten times slower with seven fields.
        overlapping: Numbers = np.ndarray((count,), f"V{dtype.itemsize}", cast(Any, self._buffer), strides=(1,))
        return overlapping[at].view(dtype)

    def pieces(self, begins: Integers, ends: Integers) -> Array:
        """Return the part of each byte string between two offsets."""
        self.require((self.begins <= begins) & (begins <= ends) & (ends <= self.ends))
        count = len(begins)
        edges = np.empty(2 * count, np.int32)
        edges[0::2] = begins
        edges[1::2] = ends
        # Every other element of this array is the gap between two parts.
        return select(bytes_array(edges, self._buffer), np.arange(0, 2 * count, 2))

    def find_zeros(self, length: int, at: Integers) -> Integers:
        """Return the offset of the first run of `length` zero bytes (1 or 2) in each byte string, from an offset on."""
        places = self._zeros.get(length)
        if places is None:
            zero = np.frombuffer(cast(Any, self._buffer), np.uint8) == 0
            places = self._zeros[length] = np.flatnonzero(zero if length == 1 else zero[:-1] & zero[1:])
        found = np.searchsorted(places, at)
        self.require(found < len(places))
        ends: Integers = places[found]
        self.require(ends + length <= self.ends)
        return ends
