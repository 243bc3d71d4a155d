"""A storage with `read_only=True` leaves every cell as it is, and notices when versions it reads were removed."""

from __future__ import annotations

from contextlib import closing

import pytest

from structable.backends.hbase.layout import Layout
from structable.backends.hbase.thrift.gateway import Gateway
from structable.backends.hbase.thrift.requests import list_tables
from structable.backends.ordered.schema.catalog import list_garbage
from structable.spi import (
    Range,
    StorageUrl,
    StoreNotFoundError,
    TransactionClosedError,
    TransactionConflictError,
    connect,
)
from tests.servers.read_only import TABLE, fill, read_everything
from tests.waiting import until

from .support.bank import quick
from .support.internals import collect_garbage, drained, engine_of

Everything = dict[tuple[str, bytes], object]


def cells_of(url: str) -> Everything:
    """Return all cells of all tables of a prefix, read past the store."""
    parsed = StorageUrl.parse(url)
    host, _, port = parsed.hosts.partition(",")[0].rpartition(":")
    gateway = Gateway([(host, int(port))])
    try:
        prefix = Layout(parsed.path.removeprefix("/")).prefix
        return {
            (table, row): cells
            for table in gateway.call(list_tables())
            if table.startswith(f"{prefix}_")
            for page in gateway.pages(table, b"", b"", [], before=None)
            for row, cells in page
        }
    finally:
        gateway.close()


def test_nothing_is_written(hbase_url: str) -> None:
    """No session, no heartbeat, no plan, no list: every cell of the prefix is as it was."""
    url = quick(hbase_url)
    with connect(url) as storage:
        fill(storage)
        drained(storage)
    before = cells_of(url)
    assert before
    read_everything(url)
    assert cells_of(url) == before


@pytest.mark.parametrize("option", [{"create": False}, {"read_only": True}])
def test_nothing_is_made(hbase_url: str, option: dict[str, bool]) -> None:
    """A mistyped prefix makes no table."""
    with pytest.raises(StoreNotFoundError, match="prefix"):
        connect(hbase_url, **option)
    assert cells_of(hbase_url) == {}
    with connect(hbase_url):
        assert cells_of(hbase_url)


@pytest.fixture
def written(hbase_url: str) -> str:
    url = quick(hbase_url, late_writes=0)
    with connect(url) as storage:
        storage.admin.create(TABLE)
        storage.table("t").upsert_many({"k": k, "s": "old", "n": k} for k in range(10))
    return url


def replace_and_collect(url: str) -> None:
    """Write every row again, and remove the replaced versions."""
    with connect(url) as storage:
        storage.table("t").update_all(Range.all(), {"s": "new"})
        drained(storage)
        collect_garbage(storage)
        collect_garbage(storage)  # collects the transactions just finalised


def test_versions_that_were_removed_are_missed(written: str) -> None:
    """A snapshot whose versions were removed since is a conflict, in every way to read; never another state."""
    with connect(written, read_only=True) as storage:
        transaction = storage.transaction()
        table = transaction.table("t")
        scan = table.scan()
        other = storage.transaction()
        seen_by_other = other.table("t")
        with storage.plan_scan("t") as plan:
            assert table.count() == 10
            replace_and_collect(written)
            with pytest.raises(TransactionConflictError, match="too old"):
                table.read((1,))
            with pytest.raises(TransactionConflictError, match="too old"):
                list(seen_by_other.scan(limit=1))
            other.rollback()
            with pytest.raises(TransactionClosedError, match="have been removed"):
                list(storage.read_split(plan.splits[0]))
        transaction.rollback()
        with pytest.raises((TransactionConflictError, TransactionClosedError)):
            list(scan)
        assert [row["s"] for row in storage.table("t").scan()] == ["new"] * 10


def test_snapshot_outlives_the_removal_of_older_versions(written: str) -> None:
    """Versions removed before a snapshot began do not end it."""
    replace_and_collect(written)
    with connect(written, read_only=True) as storage, storage.transaction() as transaction:
        assert [row["s"] for row in transaction.table("t").scan()] == ["new"] * 10
        assert transaction.table("t").read((1,)) is not None


def test_index_that_was_dropped(written: str) -> None:
    """Removed entries of a dropped index are not taken for absent rows."""
    with connect(written, read_only=True) as storage:
        with connect(written) as writer:
            transaction = storage.transaction()
            table = transaction.table("t")
            assert table.read((1,)) is not None
            writer.admin.drop_index("t", "s")
            engine = engine_of(writer)
            with closing(engine.begin(True)) as snapshot:
                left = list_garbage(snapshot)
            # The writer's own thread does so, too; one of the two finds nothing.

            def is_gone() -> bool:
                collect_garbage(writer)
                return all(engine.discard(one, lambda: False) for one in left)

            until(is_gone)
        with pytest.raises(TransactionConflictError, match="too old"):
            list(table.scan_index("s", "old"))
        transaction.rollback()
