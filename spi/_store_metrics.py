"""`StoreMetrics`: the instruments of all storages of this process, over one OpenTelemetry meter.

Counts are numbers of this process, which the SDK reads when it collects: to count takes some ten nanoseconds, and
is safe in a finaliser, which may run while a lock of the SDK is held. Durations have no such way: to record one takes
microseconds.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from ._errors import CommitOutcomeUnknownError, StorageUnavailableError, TransactionConflictError
from ._metering import duration_histogram, observed_counter
from ._storage import Storage
from ._store_reports import Traffic

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

Result = TypeVar("Result")

OUTCOMES = {
    "begun": "Transactions begun; a call of an auto-commit view is one, and so is the commit of a write job",
    "committed": "Transactions committed",
    "conflicted": "Transactions that lost against another one; nothing was committed",
    "unavailable": "Transactions that the store failed; nothing was committed",
    "unknown": "Transactions that may have been committed: the answer was lost, or the commit interrupted",
    "rolled_back": "Transactions that ended in any other way; nothing was committed",
    "retried": "Further attempts of `run` and of calls of auto-commit views",
}


class Count:
    """A number that any thread may raise, also in a finaliser or a signal handler."""

    __slots__ = ("_reads", "up")

    def __init__(self) -> None:
        # Atomic, unlike `+= 1`, and without a lock, which a finaliser might find taken by its own thread.
        self.up = itertools.count().__next__
        self._reads = 0

    def read(self) -> int:
        """Return the number; for one thread at a time."""
        number = self.up() - self._reads
        self._reads += 1
        return number


class TransactionCounts:
    """The transactions of one kind of access to one table or, if the name is empty, to none or several."""

    def __init__(self, store: str, table: str, access: str) -> None:
        self.attributes = {"store": store, "access": access} | ({"table": table} if table else {})
        self._counts = {outcome: Count() for outcome in OUTCOMES}

    def counter(self, outcome: str) -> Callable[[], object]:
        """Return a function that counts one. It is in C, so that no signal handler interrupts it or runs before it."""
        return self._counts[outcome].up

    def read(self, outcome: str) -> int:
        return self._counts[outcome].read()


class _StoreTraffic:
    """The traffic of all storages that this process has connected to one store."""

    def __init__(self) -> None:
        self._keys = itertools.count()
        # A reference to each open storage; the last numbers of an ended one replace it in one step.
        self._parts: dict[int, weakref.ref[Storage] | Traffic] = {}
        self._total = Traffic()
        self._lock = threading.Lock()

    def begin(self, storage: Storage) -> int:
        """Count a storage from now on; return its key."""
        self.read()  # so that ended ones do not gather where no SDK collects
        key = next(self._keys)
        self._parts[key] = weakref.ref(storage)
        return key

    def end(self, key: int, traffic: Traffic | None) -> None:
        """Keep the last numbers of a storage; takes no lock, for finalisers."""
        self._parts[key] = traffic or Traffic()

    def read(self) -> Traffic:
        with self._lock:
            open_now = Traffic()
            for key, part in list(self._parts.items()):
                if isinstance(part, Traffic):
                    self._total += part
                    del self._parts[key]
                else:
                    storage = part()
                    open_now += (storage.traffic() if storage is not None else None) or Traffic()
            return self._total + open_now


class StoreMetrics:
    """The counters and histograms of storages.

    Attributes
    ----------
    commit_duration, read_duration : Histogram
        Histograms of seconds.
    """

    def __init__(self, meter: Meter) -> None:
        self.restart()
        for outcome, description in OUTCOMES.items():
            name = f"structable.transactions.{outcome}"
            observed_counter(meter, name, "{transaction}", description, partial(self._transactions, outcome))
        observed_counter(
            meter, "structable.round_trips", "{round_trip}", "Waits for an answer of the store", self._round_trips
        )
        observed_counter(meter, "structable.bytes", "By", "Bytes sent to the store and received", self._bytes)
        self.commit_duration = duration_histogram(meter, "structable.commit.duration", "Time of commits with writes")
        self.read_duration = duration_histogram(meter, "structable.read.duration", "Time of reads")

    def restart(self) -> None:
        """Count from 0."""
        self._counts: dict[tuple[str, str, str], TransactionCounts] = {}
        self._traffic: dict[str, _StoreTraffic] = {}
        self._reading = threading.Lock()

    def counts(self, store: str, table: str, access: str) -> TransactionCounts:
        key = (store, table, access)
        return self._counts.get(key) or self._counts.setdefault(key, TransactionCounts(*key))

    def traffic(self, store: str) -> _StoreTraffic:
        return self._traffic.get(store) or self._traffic.setdefault(store, _StoreTraffic())

    def _transactions(self, outcome: str) -> Iterator[tuple[int, dict[str, str]]]:
        for counts in list(self._counts.values()):
            # The tables of a transaction are not known when it begins.
            if outcome != "begun" or "table" not in counts.attributes:
                with self._reading:
                    number = counts.read(outcome)
                yield number, counts.attributes

    def _round_trips(self) -> Iterator[tuple[int, dict[str, str]]]:
        for store, traffic in list(self._traffic.items()):
            number = traffic.read().round_trips
            if number is not None:
                yield number, {"store": store}

    def _bytes(self) -> Iterator[tuple[int, dict[str, str]]]:
        for store, traffic in list(self._traffic.items()):
            total = traffic.read()
            for direction, number in (("sent", total.sent), ("received", total.received)):
                if number is not None:
                    yield number, {"store": store, "direction": direction}


class _MeterInstruments:
    """The instruments over each meter, made once: a second one of a name would be a mistake to the SDK."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Meter, StoreMetrics] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def metrics_of(self, meter: Meter) -> StoreMetrics:
        """Return the instruments of storages over a meter."""
        with self._lock:
            found = self._made.get(meter)
            if found is None:
                found = self._made[meter] = StoreMetrics(meter)
            return found

    def after_fork(self) -> None:
        """Count from 0 in a forked process, without the locks that other threads had."""
        self._lock = threading.Lock()
        for metrics in list(self._made.values()):
            metrics.restart()


