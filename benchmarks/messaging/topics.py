"""Topics: publishing against an insert into an outbox, and publishing and handling against a hand-made queue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from benchmarks.postgresql.database import Connection, Database
from structable.datasets import Record, Session, SystemData, Topic
from structable.spi import Field, Storage, TableSpecification, Value

AREA = "messaging"
_BATCH = 100

_OUTBOX = TableSpecification(
    "outbox",
    [Field.string("id"), Field.string("topic"), Field.string("body"), Field.timestamp("published")],
    primary_key=["id"],
)


class Event(Record):
    """What is published."""

    order: int
    to: str


EVENTS = Topic("events", Event)
_EVENT = Event(order=1, to="ada@example.org")

_QUEUE = """
CREATE TABLE queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL, published timestamptz NOT NULL
)
"""
_PUBLISH = b"INSERT INTO queue (body, published) VALUES (%s, now())"
_TAKE = b"SELECT id, body FROM queue ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
_DELETE = b"DELETE FROM queue WHERE id = ANY(%s)"


def prepared(storage: Storage) -> SystemData:
    """Return the datasets of a new store, with a topic."""
    SystemData.create(storage)
    system = SystemData.open(storage)
    system.topics.create(EVENTS)
    return system


def measure_publish(storage: Storage, store: str, scale: Scale, goals: tuple[float, float]) -> Iterator[Measurement]:
    """Measure a transaction that writes a row and publishes, in a table with another feed and without one."""
    system, numbers = prepared(storage), count()
    storage.admin.create(_OUTBOX)
    samples = max(scale.samples // 40, 20)
    for producer, goal in zip(("lookup", "none"), goals, strict=True):
        name = f"orders_{producer}"
        options = {"changelog-producer": producer}
        fields = [Field.long("number"), Field.string("state")]
        storage.admin.create(TableSpecification(name, fields, primary_key=["number"], options=options))

        def write(s: Session, name: str = name) -> None:
            s.tx.table(name).upsert({"number": next(numbers), "state": "PLACED"})

        def floor(write: Callable[[Session], None] = write) -> float:
            begun = perf_counter()
            for _ in range(samples):
                with system.transaction() as s:
                    write(s)
                    body = json.dumps({"order": 1, "to": "ada@example.org"})
                    row: dict[str, Value] = {
                        "id": uuid.uuid4().hex,
                        "topic": "events",
                        "body": body,
                        "published": s._context.now(),
                    }
                    s.tx.table("outbox").upsert(row)
            return (perf_counter() - begun) / samples

        def ours(write: Callable[[Session], None] = write) -> float:
            begun = perf_counter()
            for _ in range(samples):
                with system.transaction() as s:
                    write(s)
                    s.publish(EVENTS, _EVENT)
            return (perf_counter() - begun) / samples

        feed = "with another feed in it" if producer == "lookup" else "without another feed"
        contender = Contender(f"a transaction that publishes, {feed}, {store}", ours, goal)
        yield from compare(AREA, "the same with an insert into an outbox", floor, [contender], scale.rounds)


def measure_end_to_end(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure each message's part of the time in which all are published and handled, a hundred at a time."""
    batches = max(scale.samples // 1_000, 2)
    with database.connection() as raw, database.storage() as storage:
        raw.execute(_QUEUE.encode())
        system = prepared(storage)
        with system.consumer(EVENTS, group="benchmark") as consumer:

            def ours() -> float:
                begun, handled = perf_counter(), 0
                for _ in range(batches):
                    with system.transaction() as s:
                        for _ in range(_BATCH):
                            s.publish(EVENTS, _EVENT)
                while done := consumer.process(lambda s, messages: None, _BATCH, wait=0):
                    handled += done
                assert handled == batches * _BATCH
                return (perf_counter() - begun) / handled

            contender = Contender("publish and process in hundreds, each message, PostgreSQL", ours, 1 / 0.8)
            against = "insert, SKIP LOCKED, delete in hundreds by hand, prepared"
            yield from compare(AREA, against, lambda: _by_hand(raw, batches), [contender], scale.rounds)


def _by_hand(raw: Connection, batches: int) -> float:
    begun, handled = perf_counter(), 0
    for _ in range(batches):
        raw.execute(b"BEGIN")
        for _ in range(_BATCH):
            raw.execute(_PUBLISH, (json.dumps({"order": 1, "to": "ada@example.org"}),), prepare=True)
        raw.execute(b"COMMIT")
    while True:
        raw.execute(b"BEGIN")
        taken = raw.execute(_TAKE, (_BATCH,), prepare=True).fetchall()
        for _, body in taken:
            json.loads(body)
        if taken:
            raw.execute(_DELETE, ([one for one, _ in taken],), prepare=True)
        raw.execute(b"COMMIT")
        handled += len(taken)
        if not taken:
            break
    assert handled == batches * _BATCH
    return (perf_counter() - begun) / handled
