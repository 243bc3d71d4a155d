"""`Batching`: single calls gathered for a moment and sent together; `Batcher` does it for one table."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from structable.spi import InvalidFieldError, UnsupportedOperationError
from structable.spi.authors import shown

from .batches import BatchStep, CallBatch, CompactBatch, CompleteBatch
from .callers import Caller, fail_all
from .calls import Calls
from .copies import own_copy
from .functions import all_of
from .ordering import KeyTurns, Turn
from .sources import Kind


@dataclass(frozen=True, slots=True)
class Batching:
    """The rules by which a table gathers single calls into batches; immutable, and usable for any number of tables.

    A batch is sent once it has `max_size` operations, or `max_delay` seconds after its first one; the next one opens at
    once. While `max_in_flight` batches are under way, or one with a key of the open one still waits, the open one grows
    beyond its delay, up to `max_size`, so that batches get larger as calls come faster than they are carried out. No
    two batches under way have a key in common. If a bulk call fails, only its own operations fail; where the store
    refuses a value, or all of them as too large for one transaction, each operation is made alone. Bulk calls of the
    table bypass batches; they send the open one first if it holds one of their keys.

    A *complete* batch keeps every operation. It is sent in rounds, one after the other; a key is at most once in a
    round, its operations in the order of the calls. A round is one bulk call for each kind (get, put, upsert, update,
    delete) at most, all at once. Gets of a key with no write between them are one read.

    A *compact* batch keeps the last put or delete of a key, and all callers of that key's writes get its outcome. A get
    before the first write is read first; a get after a write returns that write's value once the write that is kept has
    succeeded. Its size is the number of keys to read plus the number of keys to write. There are no partial updates in
    it: `update` and `update_many` raise UnsupportedOperationError.

    Parameters
    ----------
    kind : {"complete", "compact"}
        The operations that a batch keeps.
    max_size : int, optional
        The size at which a batch is sent; None for no limit.
    max_delay : float, optional
        Seconds of the event loop's clock, from the first operation, after which a batch is sent; None for no limit:
        then only `max_size`, `flush` and bulk calls of its keys send it.
    max_in_flight : int, optional
        The maximum number of batches under way; others wait until one has ended. None for no limit.

    Raises
    ------
    ValueError
        If an argument has another value, or neither `max_size` nor `max_delay` limits a batch.
    """

    kind: Literal["complete", "compact"] = "complete"
    max_size: int | None = 100
    max_delay: float | None = 0.002
    max_in_flight: int | None = 1

    def __post_init__(self) -> None:
        if self.kind not in ("complete", "compact"):
            raise ValueError(f"kind is {shown(self.kind)}; it must be 'complete' or 'compact'")
        for name, number in (("max_size", self.max_size), ("max_in_flight", self.max_in_flight)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ValueError(f"{name} is {shown(number)}; it must be a whole number of at least 1, or None")
        delay = self.max_delay
        if delay is not None and (
            isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < math.inf
        ):
            raise ValueError(f"max_delay is {shown(delay)}; it must be a number of seconds, 0 or more, or None")
        if self.max_size is None and delay is None:
            raise ValueError("max_size and max_delay are None; one of them must limit a batch")


class Batcher:
    """The open batch of one table, and its batches that are under way."""

    def __init__(self, batching: Batching, calls: Calls, order: KeyTurns) -> None:
        self.batching = batching
        self._calls = calls
        self._order = order
        self._open: CallBatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        """Whether the open batch is open beyond its delay."""
        self._free = math.inf if batching.max_in_flight is None else batching.max_in_flight
        self._ready: deque[_BatchTurn] = deque()

    @property
    def pending(self) -> int:
        """The size of the open batch."""
        return 0 if self._open is None else self._open.size

    @property
    def is_compact(self) -> bool:
        """Whether batches are compact."""
        return self.batching.kind == "compact"

    def add(self, kind: Kind, key: Hashable, payload: object, caller: Caller) -> None:
        """Add an operation to the open batch, and send that if it is full."""
        batch = self._open
        if batch is None:
            batch = self._open = CompactBatch(self._calls.source.as_read) if self.is_compact else CompleteBatch()
            if self.batching.max_delay is not None:
                self._timer = asyncio.get_running_loop().call_later(self.batching.max_delay, self._due)
        batch.add(kind, key, payload, caller)
        if self.batching.max_size is not None and batch.size >= self.batching.max_size:
            self.send()

    def _due(self) -> None:
        """Send the open batch, or leave it open while it would only wait behind others."""
        self._timer = None
        self._is_due = True
        self._run_ready()

    def send(self) -> None:
        """Give the open batch its place among the calls of its keys; it begins when the calls before it have ended."""
        batch, self._open, self._is_due = self._open, None, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if batch is not None:
            self._order.enter(_BatchTurn(batch, self))

    def send_holding(self, keys: Iterable[Hashable]) -> None:
        """Send the open batch if it holds one of these keys."""
        if self._open is not None and not self._open.steps.keys().isdisjoint(keys):
            self.send()

    def ready(self, turn: _BatchTurn) -> None:
        """Run a batch, once fewer than `max_in_flight` are under way."""
        self._ready.append(turn)
        self._run_ready()

    def _run_ready(self) -> None:
        while self._free > 0 and (self._ready or self._is_due):
            if not self._ready:
                if not self._waits_for_a_batch():
                    self.send()
                return
            self._free -= 1
            turn = self._ready.popleft()
            turn.task = asyncio.get_running_loop().create_task(self._run(turn))

    def _waits_for_a_batch(self) -> bool:
        """Return whether the open batch, sent now, would wait for a batch that has not begun either."""
        turns = () if self._open is None else map(self._order.last, self._open.steps)
        return any(isinstance(turn, _BatchTurn) and turn.task is None for turn in turns)

    async def _run(self, turn: _BatchTurn) -> None:
        is_cancelled = False
        try:
            for steps_by_kind in turn.batch.rounds():
                sending = [self._sent(kind, steps) for kind, steps in steps_by_kind.items()]
                if len(sending) == 1:
                    await sending[0]
                else:
                    await all_of(sending)
        except BaseException as error:
            turn.fail(error)
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled or isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            self._free += 1
            self._order.leave(turn, is_cancelled=is_cancelled)
            if is_cancelled:
                self._abandon()
            else:
                self._run_ready()

    def _abandon(self) -> None:
        """Cancel the callers of all batches that wait, as the event loop is being shut down."""
        free, self._free = self._free, 0
        self.send()
        while self._ready:
            turn = self._ready.popleft()
            turn.abandon()
            self._order.leave(turn, is_cancelled=True)
        self._free = free

    def _sent(self, kind: Kind, steps: list[BatchStep]) -> Coroutine[object, object, object]:
        """Return the coroutine that makes one bulk call, or a call for each key where there is no bulk call."""
        self._calls.instruments.batch(kind, len(steps))
        if self._calls.source.has_bulk(kind):
            return self._made(kind, steps)
        return all_of([self._made(kind, [step]) for step in steps])

    async def _made(self, kind: Kind, steps: list[BatchStep]) -> None:
        """Make one call, and end its operations."""
        calls = self._calls
        rows: Mapping[Hashable, object] = {}
        failures: Mapping[Hashable, Exception] = {}
        try:
            if kind == "get":
                rows = await calls.get_many([step.key for step in steps])
            elif kind == "update":
                failures = await calls.update([(step.key, step.payload) for step in steps])  # type: ignore[misc]
            else:
                await calls.write(kind, [(step.key, step.payload) for step in steps])
        except (InvalidFieldError, UnsupportedOperationError) as error:
            if len(steps) == 1 or not calls.source.judges_rows:
                fail_all(_callers(steps), error)
                return
            # A row is refused, or all of them are too large for one transaction, and nothing was written: alone, each
            # has its own outcome.
            await all_of([self._made(kind, [step]) for step in steps])
        except asyncio.CancelledError:
            raise  # the task was cancelled: sources turn what a function awaited into another error
        except BaseException as error:
            fail_all(_callers(steps), error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        else:
            for step in steps:
                if kind == "get":
                    _give(step, rows.get(step.key))
                elif step.key in failures:
                    fail_all(_callers([step]), failures[step.key])
                else:
                    for caller, value in step.callers:
                        caller.succeed(value)


class _BatchTurn(Turn):
    """A batch among the calls of its keys."""

    __slots__ = ("_batcher", "batch", "task")

    def __init__(self, batch: CallBatch, batcher: Batcher) -> None:
        super().__init__(batch.steps)
        self.batch = batch
        self.task: asyncio.Task[None] | None = None
        self._batcher = batcher

    def begin(self) -> None:
        self._batcher.ready(self)

    def abandon(self) -> None:
        self.fail(asyncio.CancelledError())

    def fail(self, error: BaseException) -> None:
        """Fail all callers that have no result yet."""
        fail_all([caller for caller in self.batch.callers() if not caller.is_ended], error)


def _callers(steps: Iterable[BatchStep]) -> list[Caller]:
    return [caller for step in steps for caller, _ in step.callers]


def _give(step: BatchStep, row: object) -> None:
    """Give each caller of a read a row of its own."""
    for number, (caller, _) in enumerate(step.callers):
        caller.succeed(own_copy(row) if number else row)
