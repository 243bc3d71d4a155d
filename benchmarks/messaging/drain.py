"""Groups that read a backlog: one large commit against many small ones, and polls after many messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from time import perf_counter

from benchmarks.measuring import Contender, Measurement, Scale, compare
from structable.datasets import SystemData, Topic
from structable.spi import Storage

from .topics import AREA

_BATCH = 100
_FEW = 1_000
_BODY = b'{"order":1,"to":"ada@example.org"}'
_POLLS = 50


def measure(storage: Storage, store: str, scale: Scale) -> Iterator[Measurement]:
    """Measure both on one store."""
    SystemData.create(storage)
    system = SystemData.open(storage)
    yield from _drain(system, store, scale)
    yield from _polls(system, store, scale)


def _drain(system: SystemData, store: str, scale: Scale) -> Iterator[Measurement]:
    messages = max(scale.rows // 4, _FEW)
    one, many = Topic("one-commit", bytes), Topic("many-commits", bytes)
    _fill(system, one, messages, messages)
    _fill(system, many, messages, _BATCH)
    groups = count()

    def drained(topic: Topic[bytes]) -> float:
        begun, handled = perf_counter(), 0
        with system.consumer(topic, group=f"drain-{next(groups)}") as consumer:
            while done := consumer.process(lambda s, some: None, _BATCH, wait=0):
                handled += done
        assert handled == messages
        return (perf_counter() - begun) / handled

    name = f"drain of one commit of {messages:,} messages by 100, {store}"
    contender = Contender(name, lambda: drained(one), 1.5)
    against = "as many in commits of 100"
    yield from compare(AREA, against, lambda: drained(many), [contender], min(scale.rounds, 3))


def _polls(system: SystemData, store: str, scale: Scale) -> Iterator[Measurement]:
    messages = max(scale.many_rows // 2, 2 * _FEW)
    few, many = Topic("few", bytes), Topic("many", bytes)
    _fill(system, few, _FEW, _FEW)
    _fill(system, many, messages, 10_000)

    def polled(topic: Topic[bytes]) -> float:
        with system.consumer(topic, group="poll", start="end") as consumer:
            consumer.poll(wait=0)
            begun = perf_counter()
            for _ in range(_POLLS):
                system.run(lambda s: s.publish(topic, _BODY))
                assert consumer.process(lambda s, some: None, wait=0) == 1
            return (perf_counter() - begun) / _POLLS

    name = f"publish and process one after {messages:,} messages, {store}"
    contender = Contender(name, lambda: polled(many), 1.5)
    yield from compare(AREA, f"after {_FEW:,}", lambda: polled(few), [contender], scale.rounds)


def _fill(system: SystemData, topic: Topic[bytes], messages: int, size: int) -> None:
    system.topics.create(topic)
    for begin in range(0, messages, size):
        with system.transaction() as s:
            for _ in range(min(size, messages - begin)):
                s.publish(topic, _BODY)
