"""A contest: programs of one kind on several stores take turns, on the same clients with the same requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.measuring import Measurement, Scale, measured

from .clients import Fleet
from .orders.model import Size
from .orders.requests import WORK as ORDERS
from .programs import Opening, Program, Share
from .ycsb.records import WORKLOADS, Shape

AREA = "workloads"

MANY_CLIENTS = 4

_INSERTED = 100_000_000
"""More than the records that a run can insert."""

_WARM_UP = 3e-6
"""Seconds of reading for each record, before all turns: a large table comes from the disk at first."""
_FIRST_SEED = 1_000
"""The warm-up's first seed; turns have lower ones."""


class WorkloadFaultError(AssertionError):
    """A program did not do what it was asked for, or left an inconsistent state."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Programs on a store.

    Parameters
    ----------
    name : str
        Its name in the table of results.
    records, orders : callable
        Open the programs of YCSB and of the order entry in a client process, from a `Shape` and a `Size`; picklable.
    goals : callable
        Returns, from the kind of work and the number of clients, the highest promised ratio of our time to this
        rival's; None if there is no promise.
    """

    name: str
    records: Callable[..., Program] | None
    orders: Callable[..., Program] | None
    goals: Callable[[str, int], float | None] = lambda _work, _clients: None


@dataclass(frozen=True, slots=True)
class Contest:
    """Programs on the same rows.

    Parameters
    ----------
    ours : Rival
        structable's.
    floors : sequence of Rival
        Those by hand. One that has no program for a kind of work is left out there.
    scale : Scale
        Rounds and their time, and the number of records.
    """

    ours: Rival
    floors: Sequence[Rival]
    scale: Scale

    def load(self, fleet: Fleet) -> None:
        """Load all rows, by the first client, and close the programs."""
        for openings in (self._records(0), self._orders()):
            with _opened(fleet, openings, load=True):
                pass

    def run(self, fleet: Fleet, number: int, *, load: bool = False) -> Iterator[Measurement]:
        """Run all workloads.

        Parameters
        ----------
        fleet : Fleet
            The clients.
        number : int
            Of this run on the same rows, from 0: the records that it inserts are its own.
        load : bool
            Whether to load the rows first, because they live in the clients' memory only.
        """
        with _opened(fleet, self._records(number), load=load):
            for name in self._records(number):
                self._warm_up(fleet, name)
            for work in WORKLOADS:
                shares = self._turns(fleet, self._records(number), work)
                for share in (share for rounds in shares.values() for round_ in rounds for share in round_):
                    if share.effects != share.steps:
                        raise WorkloadFaultError(f"of YCSB {work}'s {share.steps} only {share.effects} had an effect")
                yield from self._measurements(f"YCSB {work}", work, fleet.size, shares)
        with _opened(fleet, self._orders(), load=load):
            before = {name: fleet.call(name, "totals") for name in self._orders()}
            shares = self._turns(fleet, self._orders(), ORDERS)
            for name, rounds in shares.items():
                effects = Counter[str]()
                for share in (share for round_ in rounds for share in round_):
                    effects += share.effects
                if faults := fleet.call(name, "faults", before[name].after(effects)):
                    text = "\n".join(faults[:20])
                    raise WorkloadFaultError(f"{name} has {len(faults)} faults after {fleet.size} clients:\n{text}")
        yield from self._measurements("order entry", ORDERS, fleet.size, shares)

    def _records(self, number: int) -> dict[str, Opening]:
        shape = Shape(self.scale.records, (number + 1) * _INSERTED)
        return {rival.name: partial(rival.records, shape) for rival in self._rivals if rival.records is not None}

    def _orders(self) -> dict[str, Opening]:
        size = Size.of(self.scale.records)
        return {rival.name: partial(rival.orders, size) for rival in self._rivals if rival.orders is not None}

    @property
    def _rivals(self) -> list[Rival]:
        return [*self.floors, self.ours]

    def _warm_up(self, fleet: Fleet, name: str) -> None:
        left, seeds = _WARM_UP * self.scale.records, count(_FIRST_SEED)
        while left > 0:  # a client plans more steps each time
            left -= max(share.seconds for share in fleet.run(name, "C", next(seeds), left))

    def _turns(self, fleet: Fleet, names: Iterable[str], work: str) -> dict[str, list[list[Share]]]:
        """Return the shares of every round; the first round is a warm-up."""
        shares: dict[str, list[list[Share]]] = {name: [] for name in names}
        for turn in range(1 + self.scale.rounds):
            for name, rounds in shares.items():
                rounds.append(fleet.run(name, work, turn, self.scale.seconds))
        return shares

    def _measurements(
        self, title: str, work: str, clients: int, shares: dict[str, list[list[Share]]]
    ) -> Iterator[Measurement]:
        name = f"{self.ours.name}, {title}, {clients} client{'s' if clients > 1 else ''}"
        ours = shares[self.ours.name][1:]
        if not self.floors:
            yield measured(AREA, name, "", None, _times(ours), None, _parity(ours))
        for floor in self.floors:
            if floor.name not in shares:
                continue
            theirs = shares[floor.name][1:]
            goal = floor.goals(work, clients)
            note = _parity(ours, theirs)
            yield measured(AREA, name, floor.name, _times(theirs), _times(ours), goal, note)


@contextmanager
def _opened(fleet: Fleet, openings: Mapping[str, Opening], *, load: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for name, opening in openings.items():
            stack.enter_context(fleet.opened(name, opening))
            if load:
                fleet.call(name, "load")
        yield


def _times(rounds: list[list[Share]]) -> list[float]:
    """Return the microseconds of a step in each round: of all clients together."""
    return [1e6 / sum(share.steps.total() / share.seconds for share in round_) for round_ in rounds]


def _parity(*programs: list[list[Share]]) -> str:
    """Return how many times as many steps the busiest client took as the laziest: ours, and the floor's."""
    ratios = []
    for rounds in programs:
        steps = [sum(share.steps.total() for share in client) for client in zip(*rounds, strict=True)]
        ratios.append(f"{max(steps) / max(min(steps), 1):.1f}")
    return "shares " + "; floor's ".join(ratios) if len(programs[0][0]) > 1 else ""
