"""`FunctionSource`: the functions of a `FunctionTable` as the source of a table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from structable.spi import UnsupportedOperationError
from structable.spi.authors import shown

from .copies import own_copy
from .functions import FunctionTable, TableReadFunction, TableWriteFunction
from .sources import CheckedWrite, Kind, Source, Update

Result = TypeVar("Result")


class FunctionSource(Source):
    """Calls functions, which are opened before the first call."""

    upserts = False
    repeats_keys = False
    puts_defaults = False
    judges_rows = False

    def __init__(self, functions: FunctionTable[Any, Any], name: str | None) -> None:
        self.name = name or type(functions.write or functions.read).__name__
        self.readable = functions.read is not None
        self.writable = functions.write is not None
        self._given_read = functions.read
        self._given_write = functions.write
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def _read(self) -> TableReadFunction[Any, Any]:
        assert self._given_read is not None
        return self._given_read

    @property
    def _write(self) -> TableWriteFunction[Any, Any]:
        assert self._given_write is not None
        return self._given_write

    def has_bulk(self, kind: Kind) -> bool:
        base, function = (TableReadFunction, self._read) if kind == "get" else (TableWriteFunction, self._write)
        name = f"{kind}_many"
        return getattr(type(function), name) is not getattr(base, name)

    def key_of(self, key: object) -> Hashable:
        if key is None:
            raise ValueError(f"table {self.name!r}: key is None; it must be another object")
        try:
            hash(key)
        except TypeError:
            raise TypeError(f"table {self.name!r}: the key {shown(key)} is not hashable") from None
        return key

    def checked(self, kind: Kind, key: Hashable, value: object, default: object = None) -> CheckedWrite:
        if kind == "upsert":
            raise UnsupportedOperationError(
                f"table {self.name!r} is a table of functions, which has no upsert; use put or update"
            )
        if kind != "update":
            return CheckedWrite(value, True)
        if not isinstance(value, Mapping):
            raise TypeError(f"changes is {shown(value)}; it must be a mapping of field names to values")
        return CheckedWrite(Update(value, default), True)

    def as_read(self, key: Hashable, payload: object) -> object:
        return own_copy(payload)

    def is_retriable(self, kind: Kind, error: BaseException) -> bool:
        return (self._read if kind == "get" else self._write).is_retriable(error)

    def look(self) -> None:
        return None

    async def open(self) -> None:
        if self._is_open:
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        opening = self._opening
        try:
            await asyncio.shield(opening)
        finally:
            if opening.done() and self._opening is opening:
                self._opening = None  # after a failure the next call opens them again

    async def _open(self) -> None:
        opened: list[TableReadFunction[Any, Any] | TableWriteFunction[Any, Any]] = []
        for function in self._functions():
            try:
                await function.open()
            except BaseException:
                for one in reversed(opened):
                    await one.close()
                raise
            opened.append(function)
        self._is_open = True

    def _functions(self) -> list[TableReadFunction[Any, Any] | TableWriteFunction[Any, Any]]:
        """Return the functions; an object that reads and writes comes once."""
        read, write = self._given_read, self._given_write
        both = read is write  # type: ignore[comparison-overlap]  # a class may have both as bases
        return [one for one in (read, None if both else write) if one is not None]

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if not self._is_open:
            return
        self._is_open = False
        failure: BaseException | None = None
        for function in reversed(self._functions()):
            try:
                await function.close()
            except BaseException as error:
                if failure is not None:
                    error.add_note(f"and before: {failure!r}")
                failure = error
        if failure is not None:
            raise failure

    async def _call(self, function: Callable[..., Awaitable[Result]], *arguments: object) -> Result:
        if not self._is_open:
            await self.open()
        try:
            return await function(*arguments)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The function awaited something that others have cancelled; this call, and its callers, are not cancelled.
            raise RuntimeError(f"table {self.name!r}: a function was cancelled from within") from error

    def get(self, key: Hashable) -> Awaitable[object]:
        return self._call(self._read.get, key)

    def get_many(self, keys: list[Hashable]) -> Awaitable[Mapping[Hashable, object]]:
        return self._rows(keys)

    async def _rows(self, keys: list[Hashable]) -> Mapping[Hashable, object]:
        rows = await self._call(self._read.get_many, list(keys))
        if not isinstance(rows, Mapping):
            raise TypeError(f"table {self.name!r}: get_many returned {shown(rows)}; it must return a mapping by key")
        return rows

    def write(self, kind: Kind, pairs: Sequence[tuple[Hashable, object]]) -> Awaitable[object]:
        write = self._write
        if len(pairs) > 1:
            if kind == "delete":
                return self._call(write.delete_many, [key for key, _ in pairs])
            return self._call(write.put_many, list(pairs))
        ((key, payload),) = pairs
        return self._call(write.delete, key) if kind == "delete" else self._call(write.put, key, payload)

    def update(self, key: Hashable, update: Update) -> Awaitable[object]:
        return self._call(self._write.update, key, update.changes)

    def update_many(self, pairs: list[tuple[Hashable, Update]]) -> Awaitable[Iterable[Hashable]]:
        return self._missing([(key, update.changes) for key, update in pairs])

    async def _missing(self, pairs: list[tuple[Hashable, Mapping[str, Any]]]) -> Iterable[Hashable]:
        missing = await self._call(self._write.update_many, pairs)
        try:
            return set(missing)
        except TypeError:
            raise TypeError(
                f"table {self.name!r}: update_many returned {shown(missing)}; it must return the missing keys"
            ) from None

    def put_default(self, key: Hashable, default: object) -> Awaitable[object]:
        insert = getattr(self._write, "insert_if_absent", None)
        return self._call(self._write.put if insert is None else insert, key, default)
