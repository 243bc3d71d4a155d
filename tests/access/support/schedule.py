"""A random schedule: calls of a table, ends of calls of its store, time, cancellations and closing, by one seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field

from tenacity import stop_after_attempt, wait_fixed

from structable.access import AsyncTable, Batching, Cache, RateLimit, Retry, open_table
from structable.spi import RecordNotFoundError, TransactionClosedError, UpdateMessage

from .fake_clock import advance, idle
from .fake_store import Broken, FakeStore, Flaky
from .model import Missing, Operation, check_history, grown

Record = Mapping[str, object]
Table = AsyncTable[Hashable, Record]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a schedule runs on, and how."""

    batching: Batching | None
    cache: Cache | None
    retry: Retry | None
    rate_limit: RateLimit | None
    bulk: bool
    inserting: bool
    keys: int
    steps: int
    bulk_calls: bool
    failures: float
    cancellations: float

    @property
    def compact(self) -> bool:
        return self.batching is not None and self.batching.kind == "compact"


def random_plan(source: random.Random) -> Plan:
    """Draw a plan."""
    batching = None
    if source.random() < 0.7:
        max_size = source.choice([1, 2, 3, 5, None])
        batching = Batching(
            kind=source.choice(["complete", "compact"]),
            max_size=max_size,
            max_delay=source.choice([0.002, 0.0, 0.05] + ([None] if max_size else [])),
            max_in_flight=source.choice([1, 1, 2, 3, None]),
        )
    read, write, update = (source.choice([None, 5.0, 50.0]) for _ in range(3))
    return Plan(
        batching=batching,
        cache=Cache(max_rows=source.choice([1, 2, 100]), ttl=source.choice([0.01, 60.0]), absent=source.random() < 0.5)
        if source.random() < 0.4
        else None,
        retry=Retry(stop=stop_after_attempt(source.choice([1, 2, 4])), wait=wait_fixed(0.01))
        if source.random() < 0.4
        else None,
        rate_limit=RateLimit(read=read, write=write, update=update) if source.random() < 0.2 else None,
        bulk=source.random() < 0.7,
        inserting=source.random() < 0.5,
        keys=source.choice([1, 2, 4]),
        steps=source.choice([10, 30, 80]),
        bulk_calls=source.random() < 0.4,
        failures=source.choice([0.0, 0.2, 0.6]),
        cancellations=source.choice([0.0, 0.1]),
    )


@dataclass(eq=False)
class _Made:
    """A call that was made: its operations, and the task that awaits it."""

    operations: list[Operation]
    awaitable: Awaitable[object]
    task: asyncio.Task[None] | None = None


