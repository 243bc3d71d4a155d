"""A service: desks, each a process of its own, that look flights up and book delays on one store at once."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import random
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from time import perf_counter

from structable.spi import Range, Row, Storage, Transaction, col, connect

from .tables import FLIGHT_KEY

__all__ = ["Desks", "Duties", "Statement", "statement"]

_SPAWN = multiprocessing.get_context("spawn")
_AIRPORTS = ("EWR", "JFK", "LGA")
_BOARD = 20

Date = tuple[int, int, int]
"""Year, month and day: the beginning of a flight's key."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What each desk has to do.

    Parameters
    ----------
    lookups, histories, bookings : int
        Flights to look up by their key, planes whose flights are read by the index, and delays to book.
    endless : bool
        Book delays until told to stop, not a number of them.
    """

    lookups: int = 2_000
    histories: int = 200
    bookings: int = 500
    endless: bool = False


@dataclass(slots=True)
class Statement:
    """What desks have done, and how long they took for it."""

    lookups: int = 0
    lookup_seconds: float = 0.0
    histories: int = 0
    history_rows: int = 0
    history_seconds: float = 0.0
    bookings: int = 0
    booking_seconds: float = 0.0
    attempts: int = 0
    minutes: int = 0


def statement(of: Sequence[Statement]) -> Statement:
    """Add statements up; desks work at the same time, so the longest times count."""
    total = Statement()
    for one in of:
        for name in ("lookups", "histories", "history_rows", "bookings", "attempts", "minutes"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        for name in ("lookup_seconds", "history_seconds", "booking_seconds"):
            setattr(total, name, max(getattr(total, name), getattr(one, name)))
    return total


class Desks:
    """Processes at work. Each connects to the store by itself, by its URL.

    Parameters
    ----------
    url : str
        The store.
    names : sequence of str
        One for each desk; their bookings are kept under it.
    dates : sequence of tuple of int
        The days that they work on, all of them in this order.
    duties : Duties
        What each has to do.
    """

    def __init__(self, url: str, names: Sequence[str], dates: Sequence[Date], duties: Duties) -> None:
        self._stop = _SPAWN.Event()
        self._results: SimpleQueue[Statement] = _SPAWN.SimpleQueue()
        self._processes = [
            _SPAWN.Process(target=_work, args=(url, name, dates, duties, self._stop, self._results), name=name)
            for name in names
        ]
        for process in self._processes:
            process.start()

    def finish(self) -> Statement:
        """Tell endless desks to stop, wait for all, and return what they did.

        Raises
        ------
        RuntimeError
            If one of them failed; it has printed why.
        """
        self._stop.set()
        for process in self._processes:
            process.join()
        failed = [process.name for process in self._processes if process.exitcode]
        if failed:
            raise RuntimeError(f"{', '.join(failed)} failed")
        return statement([self._results.get() for _ in self._processes])


def _work(
    url: str, name: str, dates: Sequence[Date], duties: Duties, stop: Event, results: SimpleQueue[Statement]
) -> None:
    with connect(url) as storage:
        results.put(_Desk(storage, name, dates).work(duties, stop))


class _Desk:
    def __init__(self, storage: Storage, name: str, dates: Sequence[Date]) -> None:
        self._storage = storage
        self._name = name
        self._dates = dates
        self._chosen = random.Random(name)
        self._flights = storage.table("flights")
        self._done = Statement()

    def work(self, duties: Duties, stop: Event) -> Statement:
        done = self._done
        begin = perf_counter()
        for _ in range(0, duties.lookups, _BOARD):
            self._look_up()
        done.lookup_seconds = perf_counter() - begin
        begin = perf_counter()
        for _ in range(duties.histories):
            self._read_history()
        done.history_seconds = perf_counter() - begin
        begin = perf_counter()
        while not stop.is_set() if duties.endless else done.bookings < duties.bookings:
            self._book(self._dates[done.bookings % len(self._dates)])
        done.booking_seconds = perf_counter() - begin
        return done

    def _board(self, date: Date) -> list[Row]:
        """Return some departures of a day from one airport, by the beginning of their key."""
        here = col("origin") == self._chosen.choice(_AIRPORTS)
        return list(self._flights.scan(Range.prefix(date), where=here & col("tailnum").is_not_null(), limit=_BOARD))

    def _look_up(self) -> None:
        """Read flights by their keys, each in a transaction of its own."""
        for departure in self._board(self._chosen.choice(self._dates)):
            flight = self._flights.read(departure.key)
            assert flight is not None
            self._done.lookups += 1

    def _read_history(self) -> None:
        """Read all flights of a plane, by the index of tail numbers."""
        plane = self._chosen.choice(self._board(self._chosen.choice(self._dates))).tailnum
        self._done.history_rows += sum(1 for _ in self._flights.scan_index("tailnum", plane))
        self._done.histories += 1

    def _book(self, date: Date) -> None:
        """Book a delay on a flight, and on all that its plane flies later that day: all of it or nothing."""
        late = self._chosen.choice(self._board(date))
        minutes = self._chosen.randrange(5, 60, 5)

        def book(tx: Transaction) -> int:
            self._done.attempts += 1
            flights, counters = tx.table("flights"), tx.table("delay_counters")
            legs = [
                leg
                for leg in flights.scan_index("tailnum", late.tailnum, range=Range.prefix(date))
                if leg.sched_dep_time >= late.sched_dep_time and leg.dep_delay is not None
            ]
            for leg in legs:
                arrival = None if leg.arr_delay is None else leg.arr_delay + minutes
                key = dict(zip(FLIGHT_KEY, leg.key, strict=True))
                flights.update({**key, "dep_delay": leg.dep_delay + minutes, "arr_delay": arrival})
                # Increments of one row by many desks do not conflict.
                counters.increment((leg.carrier,), "legs")
                counters.increment((leg.carrier,), "minutes", minutes)
            tx.table("bookings").insert(
                {
                    "desk": self._name,
                    "number": self._done.bookings,
                    "tailnum": late.tailnum,
                    "minutes": minutes,
                    "legs": len(legs),
                    "booked": dt.datetime.now(dt.UTC),
                }
            )
            return minutes * len(legs)

        # `run` repeats the body when another desk changed one of these flights first.
        self._done.minutes += self._storage.run(book)
        self._done.bookings += 1
