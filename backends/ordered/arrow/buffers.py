"""Arrow arrays and NumPy arrays over the same memory: the typed boundary between the two."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Array: TypeAlias = "pa.Array[Any]"
Numbers: TypeAlias = npt.NDArray[Any]
"""Numbers or records of any dtype."""
Integers: TypeAlias = npt.NDArray[np.int64]

_ALIGNMENT = 8
_NOTHING = pa.py_buffer(b"")


def buffer_of(numbers: Numbers) -> pa.Buffer:
    """Return the memory of a NumPy array, copied only if it is not contiguous, or not aligned for Arrow."""
    whole = np.ascontiguousarray(numbers)
    # A single record is contiguous wherever it lies.
    return pa.py_buffer(cast(Any, whole.copy() if whole.ctypes.data % _ALIGNMENT else whole))


def bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return bools as Arrow's bits."""
    return buffer_of(np.packbits(flags, bitorder="little"))


def make_array(kind: pa.DataType, length: int, *buffers: pa.Buffer | None) -> Array:
    """Return an array of these buffers, the validity bits first."""
    return pa.Array.from_buffers(kind, length, list(buffers))


def bytes_array(edges: Numbers, data: pa.Buffer) -> Array:
    """Return the binary array whose elements lie between neighbouring offsets."""
    return make_array(pa.binary(), len(edges) - 1, None, buffer_of(edges.astype(np.int32, copy=False)), data)


def parts_of(array: Array) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    """Return the offsets of a string or binary array, one more than its elements, and the buffer they point into."""
    _, offsets, data = array.buffers()
    edges = np.frombuffer(cast(Any, offsets), np.int32)[array.offset : array.offset + len(array) + 1]
    return edges, _NOTHING if data is None else data


def has_zero_bytes(array: Array) -> bool:
    """Return whether any element of a string or binary array holds a zero byte; bytes under a null also count."""
    edges, data = parts_of(array)
    return not np.frombuffer(cast(Any, data), np.uint8)[edges[0] : edges[-1]].all()


def zero_bytes(array: Array) -> npt.NDArray[np.bool_]:
    """Return, for each element of a binary array without nulls, whether it holds a zero byte."""
    found = cast(Any, pc.match_substring)(array, "\0")
    return cast("npt.NDArray[np.bool_]", found.to_numpy(zero_copy_only=False))


def replace_zeros(array: Array, zero: bytes, replacement: bytes) -> Array:
    """Return a binary array with `zero`, which holds a zero byte, replaced in all elements."""
    if not has_zero_bytes(array):
        return array
    replaced = cast(Any, pc.replace_substring)(array, pattern=zero, replacement=replacement)
    return cast(Array, replaced)


def joined(arrays: list[Array]) -> Array:
    """Return the concatenation of the elements of binary arrays without nulls, position by position."""
    return arrays[0] if len(arrays) == 1 else cast(Array, cast(Any, pc.binary_join_element_wise)(*arrays, b""))


def select(array: Array, positions: Integers) -> Array:
    """Return the elements at these positions, in their order."""
    return array.take(cast(Any, pa.array(positions)))


def to_list(array: Array) -> list[bytes]:
    """Return the elements of a binary array without nulls; cheaper than `to_pylist`, which makes a scalar of each."""
    edges, data = parts_of(array)
    whole, places = data.to_pybytes(), edges.tolist()
    return [whole[begin:end] for begin, end in pairwise(places)]
