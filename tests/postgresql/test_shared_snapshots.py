"""Shared snapshots: one connection, savepoints that keep it usable, locks, and its loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psycopg
import pytest

from structable.spi import (
    Field,
    Range,
    ScanPlan,
    Storage,
    StructableError,
    TableNotFoundError,
    TableSpecification,
    TransactionClosedError,
    TransactionConflictError,
    col,
    connect,
)
from structable.testing.conformance.samples import ITEMS, item
from tests.postgresql.support.shared import Schema
from tests.waiting import until

NAMES = ["items", "other", "third"]


@pytest.fixture
def storage(postgresql_schema: Schema) -> Iterator[Storage]:
    with connect(postgresql_schema.url, ddl_timeout=0.3, application_name=postgresql_schema.name) as storage:
        for name in NAMES:
            storage.admin.create(ITEMS.evolve(name=name))
            storage.table(name).upsert_many(item(number, n=0) for number in range(10))
        yield storage


@pytest.fixture
def server(postgresql_schema: Schema) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        yield connection


def transactions(server: psycopg.Connection, schema: Schema) -> int:
    query = "select count(*) from pg_stat_activity where application_name = %s and xact_start is not null"
    row = server.execute(query, [schema.name]).fetchone()
    assert row is not None
    return int(row[0])


def rows_of(storage: Storage, plan: ScanPlan) -> int:
    with plan:
        return sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split))


def test_plans_of_a_snapshot_share_a_connection(
    storage: Storage, server: psycopg.Connection, postgresql_schema: Schema
) -> None:
    """However many plans there are, and none is in a transaction once all are closed, also of fifty queries."""
    assert transactions(server, postgresql_schema) == 0
    shared = storage.share_snapshot()
    assert transactions(server, postgresql_schema) == 0
    plans = [shared.plan_scan(NAMES[number % 3], splits=3) for number in range(12)]
    assert transactions(server, postgresql_schema) == 1
    shared.close()
    for plan in plans:
        assert transactions(server, postgresql_schema) == 1
        plan.close()
    assert transactions(server, postgresql_schema) == 0
    for _ in range(50):
        with storage.share_snapshot() as shared:
            plans = [shared.plan_scan(name) for name in NAMES]  # those of the last snapshot are collected
        assert transactions(server, postgresql_schema) <= 1
    plan = plans.pop()
    plans.clear()
    plan.close()
    assert transactions(server, postgresql_schema) == 0
    for name in NAMES:
        storage.admin.drop(name)


def test_the_only_connection_of_a_pool_is_enough(postgresql_schema: Schema, storage: Storage) -> None:
    with connect(postgresql_schema.url, pool_size=1, pool_timeout=0.5) as small:
        with small.share_snapshot() as shared, ExitStack() as stack:
            plans = [stack.enter_context(shared.plan_scan(name)) for name in NAMES]
            with pytest.raises(TableNotFoundError):
                shared.plan_scan("missing")
            assert [rows_of(small, plan) for plan in plans] == [10] * 3
        assert small.table("items").count() == 10


def test_planned_tables_are_locked_and_others_are_not(storage: Storage) -> None:
    """A change of a planned table waits, and of another one passes: that is the conflict, and leaves the snapshot."""
    with storage.share_snapshot() as shared:
        plan = shared.plan_scan("items")
        storage.admin.create_or_update(ITEMS.evolve(name="other", fields=[*ITEMS.fields, Field.int("added")]))
        for _ in range(3):
            with pytest.raises(TransactionConflictError, match="changed"):
                shared.plan_scan("other")
        assert rows_of(storage, shared.plan_scan("third")) == 10
        for name in ("items", "third"):
            with pytest.raises(StructableError, match="ddl_timeout"):
                storage.admin.drop(name)
        assert rows_of(storage, plan) == 10
    for name in NAMES:
        storage.admin.drop(name)


def test_refused_tables_are_not_locked(storage: Storage) -> None:
    """The lock of a plan that was refused is given back."""
    with storage.share_snapshot() as shared, shared.plan_scan("items"):
        with pytest.raises(StructableError):
            shared.plan_scan("other", where=col("n") == "x")
        storage.admin.create_or_update(ITEMS.evolve(name="other", fields=[*ITEMS.fields, Field.int("added")]))
        with pytest.raises(TransactionConflictError):
            shared.plan_scan("other")
        storage.admin.drop("other")
        with pytest.raises(TransactionConflictError):
            shared.plan_scan("other")


@pytest.mark.parametrize("commits", [False, True])
def test_a_change_in_progress_is_waited_for(
    storage: Storage, server: psycopg.Connection, postgresql_schema: Schema, commits: bool
) -> None:
    """A plan waits for a change of its table, and then is a conflict if that committed, and none if it did not."""
    schema, outcome = f'"{postgresql_schema.name}"', list[object]()
    waiting = "select count(*) from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
    with storage.share_snapshot() as shared, shared.plan_scan("items"):

        def plan() -> None:
            try:
                outcome.append(rows_of(storage, shared.plan_scan("other")))
            except StructableError as error:
                outcome.append(type(error))

        thread = threading.Thread(target=plan)
        with psycopg.connect(postgresql_schema.conninfo) as other:
            other.execute(f"lock table {schema}.other in access exclusive mode".encode())
            thread.start()
            until(lambda: server.execute(waiting, [postgresql_schema.name]).fetchone() == (1,))
            if commits:
                version = f"select id, version from {schema}._structable_tables where name = 'other'"
                for number, version_number in other.execute(version.encode()).fetchall():
                    other.execute(f"drop function {schema}._version_{number:x}_{version_number:x}()".encode())
            else:
                other.rollback()
        thread.join()
        assert outcome == ([TransactionConflictError] if commits else [10])
        assert rows_of(storage, shared.plan_scan("items")) == 10


def test_lost_connection_ends_the_shared_snapshot(
    storage: Storage, server: psycopg.Connection, postgresql_schema: Schema
) -> None:
    """Its plans are lost, and further ones are refused, not made of a younger state; a new snapshot is fine."""
    shared = storage.share_snapshot()
    plan = shared.plan_scan("items")
    server.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where application_name = %s and state = 'idle in transaction'",
        [postgresql_schema.name],
    )
    for _ in range(3):
        with pytest.raises(StructableError):
            shared.plan_scan("other")
    with pytest.raises(TransactionClosedError):
        list(storage.read_split(plan.splits[0]))
    shared.close()
    plan.close()
    assert transactions(server, postgresql_schema) == 0
    with storage.share_snapshot() as again:
        assert rows_of(storage, again.plan_scan("other")) == 10


def test_many_threads_plan_close_and_change(
    storage: Storage, server: psycopg.Connection, postgresql_schema: Schema
) -> None:
    """Snapshots of many threads beside changes of tables: a plan is of its state or a conflict, and nothing is left."""
    failures: list[BaseException] = []
    ended = time.monotonic() + 3.0

    def query(number: int) -> None:
        while time.monotonic() < ended:
            try:
                with storage.share_snapshot() as shared, ExitStack() as stack:
                    plans = []
                    for name in [NAMES[(number + place) % 3] for place in range(4)]:
                        try:
                            plans.append(stack.enter_context(shared.plan_scan(name, columns=["n"])))
                        except TransactionConflictError:
                            continue
                    seen = {
                        value
                        for plan in plans
                        for split in plan.splits
                        for batch in storage.read_split(split)
                        for value in batch["n"].to_pylist()
                    }
                    assert len(seen) <= 1, seen
            except BaseException as error:
                failures.append(error)

    def write() -> None:
        number = 0
        while time.monotonic() < ended:
            number += 1

            with suppress(TransactionConflictError), storage.transaction() as transaction:
                for name in NAMES:
                    transaction.table(name).update_all(Range.all(), {"n": number})

    def change() -> None:
        number = 0
        with connect(postgresql_schema.url, ddl_timeout=0.2) as other:
            while time.monotonic() < ended:
                number += 1
                spec: TableSpecification = other.admin.get_specification("third")
                try:
                    other.admin.create_or_update(spec.evolve(fields=[*spec.fields, Field.int(f"f{number}")]))
                except StructableError:
                    continue

    threads = [threading.Thread(target=query, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=write), threading.Thread(target=change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert transactions(server, postgresql_schema) == 0


def test_tables_without_feeds_are_planned_though_a_commit_does_not_end(
    storage: Storage, postgresql_schema: Schema
) -> None:
    """Where no snapshot is exactly a version, tables without a feed are planned, and those with one refused."""
    storage.admin.create(ITEMS.evolve(name="fed", options={"changelog-producer": "lookup"}))
    with psycopg.connect(postgresql_schema.conninfo) as holder:
        holder.execute(f'lock table "{postgresql_schema.name}"._structable_gate in row exclusive mode'.encode())
        with storage.share_snapshot() as shared:
            assert rows_of(storage, shared.plan_scan("items")) == 10
            with pytest.raises(TransactionConflictError, match="plan this table first"):
                shared.plan_scan("fed")
            assert rows_of(storage, shared.plan_scan("other")) == 10
    with storage.share_snapshot() as shared:
        assert rows_of(storage, shared.plan_scan("items")) == 10
        with shared.plan_scan("fed") as plan:
            assert plan.position is not None
