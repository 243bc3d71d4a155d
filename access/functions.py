"""Functions over a remote system, which `open_table` makes a table of: `TableReadFunction` and `TableWriteFunction`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from structable.spi import RecordNotFoundError, UnsupportedOperationError, Value
from structable.spi.authors import shown

from .retrying import caused_by

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class _RemoteFunction:
    """Settings shared by the reads and the writes of a remote system."""

    def is_retriable(self, error: BaseException) -> bool:
        """Return whether a call that failed with this error may succeed when it is made again; by default not."""
        return False

    async def open(self) -> None:
        """Get ready; called once, before any other method. An object that reads and writes is opened once."""
        return None

    async def close(self) -> None:
        """Release what `open` took; called once, after all calls have ended."""
        return None


class TableReadFunction(_RemoteFunction, ABC, Generic[K, V]):
    """Reads the rows of a remote system.

    Keys are hashable and not None; a value is any object but None, which means that there is none. The methods run in
    the event loop of the table, several at once, but never two calls with a key in common. A CancelledError that comes
    out of one, though its call was not cancelled, fails its callers with a RuntimeError.
    """

    @abstractmethod
    async def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""

    async def get_many(self, keys: list[K]) -> Mapping[K, V]:
        """Return the values of the keys that have one; without this method each key is read by `get`, all at once."""
        values = await all_of([self.get(key) for key in keys])
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


class TableWriteFunction(_RemoteFunction, ABC, Generic[K, V]):
    """Writes the rows of a remote system.

    The methods run in the event loop of the table, several at once, but never two calls with a key in common. A bulk
    function has each key at most once. One that raises must have applied nothing, as far as a repetition would do harm.

    A bulk function that is not overridden is not called: each key then has a call, retries and an outcome of its own.

    A method `async insert_if_absent(key, value)` is optional: where there is one, it puts the default of an update, in
    place of `put`, which may overwrite a value that another process has just put.
    """

    @abstractmethod
    async def put(self, key: K, value: V) -> None:
        """Set the value of a key."""

    async def put_many(self, pairs: list[tuple[K, V]]) -> None:
        """Set the values of keys; without this method each is set by `put`, all at once."""
        await all_of([self.put(key, value) for key, value in pairs])

    async def update(self, key: K, changes: Mapping[str, Value]) -> None:
        """Change a part of the value of a key; by default UnsupportedOperationError.

        Raises
        ------
        RecordNotFoundError
            If the key has no value; an error of another class whose `__cause__` it is means the same.
        """
        raise UnsupportedOperationError(f"{type(self).__name__} has no function update")

    async def update_many(self, pairs: list[tuple[K, Mapping[str, Value]]]) -> Iterable[K]:
        """Change parts of values, and return the keys without a value; by default by `update` of all at once.

        An override that raises RecordNotFoundError must have applied nothing; an `update` of each key follows.
        """

        async def is_missing(key: K, changes: Mapping[str, Value]) -> bool:
            try:
                await self.update(key, changes)
            except Exception as error:
                if caused_by(error, RecordNotFoundError):
                    return True
                raise
            return False

        missing = await all_of([is_missing(key, changes) for key, changes in pairs])
        return [key for (key, _), absent in zip(pairs, missing, strict=True) if absent]

    @abstractmethod
    async def delete(self, key: K) -> None:
        """Remove the value of a key; nothing happens if there is none."""

    async def delete_many(self, keys: list[K]) -> None:
        """Remove the values of keys; without this method each is removed by `delete`, all at once."""
        await all_of([self.delete(key) for key in keys])


@dataclass(frozen=True, slots=True)
class FunctionTable(Generic[K, V]):
    """The functions of a table that `open_table` opens.

    Parameters
    ----------
    read : TableReadFunction, optional
        Without it the table is only written.
    write : TableWriteFunction, optional
        Without it the table is only read.

    Raises
    ------
    ValueError
        If there is neither.
    TypeError
        If one is not such a function.
    """

    read: TableReadFunction[K, V] | None = None
    write: TableWriteFunction[K, V] | None = None

    def __post_init__(self) -> None:
        if self.read is None and self.write is None:
            raise ValueError("a table needs a read function, a write function, or both")
        if self.read is not None and not isinstance(self.read, TableReadFunction):
            raise TypeError(f"read is {shown(self.read)}; it must be a TableReadFunction")
        if self.write is not None and not isinstance(self.write, TableWriteFunction):
            raise TypeError(f"write is {shown(self.write)}; it must be a TableWriteFunction")


async def all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of calls that run at once; the first error, once all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]  # none of them is an error
