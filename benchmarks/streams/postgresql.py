"""PostgreSQL, durable commits: partial updates of 1,000 rows in a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Database
from benchmarks.rows import TABLE

from .updates import AREA, chosen_updates

_BY_HAND = (
    f"UPDATE {TABLE} t SET bytes = u.bytes, attempts = u.attempts "
    "FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::integer[]) AS u (host, started, bytes, attempts) "
    "WHERE t.host = u.host AND t.started = u.started"
)


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure `update_many` compared with one hand-written statement."""
    database.make(scale.rows)
    chance = random.Random(5)
    with database.on_separate_cores(), database.storage() as storage, database.connection() as raw:

        def by_hand() -> float:
            updates = chosen_updates(chance, scale)
            begin = perf_counter()
            with raw.transaction():
                columns = [list(column) for column in zip(*(row.values() for row in updates), strict=True)]
                assert raw.execute(_BY_HAND.encode(), columns).rowcount == len(updates)
            return (perf_counter() - begin) / len(updates)

        def at_once() -> float:
            updates = chosen_updates(chance, scale)
            begin = perf_counter()
            assert storage.table(TABLE).update_many(updates) == []
            return (perf_counter() - begin) / len(updates)

        contender = Contender("update_many of 1,000 rows, PostgreSQL", at_once, 1.1)
        yield from compare(AREA, "UPDATE ... FROM unnest by hand", by_hand, [contender], 3 * scale.rounds)
