"""The same random calls of the datasets on every store and on memory: the same results, errors and rows.

`STRUCTABLE_TEST_DATASET_ROUNDS` (default 2) is the number of programs for each store, and
`STRUCTABLE_TEST_DATASET_SEED=7` runs one of them alone.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pytest

from structable.datasets import Lease, Permit, RecordIterator, SystemData
from structable.spi import Isolation, Storage, StructableError
from tests.datasets.support.clock import Clock
from tests.datasets.support.dataset_arguments import BEGIN, Call
from tests.datasets.support.dataset_calls import RandomCalls
from tests.datasets.support.keys import Keys
from tests.datasets.support.stores import opened
from tests.datasets.support.ticks import Ticks
from tests.variants import seeds

SEED = os.environ.get("STRUCTABLE_TEST_DATASET_SEED")
TRANSACTIONS = 120
SEALED = {"wrapped", "nonce", "data", "keytab"}
"""Fields that differ each time that the same value is sealed."""


class Side:
    """The datasets of one store, with what a process holds in them."""

    def __init__(self, storage: Storage) -> None:
        self.clock = Clock()
        self.ticks = Ticks()
        self.system = SystemData.open(storage, clock=self.clock, keys=Keys(), monotonic=self.ticks)
        self.held: list[Lease | Permit] = []

    def transact(self, isolation: Isolation, calls: list[Call], *, commits: bool) -> list[object]:
        """Make calls in one transaction, commit it or roll it back, and return their outcomes."""
        with self.system.storage.transaction(isolation) as tx:
            s = self.system.bind(tx)
            outcomes = [ended(partial(call.on, s)) for call in calls]
            if not commits:
                tx.rollback()
        return outcomes

    def act(self, action: str, chance: random.Random) -> list[object]:
        """Do what is a transaction of its own."""
        namespace, application = chance.choice(("sales", "team-1", "team-1")), chance.choice(("shop", "shop2"))
        held = chance.choice(self.held) if self.held else None
        match action:
            case "remove_application":
                return [ended(lambda: self.system.remove_application(namespace, application))]
            case "remove_namespace":
                return [ended(lambda: self.system.remove_namespace(namespace))]
            case "lease":
                return [self._hold(self.system.leases.acquire(chance.choice("ab"), "owner", 5))]
            case "permit":  # of one slot, as any of several may be given
                return [self._hold(self.system.permits.acquire(chance.choice("pq"), "holder", 1, 5))]
            case "renew" if held is not None:
                return [ended(held.renew)]
            case "release" if held is not None:
                return [ended(held.release)]
        self.ticks.tick(3)
        return [[self.system.permits.held(pool) for pool in "pq"]]

    def _hold(self, held: Lease | Permit | None) -> int | None:
        if held is not None:
            self.held.append(held)
        return None if held is None else held.token

    def rows(self) -> dict[str, object]:
        """Return the rows of every table; of fences only the scopes, as the shard that is written is any."""
        found: dict[str, object] = {}
        for table in self.system.table_names:
            with self.system.storage.table(table).scan() as rows:
                plain_rows = [plain({name: value for name, value in row.items() if name not in SEALED}) for row in rows]
            found[table] = plain_rows
        with self.system.storage.table("sys_fences").scan() as rows:
            found["sys_fences"] = sorted({str(row["scope"]) for row in rows})
        return found


def ended(action: Callable[[], object]) -> object:
    """Return the result of an action as plain values, or the type and text of its error."""
    try:
        return plain(action())
    except (StructableError, ValueError, TypeError) as error:
        return type(error).__name__, str(error) if type(error).__module__.startswith("structable.datasets") else ""


def plain(value: object) -> object:
    """Return a value with its types, and without what sealing makes of it."""
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, plain(_unsealed(msgspec.structs.asdict(value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value).__name__, plain(_unsealed(fields))
    if isinstance(value, Mapping):
        return [(plain(name), plain(one)) for name, one in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple | RecordIterator):
        return [plain(one) for one in value]
    return type(value).__name__, value.value if isinstance(value, enum.Enum) else repr(value)


def _unsealed(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in SEALED}


@pytest.mark.parametrize("seed", seeds("STRUCTABLE_TEST_DATASET_ROUNDS", 2) if SEED is None else [int(SEED)])
def test_every_store_does_what_memory_does(
    system: SystemData, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(seed)
    random_calls = RandomCalls(chance)
    history: list[str] = []
    with opened("memory", tmp_path, request) as memory:
        # The first namespaces were made when the store was: their times are those of no given clock.
        reference, other = Side(memory), Side(system.storage)
        for side in (reference, other):
            for name in ("default", "system"):
                with side.system.transaction() as s:
                    s.namespaces.delete(name)
                    s.namespaces.create(name)
            side.transact(Isolation.SNAPSHOT, random_calls.first(), commits=True)
        for number in range(TRANSACTIONS):
            for side in (reference, other):
                side.clock.time = BEGIN
                side.clock.tick(number * 7)
            if chance.random() < 0.1:
                action = chance.choice(
                    ("remove_application", "remove_namespace", "lease", "lease", "permit", "renew", "release", "pass")
                )
                own = chance.getrandbits(64)
                history.append(action)
                expected, found = (side.act(action, random.Random(own)) for side in (reference, other))
            else:
                calls = [random_calls.next() for _ in range(chance.randint(1, 8))]
                isolation, commits = chance.choice(list(Isolation)), chance.random() < 0.85
                history += [f"begin {isolation}", *map(str, calls), "commit" if commits else "rollback"]
                expected, found = (side.transact(isolation, calls, commits=commits) for side in (reference, other))
            assert found == expected, "\n".join(["the last calls", *history[-20:]])
        rows = reference.rows()
        assert other.rows() == rows
        assert sum(len(found) > 0 for found in rows.values() if isinstance(found, list)) > 10
