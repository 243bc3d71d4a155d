"""Scans in pages, which resume where they were after any loss of connection or gateway."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from structable.backends.hbase.thrift.errors import ConnectionLostError, TableMissingError
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import list_tables
from structable.backends.hbase.thrift.scanner import CellScan
from tests.hbase.support.fake_gateway import FakeGateway, FakeTables
from tests.hbase.support.gateway_calls import COLUMN, connect, fill, keys_of, once
from tests.hbase.support.internals import round_trips


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fault", ["before", "after", "mixed", "org.apache.hadoop.hbase.UnknownScannerException: 1"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_scan_goes_on_where_it_was(
    fake: FakeGateway, gateway: Gateway, reverse: bool, fault: str, number: int
) -> None:
    keys = fill(fake, 3000)
    gateway.call(list_tables())
    fake.fault = once(fault, "scannerGetList", number)
    pages = gateway.pages("t", keys[7], keys[2900], [COLUMN], before=11, reverse=reverse)
    expected = keys[7:2900]
    assert keys_of(pages) == (expected[::-1] if reverse else expected)
    assert fake.calls.count("scannerOpenWithScan") == 2
    assert fake.open_scanners <= 1  # of a lost connection


def test_a_scan_survives_its_gateway_and_sees_one_time() -> None:
    tables = FakeTables({b"t": {}})
    with FakeGateway(tables) as first, FakeGateway(tables) as other, closing(connect(first, other)) as gateway:
        keys = fill(first, 3000)
        pages = gateway.pages("t", b"", b"", [COLUMN], before=11)
        found = [next(pages), next(pages)]
        first.close()
        for key in keys:
            tables.put(b"t", key, COLUMN, b"later", 11)
        tables.put(b"t", b"zzz", COLUMN, b"later", 11)
        rows = [row for page in [*found, *pages] for row in page]
        assert rows == [(key, {COLUMN: (b"value of " + key, 10)}) for key in keys]
        assert other.open_scanners == 0


def test_a_scanner_that_its_gateway_forgot_is_opened_anew(fake: FakeGateway, gateway: Gateway) -> None:
    keys = fill(fake, 3000)
    pages = gateway.pages("t", b"", b"", [COLUMN], before=11)
    first = next(pages)
    fake.forget_scanners()
    assert [key for key, _ in first] + keys_of(pages) == keys


def test_an_idle_scan_is_reopened(fake: FakeGateway, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = fill(fake, 3000)
    pages = gateway.pages("t", b"", b"", [COLUMN], before=11)
    first = next(pages)
    fake.cut_all()
    time.sleep(0.05)
    assert [key for key, _ in first] + keys_of(pages) == keys


def test_a_scan_of_a_missing_table_and_one_that_always_fails_end(fake: FakeGateway) -> None:
    fill(fake, 300)
    with closing(connect(fake, timeout=0.5)) as gateway:
        with pytest.raises(TableMissingError):
            next(gateway.pages("missing", b"", b"", [COLUMN], before=11))
        fake.fault = lambda api, _number: "before" if api == "scannerGetList" else None
        with pytest.raises(ConnectionLostError):
            next(gateway.pages("t", b"", b"", [COLUMN], before=11))


def test_pages_start_small_grow_and_shrink_with_large_rows(fake: FakeGateway, gateway: Gateway) -> None:
    fill(fake, 3000)
    sizes = [len(page) for page in gateway.pages("t", b"", b"", [COLUMN], before=11)]
    assert sizes == [100, 400, 1000, 1000, 500]
    assert [len(page) for page in gateway.pages("t", b"", b"", [COLUMN], before=11, page_rows=40)][:2] == [40, 40]
    for key in list(fake.tables.tables[b"t"]):
        fake.tables.put(b"t", key, COLUMN, bytes(10_000), 10)
    assert all(len(page) <= 110 for page in gateway.pages("t", b"", b"", [COLUMN], before=11))


def test_an_early_end_closes_the_scanner(fake: FakeGateway, gateway: Gateway) -> None:
    fill(fake, 5000)
    for taken in (1, 2, 3):
        pages = gateway.pages("t", b"", b"", [COLUMN], before=11)
        for _ in range(taken):
            next(pages)
        pages.close()  # type: ignore[attr-defined]
        assert fake.open_scanners == 0
    assert fake.accepted == 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fault", ["before", "after", "mixed", "org.apache.hadoop.hbase.UnknownScannerException: 1"])
@pytest.mark.parametrize("call", [None, "scannerOpenWithScan", "scannerGetList"])
def test_first_pages_survive_a_loss(
    fake: FakeGateway, gateway: Gateway, reverse: bool, fault: str, call: str | None
) -> None:
    """The scans of many intervals are opened together and read together; after a loss, all of them anew."""
    keys = fill(fake, 300)
    gateway.call(list_tables())
    if call is not None:
        fake.fault = once(fault, call, 3)
    bounds = [(keys[10], keys[20]), (keys[50], keys[53]), (keys[60], keys[60] + b"\0"), (keys[299] + b"z", b"")]
    scans = [CellScan("t", begin, end, (COLUMN,), 11, reverse, 5, None) for begin, end in bounds]
    before = round_trips(gateway)
    found = gateway.first_pages(scans, 4)
    if call is None:
        assert round_trips(gateway) - before == 2
    expected = [keys[10:20], keys[50:53], keys[60:61], []]
    for page, rows in zip(found, expected, strict=True):
        some = [key for key, _ in page.rows]
        assert some[:4] == (rows[::-1] if reverse else rows)[:4]
        assert page.ended == (len(rows) < 4)
    assert fake.open_scanners <= 4  # of a lost connection
