"""Calls to the gateway: no reply is taken for another call's, and the reported outcome of a call is true."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from structable.backends.hbase.thrift.errors import (
    ConnectionLostError,
    ServerError,
    TableExistsError,
    TableMissingError,
)
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import (
    Family,
    ThriftCall,
    compare_and_put,
    create_table,
    delete_row,
    delete_table,
    disable_table,
    get_row,
    get_rows,
    increment,
    is_enabled,
    list_tables,
    put_rows,
    put_then_delete,
    regions,
    split_rows,
)
from tests.hbase.support.fake_gateway import FakeGateway
from tests.hbase.support.gateway_calls import COLUMN, ROW, connect, connect_to, counting, keys_of, once
from tests.hbase.support.internals import round_trips
from tests.hbase.support.shared import Place


@pytest.mark.parametrize("transport", ["buffered", "framed"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_calls_over_every_transport_and_protocol(transport: str, protocol: str) -> None:
    with (
        FakeGateway(framed=transport == "framed", compact=protocol == "compact") as fake,
        closing(connect(fake, transport=transport, protocol=protocol)) as gateway,
    ):
        check_calls(gateway, "t")


def test_calls_of_hbase(hbase_server: Place, hbase_prefix: str) -> None:
    with closing(connect_to(hbase_server)) as gateway:
        check_calls(gateway, f"{hbase_prefix}_t")


def check_calls(gateway: Gateway, table: str) -> None:
    call = gateway.call
    call(create_table(table, [Family("x", in_memory=True), Family("s", versions=1)]))
    with pytest.raises(TableExistsError):
        call(create_table(table, [Family("x")]))
    assert table in call(list_tables())
    assert call(is_enabled(table))
    region = call(regions(table))[0]
    assert (region.start, region.end) == (b"", b"")
    assert region.server

    wild = bytes(range(256))
    call(put_rows(table, {wild: {b"x:" + wild: wild, b"x:v": b"a"}, b"b": {b"x:v": b"", b"s:v": b"s"}}, 5))
    assert call(get_row(table, wild, [b"x"])) == {b"x:" + wild: (wild, 5), b"x:v": (b"a", 5)}
    assert call(get_row(table, wild, [b"x:v"])) == {b"x:v": (b"a", 5)}
    assert call(get_row(table, b"absent", [b"x"])) == {}
    found = call(get_rows(table, [b"b", b"absent", wild], [b"x:v", b"s"]))
    assert found == [(b"b", {b"x:v": (b"", 5), b"s:v": (b"s", 5)}), (wild, {b"x:v": (b"a", 5)})]
    assert call(get_rows(table, [wild], [b"x"], 5)) == []
    assert call(get_rows(table, [wild], [b"x:v"], 6)) == [(wild, {b"x:v": (b"a", 5)})]

    call(put_then_delete(table, {b"c": {b"x:v": b"c"}}, {b"b": [b"x:v"], b"c": [b"s:v"]}, 7))
    assert call(get_rows(table, [b"b", b"c"], [b"x"])) == [(b"c", {b"x:v": (b"c", 7)})]
    call(delete_row(table, b"c"))
    assert call(get_row(table, b"c", [b"x"])) == {}

    assert call(compare_and_put(table, b"cas", b"s:st", None, b"1"))
    assert not call(compare_and_put(table, b"cas", b"s:st", None, b"2"))
    assert not call(compare_and_put(table, b"cas", b"s:st", b"2", b"3"))
    assert call(compare_and_put(table, b"cas", b"s:st", b"1", b"2"))
    call(delete_row(table, b"cas"))
    assert call(compare_and_put(table, b"counter", b"x:n", None, (2**52).to_bytes(8, "big")))
    assert call(increment(table, b"counter", b"x:n", 3)) == 2**52 + 3

    numbers = gateway.flight([increment(table, b"counter", b"x:n", 1) for _ in range(1000)])
    assert numbers == [2**52 + 4 + number for number in range(1000)]
    check_scans(gateway, table)

    with pytest.raises(TableMissingError):
        call(get_row(f"{table}x", b"a", [b"x"]))
    call(disable_table(table))
    assert not call(is_enabled(table))
    call(delete_table(table))
    assert table not in call(list_tables())


def check_scans(gateway: Gateway, table: str) -> None:
    keys = [b"k%05d" % number for number in range(0, 3000, 2)] + [b"k02000\0", b"k\xff\xff", b"k\xff\xff\0"]
    keys.sort()
    for part in split_rows({key: {COLUMN: key} for key in keys}):
        gateway.call(put_rows(table, part, 20))
    gateway.call(put_rows(table, {key: {COLUMN: b"later"} for key in keys[:5]}, 30))
    ends = [
        b"k",
        b"k00000",
        b"k00001",
        b"k02000",
        b"k02000\0",
        b"k02000\0\0",
        b"k02998",
        b"k\xff\xff",
        b"k\xff\xff\0",
        b"l",
    ]
    for begin in ends:
        for end in ends:
            expected = [key for key in keys if begin <= key < end]
            forward = gateway.pages(table, begin, end, [COLUMN], before=21, page_rows=700)
            assert keys_of(forward) == expected, (begin, end)
            backward = gateway.pages(table, begin, end, [b"x"], before=21, page_rows=700, reverse=True)
            assert keys_of(backward) == expected[::-1], (begin, end)
    pages = list(gateway.pages(table, b"k", b"l", [COLUMN], before=21, page_rows=1000))
    assert [row for page in pages for row in page] == [(key, {COLUMN: (key, 20)}) for key in keys]
    assert next(iter(gateway.pages(table, b"k", b"", [COLUMN], before=None)))[0][1] == {COLUMN: (b"later", 30)}
    assert keys_of(gateway.pages(table, b"", b"k00004", [COLUMN], before=21, reverse=True))[:2] == keys[1::-1]
    one_by_one = gateway.pages(table, keys[0], keys[3], [COLUMN], before=21, reverse=True, page_rows=1)
    assert keys_of(one_by_one) == keys[2::-1]


def test_absent_rows_are_left_out_and_an_empty_flight_asks_nothing(gateway: Gateway) -> None:
    assert gateway.call(get_rows("t", [b"a"], [COLUMN])) == []
    trips = round_trips(gateway)
    assert gateway.flight([]) == []
    assert round_trips(gateway) == trips == 1


def test_rows_are_split_by_number_and_bytes() -> None:
    rows = {b"%04d" % number: {COLUMN: b"x"} for number in range(1200)}
    parts = list(split_rows(rows, limit_rows=500))
    assert [len(part) for part in parts] == [500, 500, 200]
    assert {key: cells for part in parts for key, cells in part.items()} == rows
    large = {b"a": {COLUMN: b"x"}, b"b": {COLUMN: bytes(3 << 20)}, b"c": {COLUMN: b"x"}}
    assert [list(part) for part in split_rows(large)] == [[b"a"], [b"b"], [b"c"]]
    assert list(split_rows({})) == []


@pytest.mark.parametrize("fault", ["mixed", "renamed", "garbage", "after"])
def test_a_reply_that_is_not_the_calls_own_is_never_taken(fake: FakeGateway, gateway: Gateway, fault: str) -> None:
    assert gateway.call(counting()) == 1
    fake.fault = once(fault, "atomicIncrement")
    with pytest.raises(ConnectionLostError) as caught:
        gateway.call(counting(), retry=False)
    assert caught.value.sent
    assert gateway.call(counting()) == 3  # on a new connection
    assert fake.accepted == 2


def test_a_late_reply_is_never_taken_for_another(fake: FakeGateway) -> None:
    with closing(connect(fake, timeout=0.3)) as gateway:
        assert gateway.call(compare_and_put("t", ROW, COLUMN, None, b"1"))
        fake.fault = once("late:0.6", "checkAndPut")
        with pytest.raises(ConnectionLostError, match=r"no answer within 0\.3 s"):
            gateway.call(compare_and_put("t", ROW, COLUMN, b"1", b"2"))
        assert not gateway.call(compare_and_put("t", ROW, COLUMN, b"7", b"8"))
        time.sleep(0.5)
        assert gateway.call(get_row("t", ROW, [COLUMN]))[COLUMN][0] == b"2"


def test_a_call_is_repeated_after_a_lost_answer_but_a_comparison_never(fake: FakeGateway, gateway: Gateway) -> None:
    assert gateway.call(counting()) == 1
    fake.fault = once("after", "atomicIncrement")
    assert gateway.call(counting()) == 3
    fake.fault = once("after", "checkAndPut")
    with pytest.raises(ConnectionLostError):
        gateway.call(compare_and_put("t", ROW, COLUMN, None, b"1"))
    assert gateway.call(get_row("t", ROW, [COLUMN]))[COLUMN][0] == b"1"
    assert fake.calls.count("checkAndPut") == 1


def test_transient_errors_are_waited_out(fake: FakeGateway, gateway: Gateway) -> None:
    fake.fault = lambda _api, number: "org.apache.hadoop.hbase.NotServingRegionException: r" if number < 3 else None
    assert gateway.call(counting()) == 1
    assert len(fake.calls) == 4
    fake.calls.clear()
    with pytest.raises(ServerError, match="NotServingRegion"):
        gateway.call(compare_and_put("t", ROW, COLUMN, None, b"1"))
    with pytest.raises(ServerError, match="NotServingRegion"):
        gateway.call(counting(), retry=False)


def test_flights_of_a_thousand_calls_keep_their_order(fake: FakeGateway, gateway: Gateway) -> None:
    trips = round_trips(gateway)
    assert gateway.flight([counting() for _ in range(1000)]) == list(range(1, 1001))
    assert round_trips(gateway) - trips < 25
    assert fake.accepted == 1
    trips = round_trips(gateway)
    gateway.flight([counting() for _ in range(100)])
    assert round_trips(gateway) - trips == 1


def test_a_flight_of_large_requests_and_replies_does_not_jam(fake: FakeGateway, gateway: Gateway) -> None:
    large = bytes(1 << 20)
    fake.tables.put(b"t", ROW, COLUMN, large, 1)
    calls: list[ThriftCall[object]] = []
    for number in range(20):
        calls += [put_rows("t", {b"%d" % number: {COLUMN: large}}, 1), get_row("t", ROW, [COLUMN])]
    results = gateway.flight(calls)
    assert results == [None, {COLUMN: (large, 1)}] * 20


def test_an_error_in_a_flight_is_raised_after_all_answers(fake: FakeGateway, gateway: Gateway) -> None:
    calls = [counting(), get_row("missing", ROW, [COLUMN]), counting()]
    with pytest.raises(TableMissingError):
        gateway.flight(calls)
    assert gateway.call(counting()) == 3
    assert fake.accepted == 1


def test_a_flight_is_repeated_on_a_new_connection(fake: FakeGateway, gateway: Gateway) -> None:
    gateway.call(list_tables())
    fake.fault = once("before", "atomicIncrement", 150)
    assert gateway.flight([counting() for _ in range(200)], retry=True) == list(range(150, 350))
