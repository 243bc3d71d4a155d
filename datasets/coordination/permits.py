"""Permits: a limited number of holders at a time."""

from __future__ import annotations

import random
from collections.abc import Callable

from structable.datasets.identifiers import check_names
from structable.datasets.records.record_table import PrefixedTables
from structable.datasets.tables.coordination import FENCES, PERMITS, PermitRow
from structable.spi import Range, Storage, Transaction

from . import fences
from .beats import Watch, check_ttl
from .held import Held


class Permit(Held):
    """A permit that was acquired; `Permits.acquire` makes it. Safe to share between threads.

    Attributes
    ----------
    token : int
        A number that grows with each holder of the slot.
    """

    def __init__(self, storage: Storage, tables: PrefixedTables, pool: str, slot: int, holder: str, token: int) -> None:
        super().__init__(
            storage,
            tables[PERMITS].name,
            tables[FENCES].name,
            key={"pool": pool, "slot": slot},
            field="holder",
            owner=holder,
            token=token,
            scope=_scope(pool, slot),
        )
        self.pool = pool
        self.slot = slot

    @property
    def holder(self) -> str:
        """The holder."""
        return self._owner


class Permits:
    """The permits of a store: `system.permits`. Safe to share between threads; each call is its own transaction."""

    def __init__(self, storage: Storage, tables: PrefixedTables, monotonic: Callable[[], float]) -> None:
        self._storage = storage
        self._tables = tables
        self._watch = Watch(monotonic)

    def acquire(self, pool: str, holder: str, limit: int, ttl: int) -> Permit | None:
        """Return a permit if fewer than `limit` of the pool are held, else None.

        Parameters
        ----------
        limit : int
            If it is lower than before, permits that are held stay valid, and none is given until fewer are held.
        ttl : int
            Seconds without renewal, after which others may take it.

        Raises
        ------
        ValueError
            If a name, the limit or the ttl is out of its range.
        """
        check_names(pool=pool, holder=holder)
        check_ttl(ttl)
        if not isinstance(limit, int) or not 0 <= limit < 2**31:
            raise ValueError(f"limit is {limit!r}; it must be 0 to {2**31 - 1}")
        now = self._watch.monotonic()
        fences_table = self._tables[FENCES].name

        def take(tx: Transaction) -> tuple[int, int] | None:
            tokens, held = self._read(tx, pool, now)
            if len(held) >= limit:
                return None
            if max(held, default=0) >= limit:
                # A held slot above the limit counts too, but no claim of a lower slot writes it: one claim at a time.
                fences.exclude(tx, fences_table, f"permits/{pool}")
            slot = random.randrange(limit)
            while slot in held:
                slot = (slot + 1) % limit
            token = tokens.get(slot, 0) + 1
            fences.exclude(tx, fences_table, _scope(pool, slot))
            self._tables[PERMITS](tx).put(PermitRow(pool=pool, slot=slot, holder=holder, token=token, ttl=ttl))
            return slot, token

        taken = self._storage.run(take)
        if taken is None:
            return None
        slot, token = taken
        self._watch.forget((pool, slot))
        return Permit(self._storage, self._tables, pool, slot, holder, token)

    def held(self, pool: str) -> int:
        """Return how many permits of the pool are held, without permits that this process saw expire."""
        now = self._watch.monotonic()
        return self._storage.run(lambda tx: len(self._read(tx, pool, now)[1]), read_only=True)

    def _read(self, tx: Transaction, pool: str, now: float) -> tuple[dict[int, int], set[int]]:
        """Return the tokens of all slots, and the slots that are held."""
        tokens: dict[int, int] = {}
        held: set[int] = set()
        with self._tables[PERMITS](tx).scan(Range.prefix((pool,))) as rows:
            for row in rows:
                tokens[row.slot] = row.token
                if row.holder is None:
                    continue
                if not self._watch.expired((pool, row.slot), row.token, row.beat, row.ttl, now):
                    held.add(row.slot)
        return tokens, held


def _scope(pool: str, slot: int) -> str:
    return f"permit/{pool}/{slot}"
