"""A remote store whose calls a test ends, in any order, with success or failure; it records what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from structable.access import FunctionTable, TableReadFunction, TableWriteFunction
from structable.spi import RecordNotFoundError, Value

Record = Mapping[str, object]
Changes = Mapping[str, Value]

_READS = frozenset({"get", "get_many"})


class Flaky(Exception):
    """A failure that the functions call retriable."""


class Broken(Exception):
    """A failure that the functions do not call retriable."""


@dataclass(eq=False)
class Call:
    """One call of a function, from its start until the test ends it.

    Parameters
    ----------
    store : FakeStore
        The store that was called.
    operation : str
        The function's method.
    pairs : list of tuple
        Each key with its value, its changes, or None.
    started : float
        In the time of the loop.
    """

    store: FakeStore
    operation: str
    pairs: list[tuple[Hashable, object]]
    started: float
    answer: asyncio.Future[object]
    ended: float | None = None
    error: BaseException | None = None

    @property
    def keys(self) -> list[Hashable]:
        return [key for key, _ in self.pairs]

    @property
    def running(self) -> bool:
        return self.ended is None

    def succeed(self) -> None:
        """Apply the call to the rows, now, and return what it returns; an update of an absent row fails."""
        result = self.store.apply(self.operation, self.pairs)
        if isinstance(result, BaseException):
            self.fail(result)
        else:
            self.give(result)

    def give(self, result: object) -> None:
        """Return a result of the test's making; the rows stay."""
        self._end()
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Raise an error; the rows stay."""
        self.error = error
        self._end()
        if not self.answer.done():
            self.answer.set_exception(error)

    def _end(self) -> None:
        assert self.running, "a call ends once"
        self.ended = self.store.time()
        self.store.running.remove(self)


class FakeStore:
    """Rows in memory behind functions, and a record of all calls.

    Parameters
    ----------
    answer : callable, optional
        Called with each new call: `Call.succeed` answers at once. By default the test ends each call.
    bulk : bool
        Whether the functions have bulk methods of their own.
    inserting : bool
        Whether the write function has `insert_if_absent`.
    merge : callable
        Makes the new row of an update from the old one and the changes.

    Attributes
    ----------
    rows : dict
        What is stored.
    calls, running : list of Call
        All calls and those that have not ended, in the order of their starts.
    overlaps : list of tuple of Call
        Pairs of calls, one of them a write, that were running together with a key in common.
    late : list of Call
        Calls while the functions were not open.
    cancelled : list of Call
        Calls that ended because the caller's side cancelled them.
    opened, closed : list of str
        "reads" and "writes", as often as each function was opened and closed.
    effects : list of tuple
        Key, operation without `_many`, and value or changes, of all that changed a row, in order.
    """

    def __init__(
        self,
        answer: Callable[[Call], object] | None = None,
        *,
        bulk: bool = True,
        inserting: bool = False,
        merge: Callable[[Record, Record], Record] = lambda row, changes: {**row, **changes},
    ) -> None:
        self.answer = answer
        self.merge = merge
        self.rows: dict[Hashable, Record] = {}
        self.calls: list[Call] = []
        self.running: list[Call] = []
        self.overlaps: list[tuple[Call, Call]] = []
        self.late: list[Call] = []
        self.cancelled: list[Call] = []
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.effects: list[tuple[Hashable, str, object]] = []
        self.reads: TableReadFunction[Hashable, Record] = (_BulkReads if bulk else _Reads)(self, "reads")
        writes: type[_Writes] = _BulkWrites if bulk else _Writes
        if inserting:
            writes = type("Inserting", (_Inserting, writes), {})
        self.writes: TableWriteFunction[Hashable, Record] = writes(self, "writes")

    @property
    def table(self) -> FunctionTable[Hashable, Record]:
        """A source for `open_table`."""
        return FunctionTable(read=self.reads, write=self.writes)

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def operations(self) -> list[str]:
        """Return the names of all calls, in the order of their starts."""
        return [call.operation for call in self.calls]

    def only(self, operation: str) -> Call:
        """Return the one running call, which must be of an operation."""
        assert [call.operation for call in self.running] == [operation], self.running
        return self.running[0]

    def history(self, key: Hashable) -> list[object]:
        """Return what changed a key: each value or changes that took effect, None for a delete, in order."""
        return [argument for of, _, argument in self.effects if of == key]

    async def call(self, operation: str, pairs: list[tuple[Hashable, object]]) -> object:
        """Start a call and return what the test ends it with."""
        loop = asyncio.get_running_loop()
        call = Call(self, operation, pairs, loop.time(), loop.create_future())
        self.overlaps += [(other, call) for other in self.running if _collide(other, call)]
        role = "reads" if operation in _READS else "writes"
        if self.opened.count(role) != self.closed.count(role) + 1:
            self.late.append(call)
        self.calls.append(call)
        self.running.append(call)
        if self.answer is not None:
            self.answer(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            if call.running:
                self.cancelled.append(call)
                self.running.remove(call)
                call.ended = self.time()
            raise

    def apply(self, operation: str, pairs: list[tuple[Hashable, object]]) -> object:
        """Change the rows; return what the function returns, or the exception that it raises."""
        kind = operation.removesuffix("_many")
        missing: list[Hashable] = []
        found: dict[Hashable, Record] = {}
        for key, argument in pairs:
            row = self.rows.get(key)
            if kind == "get":
                if row is not None:
                    found[key] = row
            elif kind == "update" and row is None:
                missing.append(key)
            elif kind != "insert_if_absent" or row is None:
                self.effects.append((key, kind, argument))
                self._change(key, kind, row, argument)
        match operation:
            case "get":
                return next(iter(found.values()), None)
            case "get_many":
                return found
            case "update":
                return RecordNotFoundError("fake", (missing[0],)) if missing else None
            case "update_many":
                return list(dict.fromkeys(missing))
            case _:
                return None

    def _change(self, key: Hashable, kind: str, row: Record | None, argument: object) -> None:
        if kind == "delete":
            self.rows.pop(key, None)
            return
        assert isinstance(argument, Mapping)
        if kind == "update":
            assert row is not None
            self.rows[key] = self.merge(row, argument)
        else:
            self.rows[key] = argument


def _collide(one: Call, other: Call) -> bool:
    if one.operation in _READS and other.operation in _READS:
        return False
    return not set(one.keys).isdisjoint(other.keys)


class _Function:
    def __init__(self, store: FakeStore, role: str) -> None:
        self.store = store
        self.role = role

    def is_retriable(self, error: BaseException) -> bool:
        return isinstance(error, Flaky)

    async def open(self) -> None:
        self.store.opened.append(self.role)

    async def close(self) -> None:
        self.store.closed.append(self.role)


class _Reads(_Function, TableReadFunction[Hashable, Record]):
    async def get(self, key: Hashable) -> Record | None:
        return await self.store.call("get", [(key, None)])  # type: ignore[return-value]


class _BulkReads(_Reads):
    async def get_many(self, keys: list[Hashable]) -> dict[Hashable, Record]:
        return await self.store.call("get_many", [(key, None) for key in keys])  # type: ignore[return-value]


class _Writes(_Function, TableWriteFunction[Hashable, Record]):
    async def put(self, key: Hashable, value: Record) -> None:
        await self.store.call("put", [(key, value)])

    async def update(self, key: Hashable, changes: Changes) -> None:
        await self.store.call("update", [(key, changes)])

    async def delete(self, key: Hashable) -> None:
        await self.store.call("delete", [(key, None)])


class _BulkWrites(_Writes):
    async def put_many(self, pairs: list[tuple[Hashable, Record]]) -> None:
        await self.store.call("put_many", list(pairs))

    async def update_many(self, pairs: list[tuple[Hashable, Changes]]) -> list[Hashable]:
        return await self.store.call("update_many", list(pairs))  # type: ignore[return-value]

    async def delete_many(self, keys: list[Hashable]) -> None:
        await self.store.call("delete_many", [(key, None) for key in keys])


class _Inserting(_Writes):
    async def insert_if_absent(self, key: Hashable, value: Record) -> None:
        await self.store.call("insert_if_absent", [(key, value)])