@dataclass(eq=False)
class Schedule:
    """One run of a plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    source : random.Random
        What all choices come from.
    """

    plan: Plan
    source: random.Random
    operations: list[Operation] = field(default_factory=list)
    made: list[_Made] = field(default_factory=list)
    flushes: list[tuple[asyncio.Task[None], list[_Made]]] = field(default_factory=list)
    errors: int = 0
    numbers: int = 0
    last_call: float = 0.0

    def __post_init__(self) -> None:
        self.store = FakeStore(bulk=self.plan.bulk, inserting=self.plan.inserting, merge=grown)
        self.leaving = asyncio.Event()

    async def run(self) -> None:
        """Make random steps, close the table, end all calls, and check everything that was seen."""
        plan = self.plan
        table: Table = open_table(
            self.store.table,
            batching=plan.batching,
            cache=plan.cache,
            read_retry=plan.retry,
            write_retry=plan.retry,
            rate_limit=plan.rate_limit,
        )
        ready = asyncio.Event()
        owner = asyncio.create_task(self._own(table, ready))
        await ready.wait()
        for _ in range(plan.steps):
            self._step(table)
            if self.source.random() < 0.3:
                await asyncio.sleep(self.source.choice([0.0, 0.0005, 0.002, 0.1]))
            await self._settle(table)
        self.leaving.set()
        await self._drain(table, owner)
        for flush in [owner, *(flush for flush, _ in self.flushes)]:
            await self._check_flush(flush)
        await self._use_after_close(table)
        self._check()

    async def _own(self, table: Table, ready: asyncio.Event) -> None:
        async with table:
            ready.set()
            await self.leaving.wait()

    def _step(self, table: Table) -> None:
        chance = self.source.random()
        if chance < self.plan.cancellations:
            running = [made for made in self.made if made.task is not None and not made.task.done()]
            if running:
                task = self.source.choice(running).task
                assert task is not None
                task.cancel()
        elif chance < self.plan.cancellations + 0.5:
            for _ in range(self.source.choice([1, 1, 2, 4])):
                self._call(table)
        elif chance < 0.95:
            self._end_one()
        else:
            flush = asyncio.ensure_future(table.flush())
            self.flushes.append((flush, list(self.made)))  # type: ignore[arg-type]
        for made in self.made:
            if made.task is None and self.source.random() < 0.7:
                self._start(made)
            for operation in made.operations:
                operation.awaited_late |= made.task is None

    def _start(self, made: _Made) -> None:
        made.task = asyncio.create_task(self._await(made))
        made.task.add_done_callback(lambda task: self._ended(made, task))

    def _ended(self, made: _Made, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            for operation in made.operations:
                operation.outcome = asyncio.CancelledError()

    def _end_one(self) -> None:
        if not self.store.running:
            return
        call = self.source.choice(self.store.running)
        if self.source.random() < self.plan.failures:
            self.errors += 1
            call.fail(self.source.choice([Flaky, Broken])(self.errors))
        else:
            call.succeed()

    def _call(self, table: Table) -> None:
        self.last_call = self.store.time()
        kinds = ["get", "get", "put", "delete"] + ([] if self.plan.compact else ["update", "update"])
        kind = self.source.choice(kinds)
        if self.plan.bulk_calls and self.source.random() < 0.3:
            operations = [self._operation(kind, alone=False) for _ in range(self.source.choice([0, 1, 2, 3, 6]))]
            if kind == "put":
                for operation in operations:
                    operation.kind = self.source.choice(["put", "put", "delete"])
            awaitable = _bulk_call(table, kind, operations)
            if kind != "update":  # of several puts or deletes of a key the last one counts
                operations = list({operation.key: operation for operation in operations}.values())
            for operation in operations:
                operation.together = operations
        else:
            operations = [self._operation(kind, alone=True)]
            awaitable = _single_call(table, operations[0], self.source)
        self.operations += operations
        self.made.append(_Made(operations, awaitable))

    def _operation(self, kind: str, *, alone: bool) -> Operation:
        number = 2 * self.numbers
        default = number + 1 if kind == "update" and self.source.random() < 0.5 else None
        self.numbers += 1
        return Operation(number, kind, f"key {self.source.randrange(self.plan.keys)}", default, alone)

    async def _await(self, made: _Made) -> None:
        try:
            result = await made.awaitable
        except Exception as error:
            for operation in made.operations:
                operation.outcome = error
            return
        kind = made.operations[0].kind if made.operations else ""
        for operation in made.operations:
            if operation.alone:
                operation.outcome = result
            elif kind == "get":
                assert isinstance(result, dict)
                operation.outcome = result.get(operation.key)
            elif kind == "update":
                assert isinstance(result, list)
                missing = operation.key in result and operation.default is None
                operation.outcome = Missing("fake", (operation.key,)) if missing else None
            else:
                operation.outcome = result

    async def _settle(self, table: Table) -> None:
        await idle()
        for flush, before in self.flushes:
            if flush.done():
                late = [made for made in before if made.task is not None and not made.task.done()]
                assert not late, f"flush returned before {late}"
        batching = self.plan.batching
        assert table.pending >= 0
        if batching is not None and batching.max_size is not None:
            assert table.pending < batching.max_size
        waits = self.plan.retry is not None or self.plan.rate_limit is not None
        if batching is not None and batching.max_delay is not None and not self.store.running and not waits:
            overdue = self.store.time() > self.last_call + batching.max_delay
            assert table.pending == 0 or not overdue, "nothing is under way, and the batch is not sent"
        if self.plan.bulk_calls:
            return
        if batching is not None:
            most = batching.max_in_flight
            # Updates whose rows are missing go on one by one, by puts where the function cannot insert.
            for kind in ["get", "delete"] + (["put"] if self.plan.inserting else []):
                alike = [call for call in self.store.running if call.operation in (kind, f"{kind}_many")]
                assert most is None or not self.plan.bulk or len(alike) <= most, alike
            assert all(batching.max_size is None or len(call.keys) <= batching.max_size for call in self.store.running)
        for call in self.store.running:
            assert len(set(call.keys)) == len(call.keys), f"a key twice in one call: {call}"
        keys = [key for call in self.store.running for key in call.keys]
        assert len(set(keys)) == len(keys), f"a key in two running calls: {self.store.running}"

    async def _drain(self, table: Table, owner: asyncio.Task[None]) -> None:
        """End all calls, failing no more of them; everything must end in a bounded number of steps."""
        for _ in range(1000 + 20 * len(self.operations)):
            for made in self.made:
                if made.task is None:
                    self._start(made)
            await self._settle(table)
            if self.store.running:
                self._end_one()
            elif owner.done() and all(made.task is not None and made.task.done() for made in self.made):
                break
            else:
                await advance(0.05)
        else:
            raise AssertionError(f"not ended: {[made for made in self.made if made.task and not made.task.done()]}")
        assert table.pending == 0

    async def _check_flush(self, flush: asyncio.Task[None]) -> None:
        """It may raise nothing but the failure of a write whose caller has not seen it."""
        try:
            await flush
        except RecordNotFoundError:
            unseen = [each for each in self.operations if each.kind == "update"]
        except (Flaky, Broken) as error:
            raised = [call for call in self.store.calls if call.error is not None and call.error.args == error.args]
            unseen = [each for each in self.operations if any(each.key in call.keys for call in raised)]
        else:
            return
        assert any(each.cancelled or each.awaited_late for each in unseen), unseen

    async def _use_after_close(self, table: Table) -> None:
        calls = len(self.store.calls)
        uses: list[Callable[[], Awaitable[object]]] = [
            lambda: table.get("key 0"),
            lambda: table.get_many(["key 0"]),
            lambda: table.put("key 0", {"by": (-1,)}),
            lambda: table.delete("key 0"),
            table.flush,
        ]
        for use in uses:
            try:
                await use()
            except TransactionClosedError:
                continue
            raise AssertionError("a closed table was used")
        assert len(self.store.calls) == calls

    def _check(self) -> None:
        store = self.store
        assert not store.overlaps, f"running together: {store.overlaps[0]}"
        assert not store.late, f"sent before open or after close: {store.late}"
        assert not store.cancelled, f"taken out of the store: {store.cancelled}"
        assert sorted(store.opened) == sorted(store.closed) == ["reads", "writes"]
        for made in self.made:
            for operation in made.operations:
                assert operation.ended, f"never ended: {operation}"
        check_history(store, self.operations, compact=self.plan.compact, exact=self.plan.bulk)
        if not self.plan.compact:
            self._check_carried_out()

    def _check_carried_out(self) -> None:
        """What a cancelled caller asked for reached the store all the same."""
        sent = {_number(argument) for call in self.store.calls for _, argument in call.pairs}
        for operation in self.operations:
            # A bulk call of several updates of a key may fail before the last ones.
            if operation.kind in ("put", "update") and (operation.alone or operation.succeeded):
                assert operation.number in sent, f"never sent: {operation}"


def _number(argument: object) -> object:
    return argument["by"][0] if isinstance(argument, dict) else None


def _message(operation: Operation) -> UpdateMessage:
    default = None if operation.default is None else {"by": (operation.default,)}
    return UpdateMessage({"by": (operation.number,)}, default)  # type: ignore[dict-item, arg-type]


def _single_call(table: Table, operation: Operation, source: random.Random) -> Awaitable[object]:
    key = operation.key
    match operation.kind:
        case "get":
            return table.get(key)
        case "put":
            return table.put(key, {"by": (operation.number,)})
        case "update":
            message = _message(operation)
            return table.update(key, message.update, default=message.default)
        case _:
            return table.delete(key) if source.random() < 0.7 else table.put(key, None)


def _bulk_call(table: Table, kind: str, operations: list[Operation]) -> Awaitable[object]:
    keys = [operation.key for operation in operations]
    match kind:
        case "get":
            return table.get_many(keys)
        case "put":
            return table.put_many(
                [(each.key, {"by": (each.number,)} if each.kind == "put" else None) for each in operations]
            )
        case "update":
            return table.update_many([(each.key, _message(each)) for each in operations])
        case _:
            return table.delete_many(keys)
