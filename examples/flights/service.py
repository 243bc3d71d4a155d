"""A service of several processes that look up flights and book delays, all on one store at once."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from time import perf_counter

from structable.spi import Range, Row, Storage, Transaction, col, connect

from .tables import FLIGHT_KEY

_SPAWN = multiprocessing.get_context("spawn")
_AIRPORTS = ("EWR", "JFK", "LGA")
_CARRIERS = ("B6", "EV", "UA")
_BOARD = 10
_HISTORIES = 10
"""Number of transactions for each read of a plane's whole history."""

Date = tuple[int, int, int]
"""Year, month and day: the first fields of a flight's key."""


@dataclass(slots=True)
class Outcome:
    """The work done by one process.

    Parameters
    ----------
    lookups, scans, scanned : int
        Flights read by their key; scans by an index, and the rows that they found.
    transactions, attempts, minutes : int
        Committed transactions, the number of attempts they took, and the minutes of delay that they added.
    seconds : float
        Its working time.
    """

    lookups: int = 0
    scans: int = 0
    scanned: int = 0
    transactions: int = 0
    attempts: int = 0
    minutes: int = 0
    seconds: float = 0.0


class Service:
    """Processes that start working on construction. Each opens its own connection to the store.

    Parameters
    ----------
    url : str
        The store.
    processes : int
        The number of processes.
    transactions : int
        The number of transactions that each of them commits.
    dates : sequence of tuple of int
        The days of the flights to work on, processed by every process in this order.
    """

    def __init__(self, url: str, processes: int, transactions: int, dates: Sequence[Date]) -> None:
        self._results: SimpleQueue[Outcome] = _SPAWN.SimpleQueue()
        self._processes = [
            _SPAWN.Process(target=_serve, args=(url, number, transactions, dates, self._results), name=f"desk {number}")
            for number in range(processes)
        ]
        for process in self._processes:
            process.start()

    def outcomes(self) -> list[Outcome]:
        """Wait for all processes, and return their work.

        Raises
        ------
        RuntimeError
            If one of them failed; the process has printed the reason.
        """
        for process in self._processes:
            process.join()
        failed = [process.name for process in self._processes if process.exitcode]
        if failed:
            raise RuntimeError(f"{', '.join(failed)} failed")
        return [self._results.get() for _ in self._processes]


def _serve(url: str, number: int, transactions: int, dates: Sequence[Date], results: SimpleQueue[Outcome]) -> None:
    with connect(url) as storage:
        desk = _Desk(storage, number, dates)
        begin = perf_counter()
        for turn in range(transactions):
            desk.work(turn)
        desk.done.seconds = perf_counter() - begin
    results.put(desk.done)


class _Desk:
    """The work of one process."""

    def __init__(self, storage: Storage, number: int, dates: Sequence[Date]) -> None:
        self.done = Outcome()
        self._storage = storage
        self._dates = dates
        self._chosen = random.Random(number)
        self._flights = storage.table("flights")

    def work(self, turn: int) -> None:
        """Look at the departures of a day, and delay one of them."""
        date = self._dates[turn % len(self._dates)]
        board = self._board(date)
        for departure in self._chosen.sample(board, min(5, len(board))):
            self._look_up(departure)
        if turn % _HISTORIES == 0:
            self._read_history(self._chosen.choice(board).tailnum)
        self._delay(date, self._chosen.choice(board))

    def _board(self, date: Date) -> list[Row]:
        """Return some departures of a day from one airport, of a carrier or those after it: a range of the key."""
        here = (col("origin") == self._chosen.choice(_AIRPORTS)) & col("tailnum").is_not_null()
        carriers = Range((*date, self._chosen.choice(_CARRIERS)), date, end_inclusive=True)
        return list(self._flights.scan(carriers, where=here, limit=_BOARD))

    def _look_up(self, departure: Row) -> None:
        """Read a flight by its key, in a separate transaction."""
        flight = self._flights.read(departure.key)
        assert flight is not None
        assert flight.dest == departure.dest
        self.done.lookups += 1

    def _read_history(self, tailnum: str) -> None:
        """Read all flights of a plane, by the index of tail numbers."""
        self.done.scanned += sum(1 for _ in self._flights.scan_index("tailnum", tailnum))
        self.done.scans += 1

    def _delay(self, date: Date, late: Row) -> None:
        """Delay a flight, and all that its plane flies later that day, atomically."""
        minutes = self._chosen.randrange(5, 60, 5)

        def book(tx: Transaction) -> int:
            self.done.attempts += 1
            flights, changes = tx.table("flights"), tx.table("changes")
            legs = [
                leg
                for leg in flights.scan_index("tailnum", late.tailnum, range=Range.prefix(date))
                if leg.sched_dep_time >= late.sched_dep_time
            ]
            for leg in legs:
                change = {
                    "dep_delay": None if leg.dep_delay is None else leg.dep_delay + minutes,
                    "arr_delay": None if leg.arr_delay is None else leg.arr_delay + minutes,
                    "added_delay": (leg.added_delay or 0) + minutes,
                }
                flights.update({**dict(zip(FLIGHT_KEY, leg.key, strict=True)), **change})
            # All processes count in this row: if the store applies increments blindly, they never conflict.
            changes.increment((late.carrier,), "transactions")
            changes.increment((late.carrier,), "minutes", minutes * len(legs))
            return minutes * len(legs)

        # `run` repeats the body when another process changed one of these flights first.
        self.done.minutes += self._storage.run(book)
        self.done.transactions += 1