_REGISTRY = _MeterInstruments()
os.register_at_fork(after_in_child=_REGISTRY.after_fork)
metrics_of = _REGISTRY.metrics_of

ENDING = (TransactionConflictError, StorageUnavailableError, CommitOutcomeUnknownError)
"""Errors after which a transaction can only be left."""


def outcome_of(error: BaseException | None, *, committing: bool = False) -> str:
    """Return how a transaction ended; `committing`: whether its commit had begun."""
    match error:
        case TransactionConflictError():
            return "conflicted"
        case StorageUnavailableError():
            return "unavailable"
        case CommitOutcomeUnknownError():
            return "unknown"
        case Exception():
            return "rolled_back"
    return "unknown" if committing else "rolled_back"  # an interruption


class StoreMeter:
    """The meter that all storages of one store share: the instruments, and the store's name among the attributes."""

    __slots__ = ("_attributes", "metrics", "store")

    def __init__(self, metrics: StoreMetrics, store: str) -> None:
        self.metrics = metrics
        self.store = store
        self._attributes: dict[tuple[str, str], dict[str, str]] = {}

    def counter(self, table: str, access: str, outcome: str) -> Callable[[], object]:
        return self.metrics.counts(self.store, table, access).counter(outcome)

    def read(self, table: str, operation: str, seconds: float) -> None:
        self.metrics.read_duration.record(seconds, self._of(table, operation))

    def committed(self, table: str, operation: str, seconds: float) -> None:
        self.metrics.commit_duration.record(seconds, self._of(table, operation))

    def transaction(self, call: Callable[[], Result], table: str, access: str, operation: str) -> Result:
        """Return the result of a call that is a transaction of its own."""
        begun, committed = self.counter("", access, "begun"), self.counter(table, access, "committed")
        is_committed = False
        started = perf_counter()
        try:
            begun()
            result = call()
            is_committed = True
            committed()
        except BaseException as error:
            if not is_committed:
                self.counter(table, access, outcome_of(error, committing=access == "write"))()
            raise
        if access == "write":
            self.committed(table, operation, perf_counter() - started)
        return result

    def _of(self, table: str, operation: str) -> dict[str, str]:
        found = self._attributes.get((table, operation))
        if found is None:
            found = {"store": self.store, "operation": operation} | ({"table": table} if table else {})
            self._attributes[table, operation] = found
        return found
