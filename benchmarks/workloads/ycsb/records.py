"""YCSB's core workloads: the table, its records, and the operations of a client.

Each record has a key, `user` and the hash of its number, and ten fields of 100 characters. A read reads all fields, an
update writes one. Scans begin at an existing record and have 1 to 100 rows, uniformly.
"""

from __future__ import annotations

import random
import string
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator

from benchmarks.workloads.programs import Action, Program, Step
from structable.spi import Field, TableSpecification

from .distributions import Numbers, ScrambledZipfian, Zipfian, keys_of

TABLE = "usertable"
KEY = "id"
FIELDS = tuple(f"field{number}" for number in range(10))
LONGEST_SCAN = 100
_FIELD_SIZE = 100
_TEXT_SIZE = 1 << 20

WORKLOADS: Mapping[str, Mapping[str, float]] = {
    "A": {"read": 0.5, "update": 0.5},
    "B": {"read": 0.95, "update": 0.05},
    "C": {"read": 1.0},
    "D": {"read": 0.95, "insert": 0.05},
    "E": {"scan": 0.95, "insert": 0.05},
    "F": {"read": 0.5, "modify": 0.5},
}
"""The parts of the operations. D prefers the latest records; all others have scrambled Zipfian keys."""

_LATEST = {"D"}


def specification() -> TableSpecification:
    """Return the table."""
    return TableSpecification(
        TABLE, fields=[Field.string(KEY), *(Field.string(name) for name in FIELDS)], primary_key=[KEY]
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """The records of a comparison.

    Parameters
    ----------
    records : int
        Those that are loaded.
    first : int
        The number of the first record that clients insert; above those of all earlier clients.
    """

    records: int
    first: int

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield key and fields of the records that are loaded, in key order: in any other, ten million take hours."""
        chosen = random.Random(1)
        for key in sorted(_loaded_keys(self.records)):
            yield (key, *(_text(chosen.randrange(_TEXT_SIZE)) for _ in FIELDS))


class RecordProgram(Program):
    """A client of the table; each kind of store has its own.

    Parameters
    ----------
    shape : Shape
        The records.
    client, clients : int
        The client's number from 0, and the number of all clients.
    """

    def __init__(self, shape: Shape, *, client: int, clients: int) -> None:
        self.shape = shape
        self._client = client
        self._clients = clients
        self._inserted = 0
        self._scrambled = ScrambledZipfian(shape.records)

    @abstractmethod
    def load(self) -> None:
        """Create the table with its records."""

    @abstractmethod
    def read(self, key: str) -> int:
        """Read a record, and return the number of records found."""

    @abstractmethod
    def update(self, key: str, field: str, value: str) -> int:
        """Change one field."""

    @abstractmethod
    def insert(self, row: tuple[str, ...]) -> int:
        """Insert a record."""

    @abstractmethod
    def scan(self, key: str, limit: int) -> int:
        """Read records from a key on, and return 1 if there are any."""

    @abstractmethod
    def modify(self, key: str, field: str, value: str) -> int:
        """Read a record and then change one of its fields, in one transaction."""

    @abstractmethod
    def rows(self) -> list[tuple[str, ...]]:
        """Return all records, in key order."""

    @property
    def actions(self) -> Mapping[str, Action]:
        return {name: getattr(self, name) for name in ("read", "update", "insert", "scan", "modify")}

    def plan(self, work: str, seed: int, amount: int) -> list[Step]:
        # One generator for each purpose, so that the amount changes no step.
        kinds, keys, values, lengths = (np.random.default_rng([seed, self._client, purpose]) for purpose in range(4))
        parts = WORKLOADS[work]
        ends = np.cumsum(list(parts.values()))
        chosen = np.searchsorted(ends, kinds.random(amount), side="right").clip(max=len(parts) - 1)
        actions = [list(parts)[number] for number in chosen.tolist()]
        inserts = np.cumsum([action == "insert" for action in actions])
        records = self._latest(keys, inserts) if work in _LATEST else self._scrambled.draw(keys, amount)
        records = np.where(np.diff(inserts, prepend=0) == 1, self.shape.records + self._inserted + inserts - 1, records)
        places = values.integers(_TEXT_SIZE, size=(amount, len(FIELDS))).tolist()
        sizes = lengths.integers(1, LONGEST_SCAN, size=amount, endpoint=True).tolist()
        return [
            (action, _arguments(action, key, places_of_one, size))
            for action, key, places_of_one, size in zip(actions, self._keys(records), places, sizes, strict=True)
        ]

    def performed(self, steps: list[Step]) -> None:
        self._inserted += sum(action == "insert" for action, _ in steps)

    def _latest(self, keys: Generator, inserts: Numbers) -> Numbers:
        """Return the place of each operation's record among those that this client knows.

        They are the loaded ones and those that it inserted itself; `inserts` counts the new ones up to each operation.
        """
        known = self.shape.records + self._inserted
        return known + inserts - 1 - Zipfian(known).draw(keys, len(inserts))

    def _keys(self, places: Numbers) -> list[str]:
        loaded = _loaded_keys(self.shape.records)
        own = places - self.shape.records
        inserted = iter(keys_of(self.shape.first + self._client + self._clients * own[own >= 0]))
        return [loaded[place] if place < len(loaded) else next(inserted) for place in places.tolist()]


def _arguments(action: str, key: str, places: list[int], size: int) -> tuple[object, ...]:
    if action == "insert":
        return ((key, *map(_text, places)),)
    if action == "scan":
        return key, size
    if action == "read":
        return (key,)
    return key, FIELDS[places[0] % len(FIELDS)], _text(places[1])


@lru_cache(maxsize=1)
def _loaded_keys(count: int) -> list[str]:
    return keys_of(np.arange(count))


@lru_cache(maxsize=1)
def _texts() -> str:
    return "".join(random.Random(2).choices(string.printable[:95], k=_TEXT_SIZE + _FIELD_SIZE))


def _text(place: int) -> str:
    return _texts()[place : place + _FIELD_SIZE]
