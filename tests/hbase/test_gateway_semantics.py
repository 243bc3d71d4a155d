"""The properties of HBase and its Thrift gateway that transactions rely on, checked on the gateway directly."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.hbase.support.fixtures import StartHBase
from tests.hbase.support.shared import Place

if TYPE_CHECKING:
    import happybase

ROW = b"row"
LATE = 2**52  # beyond every clock
FAMILIES = {family: {"max_versions": 2**31 - 1} for family in ("x", "d")}


class Table:
    """One HBase table through the gateway's own calls, with strings in place of bytes."""

    def __init__(self, connection: "happybase.Connection", name: str) -> None:
        self.client = connection.client
        self.name = name.encode()
        connection.create_table(name, FAMILIES)

    def cas(self, column: str, expected: bytes | None, value: bytes, *, delete: bool = False) -> bool:
        mutation = _mutation(column, value, delete=delete)
        return bool(self.client.checkAndPut(self.name, ROW, column.encode(), expected, mutation, {}))

    def put(self, cells: Mapping[str, bytes], timestamp: int, *, delete: tuple[str, ...] = ()) -> None:
        """Put and delete cells of the row in one call, at one timestamp."""
        from Hbase_thrift import BatchMutation

        mutations = [_mutation(column, value) for column, value in cells.items()]
        mutations += [_mutation(column, delete=True) for column in delete]
        self.client.mutateRowsTs(self.name, [BatchMutation(row=ROW, mutations=mutations)], timestamp, {})

    def get(self, *columns: str, before: int | None = None) -> dict[str, tuple[bytes, int]]:
        """Return value and timestamp of the newest versions, of those older than `before`."""
        wanted = [column.encode() for column in columns]
        if before is None:
            found = self.client.getRowsWithColumns(self.name, [ROW], wanted, {})
        else:
            found = self.client.getRowsWithColumnsTs(self.name, [ROW], wanted, before, {})
        return _cells(found)

    def scan(self, *, before: int | None = None, only: str | None = None) -> list[dict[str, tuple[bytes, int]]]:
        """Return the rows of a scan, of versions older than `before`, that a filter lets through."""
        from Hbase_thrift import TScan

        scan = TScan(timestamp=before, filterString=None if only is None else only.encode())
        scanner = self.client.scannerOpenWithScan(self.name, scan, {})
        rows = [_cells([row]) for row in self.client.scannerGetList(scanner, 100)]
        self.client.scannerClose(scanner)
        return rows


def _mutation(column: str, value: bytes | None = None, *, delete: bool = False) -> object:
    from Hbase_thrift import Mutation

    return Mutation(column=column.encode(), value=value, isDelete=delete)


def _cells(rows: list[object]) -> dict[str, tuple[bytes, int]]:
    return {
        column.decode(): (cell.value, cell.timestamp)
        for row in rows
        for column, cell in row.columns.items()  # type: ignore[attr-defined]  # of the IDL
    }


@pytest.fixture
def table(hbase_server: Place, hbase_prefix: str) -> Iterator[Table]:
    with closing(hbase_server.connection()) as connection:
        yield Table(connection, f"{hbase_prefix}_t")


def test_expected_absent_holds_once(table: Table) -> None:
    assert table.cas("x:st", None, b"first")
    assert not table.cas("x:st", None, b"second")
    assert not table.cas("x:st", b"other", b"second")
    assert table.get("x:st")["x:st"][0] == b"first"
    assert table.cas("x:st", b"first", b"second")
    assert table.get("x:st")["x:st"][0] == b"second"


@pytest.mark.parametrize("expected", [None, b""])
def test_empty_value_counts_as_absent(table: Table, expected: bytes | None) -> None:
    table.put({"x:st": b""}, 10)
    assert table.cas("x:st", expected, b"value")


def test_delete_is_ignored_in_a_conditional_put(table: Table) -> None:
    table.cas("x:st", None, b"first")
    assert table.cas("x:st", b"first", b"second", delete=True)
    assert table.get("x:st")["x:st"][0] == b"second"


