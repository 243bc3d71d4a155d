"""The traffic of all storages of a process, and its metrics: nothing is lost or counted twice."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from structable.spi import Storage, connect
from structable.testing.conformance.clients import StoreProcess

from .conftest import ITEMS
from .sdk import Metrics


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb://{tmp_path}/store"


@pytest.fixture
def owner(url: str) -> Iterator[StoreProcess]:
    """Start a process that owns the store."""
    with connect(url) as storage:
        storage.admin.create(ITEMS)
    owner = StoreProcess(url, "obey")
    assert owner.next() == "ready"
    yield owner
    owner.close()


def round_trips(*storages: Storage) -> int:
    total = 0
    for storage in storages:
        traffic = storage.traffic()
        assert traffic is not None
        assert traffic.round_trips is not None
        total += traffic.round_trips
    return total


def test_storages_that_share_connections(url: str, owner: StoreProcess) -> None:
    """Their sum is right: while several are open, as the first one is closed, and as another one follows it."""
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(connect(url)) for _ in range(3))
        three = (first, second, third)
        before = round_trips(*three)
        for storage in three:
            table = storage.table("items")
            start = round_trips(*three)
            for number in range(10):
                assert table.read((number,)) is None
            assert round_trips(*three) - start == 10
        assert round_trips(*three) > before + 30  # `table` asks as well
        ended = []
        for storage in three[:2]:
            total = round_trips(*three)
            storage.close()
            assert round_trips(*three) >= total
            ended.append(round_trips(storage))
            total = round_trips(*three)
            assert third.table("items").read((1,)) is None
            assert round_trips(*three) > total
            assert [round_trips(one) for one in three[: len(ended)]] == ended


def test_owner_has_no_traffic(url: str, owner: StoreProcess) -> None:
    """A client that becomes the owner keeps its numbers, which no longer grow."""
    with connect(url) as storage:
        table = storage.table("items")
        table.upsert({"id": 1, "n": 1})
        assert round_trips(storage) > 0
        owner.kill()
        table.upsert({"id": 2, "n": 1})
        before = round_trips(storage)
        table.upsert({"id": 3, "n": 1})
        assert table.count() == 3
        assert round_trips(storage) == before > 0


def test_threads_that_come_and_go(url: str, owner: StoreProcess) -> None:
    """The connections of many threads, most of which are closed again, stay counted."""
    with connect(url) as storage:
        table = storage.table("items")
        before = round_trips(storage)
        for _ in range(3):
            with ThreadPoolExecutor(16) as threads:
                list(threads.map(lambda number: [table.read((number,)) for _ in range(50)], range(16)))
        assert round_trips(storage) - before >= 3 * 16 * 50


def test_read_only_storages_have_connections_of_their_own(url: str, owner: StoreProcess) -> None:
    with connect(url, read_only=True) as one, connect(url, read_only=True) as other:
        one.table("items")
        before = round_trips(other)
        assert one.table("items").read((1,)) is None
        assert round_trips(other) == before


def test_metrics_are_the_sum_of_all_storages(metrics: Metrics, url: str, owner: StoreProcess) -> None:
    """Those that are open, those that were closed, and those that were dropped."""

    def reported() -> int:
        return metrics.number("structable.round_trips")

    total = 0
    for way in ("close", "drop", "close"):
        storage = connect(url)
        storage.table("items").read((1,))
        assert reported() == total + round_trips(storage)
        total += round_trips(storage)
        if way == "close":
            storage.close()
        del storage
        gc.collect()
        assert reported() >= total
        total = reported()
    assert {key[0] for key in metrics.numbers("structable.round_trips", "store")} == {url}
    assert metrics.numbers("structable.bytes", "direction").keys() == {("sent",), ("received",)}
    assert min(metrics.numbers("structable.bytes", "direction").values()) > 100


def test_closing_many_storages_keeps_little(metrics: Metrics) -> None:
    """What ended is folded into one sum, also if nobody collects."""
    from structable.spi._store_metrics import metrics_of
    from structable.spi.authors import recording_meter

    for _ in range(50):
        connect("memory://many").close()
    meter = recording_meter()
    assert meter is not None
    assert len(metrics_of(meter).traffic("memory://many")._parts) <= 2
