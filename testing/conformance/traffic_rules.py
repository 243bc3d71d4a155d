"""Rules of `Storage.traffic`, for the stores that count."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from structable.spi import Storage, Traffic, connect

from .case import ConformanceCase
from .samples import ITEMS, item

_THREADS = 4
_COMMITS = 10


def _numbers(storage: Storage) -> tuple[int, int, int]:
    """Return the numbers of a storage, with 0 for those that are not counted; skip if there are none."""
    traffic = storage.traffic()
    if traffic is None:
        pytest.skip("the store does not count its traffic")
    assert isinstance(traffic, Traffic)
    for number in (traffic.round_trips, traffic.sent, traffic.received):
        assert number is None or (number.__class__ is int and number >= 0)
    return traffic.round_trips or 0, traffic.sent or 0, traffic.received or 0


class TrafficRules(ConformanceCase):
    """A store in another process has round trips; one in this process has none, and never gets any."""

    def test_traffic_grows_with_calls(self, storage: Storage) -> None:
        """A number of `traffic` never goes down; one that is not 0 grows with each commit and read."""
        storage.admin.create(ITEMS)
        table = storage.table(ITEMS.name)

        def commit() -> None:
            with storage.transaction() as transaction:
                transaction.table(ITEMS.name).upsert(item(2))

        calls: list[Callable[[], object]] = [
            lambda: table.upsert(item(1)),
            commit,
            lambda: table.read((1,)),
            lambda: list(table.scan()),
        ]
        before = _numbers(storage)
        for call in calls:
            call()
            after = _numbers(storage)
            for one, other in zip(before, after, strict=True):
                assert other > one if one else other >= one
            before = after

    def test_traffic_of_threads(self, storage: Storage) -> None:
        """`traffic` counts the calls of all threads: at least one round trip for each commit."""
        storage.admin.create(ITEMS)
        before = _numbers(storage)[0]

        def commit(thread: int) -> None:
            for number in range(_COMMITS):
                storage.table(ITEMS.name).upsert(item(thread * _COMMITS + number))

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(commit, range(_THREADS)))
        assert before == 0 or _numbers(storage)[0] - before >= _THREADS * _COMMITS

    def test_traffic_after_close(self, storage_url: str) -> None:
        """`traffic` of a closed storage stays what it was, plus the traffic of closing."""
        with connect(storage_url) as storage:
            storage.admin.create(ITEMS)
            before = _numbers(storage)
        after = _numbers(storage)
        assert all(one <= other for one, other in zip(before, after, strict=True))
        assert _numbers(storage) == after