def test_upper_bound_of_a_read_is_exclusive(table: Table) -> None:
    table.put({"d:a": b"old"}, 10)
    table.put({"d:a": b"new"}, 20)
    assert table.get("d:a", before=10) == {}
    for before, found in ((11, (b"old", 10)), (20, (b"old", 10)), (21, (b"new", 20))):
        assert table.get("d:a", before=before) == {"d:a": found}
        assert table.scan(before=before) == [{"d:a": found}]


def test_one_call_puts_before_it_deletes(table: Table) -> None:
    table.put({"x:i": b"intent"}, 10)
    table.put({"x:v": b"value"}, 20, delete=("x:i",))
    assert table.get("x") == {"x:v": (b"value", 20)}
    table.put({"x:v": b"never seen"}, 30, delete=("x:v",))
    assert table.get("x") == {}


def test_tombstone_masks_later_puts_at_an_older_timestamp(table: Table) -> None:
    table.put({}, 30, delete=("d:a",))
    table.put({"d:a": b"older"}, 25)
    table.put({"d:a": b"same"}, 30)
    assert table.get("d:a") == {}
    table.put({"d:a": b"newer"}, 31)
    assert table.get("d:a") == {"d:a": (b"newer", 31)}


def test_tombstone_masks_nothing_after_a_major_compaction(hbase_server: Place, table: Table) -> None:
    if hbase_server.server is None:
        pytest.skip("the gateway itself cannot compact for certain")
    table.put({}, 30, delete=("d:a",))
    hbase_server.server.compact(table.name.decode())
    table.put({"d:a": b"older"}, 25)
    assert table.get("d:a") == {"d:a": (b"older", 25)}


def test_conditional_put_is_at_least_as_new_as_the_matched_cell(table: Table) -> None:
    table.put({"x:st": b"first"}, LATE)
    assert table.cas("x:st", b"first", b"second")
    assert table.get("x:st") == {"x:st": (b"second", LATE)}


def test_read_gives_one_version_of_a_column(table: Table) -> None:
    for timestamp in (10, 20, 30):
        table.put({"d:a": b"%d" % timestamp, "x:m": b"%d" % timestamp}, timestamp)
    newest = {"d:a": (b"30", 30), "x:m": (b"30", 30)}
    assert table.scan() == [newest]
    assert table.get("d", "x") == newest


def test_name_of_a_family_selects_all_its_columns(table: Table) -> None:
    table.put({"x:m": b"1", "x:v": b"2", "d:a": b"3"}, 10)
    assert set(table.get("x")) == {"x:m", "x:v"}
    assert set(table.get("x", "d:a")) == {"x:m", "x:v", "d:a"}


def test_timestamps_filter_lets_only_exactly_those_through(table: Table) -> None:
    for timestamp in (10, 20, 30):
        table.put({"d:a": b"%d" % timestamp}, timestamp)
    table.put({"x:m": b"25"}, 25)
    assert table.scan(only="TimestampsFilter (20)") == [{"d:a": (b"20", 20)}]
    assert table.scan(only="TimestampsFilter (10, 25)") == [{"d:a": (b"10", 10), "x:m": (b"25", 25)}]
    assert table.scan(only="TimestampsFilter (15)") == []


def test_counter_continues_from_the_value_of_a_conditional_put(table: Table) -> None:
    assert table.cas("x:ts", None, struct.pack(">q", LATE))
    assert table.client.atomicIncrement(table.name, ROW, b"x:ts", 1) == LATE + 1
    assert table.client.atomicIncrement(table.name, ROW, b"x:ts", 5) == LATE + 6
    assert table.get("x:ts")["x:ts"][0] == struct.pack(">q", LATE + 6)


@pytest.mark.long
def test_counter_survives_a_restart_and_a_kill(start_hbase: StartHBase) -> None:
    server = start_hbase()
    with closing(server.gateway.connection()) as connection:
        table = Table(connection, "counted")
        assert table.cas("x:ts", None, struct.pack(">q", LATE))
        assert table.client.atomicIncrement(table.name, ROW, b"x:ts", 1) == LATE + 1
    server.restart()
    with closing(server.gateway.connection()) as connection:
        assert connection.client.atomicIncrement(b"counted", ROW, b"x:ts", 1) == LATE + 2
    server.kill()
    server.start()
    with closing(server.gateway.connection()) as connection:
        assert connection.client.atomicIncrement(b"counted", ROW, b"x:ts", 1) == LATE + 3
