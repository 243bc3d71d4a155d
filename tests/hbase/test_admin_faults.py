"""Faults between client and gateway while tables are created, changed and dropped: the reported outcome is true."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from structable.cli.commands.doctor import examine
from structable.spi import (
    Field,
    FindingLevel,
    Storage,
    StorageUnavailableError,
    TableAlreadyExistsError,
    TableSpecification,
    TransactionConflictError,
    connect,
)
from structable.testing.conformance.samples import Record

from .support.bank import quick
from .support.internals import drained
from .support.proxy import Fault, Proxy

STEP = int(os.environ.get("STRUCTABLE_TEST_ADMIN_FAULTS_STEP", "7"))
"""How many requests lie between two that go wrong; with 1 all of them do, one after the other, in some 3 minutes."""

FIELDS = [Field.long("id"), Field.string("name")]
BEFORE = TableSpecification("runs", FIELDS, ["id"])
WIDER = TableSpecification("runs", [*FIELDS, Field.int("number")], ["id"])
INDEXED = TableSpecification("runs", FIELDS, ["id"], ["name"])
ROWS: list[Record] = [{"id": number, "name": f"n{number % 3}"} for number in range(20)]


@dataclass(frozen=True)
class Operation:
    """A change of the catalog from `before` to `after`, None without the table; repeating it raises `again`."""

    work: Callable[[Storage], object]
    before: TableSpecification | None
    after: TableSpecification | None
    again: type[Exception] | None = None


OPERATIONS = {
    "create": Operation(lambda storage: storage.admin.create(BEFORE), None, BEFORE, TableAlreadyExistsError),
    "add_field": Operation(lambda storage: storage.admin.create_or_update(WIDER), BEFORE, WIDER),
    "add_index": Operation(lambda storage: storage.admin.create_or_update(INDEXED), BEFORE, INDEXED),
    "drop": Operation(lambda storage: storage.admin.drop("runs"), BEFORE, None),
}


def found(storage: Storage, rows: list[Record]) -> TableSpecification | None:
    """Return the table's specification, or None, after reading these rows from it in every way."""
    if not storage.admin.exists("runs"):
        return None
    spec = storage.admin.get_specification("runs")
    table = storage.table("runs")
    assert [{"id": row["id"], "name": row["name"]} for row in table.scan()] == rows
    for name in spec.indexes:
        assert len(list(table.scan_index(name, "n1"))) == (7 if rows else 0)
    return spec


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("name", OPERATIONS)
def test_fault_at_requests_of_an_admin_call(hbase_url: str, proxy: Proxy, name: str, fault: Fault) -> None:
    """The operation took effect if and only if it reports so; otherwise repeating it does."""
    operation = OPERATIONS[name]
    rows = ROWS if operation.before is not None else []
    options = {"housekeeping": 1000, "session_timeout": 1000, "timeout": 5}
    with connect(quick(hbase_url, **options)) as direct, connect(proxy.url(quick(hbase_url, **options))) as storage:
        for number in itertools.count(1 + list(Fault).index(fault) % STEP, STEP):
            direct.admin.drop("runs")
            if operation.before is not None:
                direct.admin.create(operation.before)
                direct.table("runs").upsert_many(ROWS)
                drained(direct)
            trap = proxy.trap(number, fault)
            release = threading.Timer(0.05, trap.release)
            release.start()
            where = f"request {number}, {fault.name}"
            try:
                operation.work(storage)
                done = True
            except (StorageUnavailableError, TransactionConflictError):
                done = False
            wanted = operation.after if done else operation.before
            assert found(direct, rows) == wanted, (where, trap.api)
            drained(storage)
            release.cancel()
            trap.release()
            assert found(direct, rows) == wanted, (where, trap.api)
            if done and operation.again is not None:
                with pytest.raises(operation.again):
                    operation.work(storage)
            else:
                operation.work(storage)
            assert found(direct, rows) == found(storage, rows) == operation.after, (where, trap.api)
            if not trap.sprung:
                break
        assert number > 10
    assert [one for one in examine(hbase_url) if one.level is FindingLevel.PROBLEM] == []
