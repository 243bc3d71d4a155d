"""Tables are created, changed and dropped by several processes at once, and by some that are killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from structable.backends.hbase.txn import schema_lease
from structable.cli.commands.doctor import examine
from structable.spi import (
    Field,
    FindingLevel,
    Storage,
    TableAlreadyExistsError,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    col,
    connect,
)
from tests.hbase.support.other_process import Worker, killed_at
from tests.hbase.support.shared import Place, with_options
from tests.waiting import PROMPT, until

QUICK = "lease=0.5&session_timeout=2&late_writes=0&housekeeping=0.3"
LATE = "lease=0.5&session_timeout=2&late_writes=600&housekeeping=0.3"
"""The remains of a dead process stay for the whole test."""

FIELDS = [Field.long("id"), Field.long("amount"), Field.string("name")]
RUNS = TableSpecification("runs", FIELDS, ["id"])
INDEXED = TableSpecification("runs", FIELDS, ["id"], ["name"])
SPEC = (
    "TableSpecification({name!r}, [Field.long('id'), Field.long('amount'), Field.string('name')], ['id'], {indexes!r})"
)


def spec(name: str = "runs", *indexes: str) -> str:
    return SPEC.format(name=name, indexes=list(indexes))


@pytest.fixture
def url(hbase_url: str) -> str:
    return with_options(hbase_url, LATE)


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with connect(url) as storage:
        yield storage


@pytest.fixture
def workers(url: str) -> Iterator[tuple[Worker, Worker]]:
    with Worker(url) as one, Worker(url) as other:
        yield one, other


def at_once(workers: tuple[Worker, Worker], one: str, other: str) -> list[str]:
    """Return how each of two pieces of code ended, by the first word."""
    workers[0].send(one)
    workers[1].send(other)
    return [worker.result().partition(" ")[0] for worker in workers]


def require_sound(url: str) -> None:
    problems = [finding for finding in examine(url) if finding.level is FindingLevel.PROBLEM]
    assert problems == []


def fill(storage: Storage, count: int = 50) -> None:
    storage.table("runs").upsert_many({"id": n, "amount": n, "name": f"n{n % 7}"} for n in range(count))


def test_two_create_one_table(storage: Storage, workers: tuple[Worker, Worker], url: str) -> None:
    for number in range(8):
        create = f"storage.admin.create({spec(f't{number}')})"
        assert sorted(at_once(workers, create, create)) == ["TableAlreadyExistsError", "done"]
        storage.table(f"t{number}").insert({"id": 1})
    assert len(storage.admin.list()) == 8
    require_sound(url)


def test_two_create_different_tables(storage: Storage, workers: tuple[Worker, Worker], url: str) -> None:
    for number in range(5):
        one, other = (f"storage.admin.create({spec(f'{name}{number}')})" for name in "ab")
        assert at_once(workers, one, other) == ["done", "done"]
        storage.table(f"a{number}").insert({"id": 1})
        assert storage.table(f"b{number}").count() == 0
    require_sound(url)


def test_two_change_one_table(storage: Storage, workers: tuple[Worker, Worker], url: str) -> None:
    """Each of two changes keeps what the other adds; the same change succeeds for both."""
    same = f"storage.admin.create_or_update({spec('runs', 'name')})"
    assert at_once(workers, same, same) == ["done", "done"]
    fill(storage)
    for number in range(4):
        changes = [
            f"s = {spec('runs', 'name')}; s = TableSpecification('runs', [*s.fields, Field.int('{name}{number}')], "
            "['id'], ['name'])\nstorage.admin.create_or_update(s)"
            for name in ("x", "y")
        ]
        assert at_once(workers, changes[0], changes[1]) == ["done", "done"]
        added = {f"x{number}", f"y{number}"}
        assert set(storage.admin.get_specification("runs").field_names[-2:]) == added
        storage.table("runs").update({"id": 1, **dict.fromkeys(added, 7)})
    require_sound(url)


def test_a_drop_races_a_create(storage: Storage, workers: tuple[Worker, Worker], url: str) -> None:
    for _ in range(6):
        create = f"storage.admin.create_or_update({spec()})\nstorage.admin.exists('runs')"
        outcomes = at_once(workers, create, "storage.admin.drop('runs')")
        assert outcomes == ["done", "done"]
        if storage.admin.exists("runs"):
            assert storage.admin.list() == ["runs"]
            assert storage.table("runs").count() == 0
            fill(storage, 3)
            storage.admin.drop("runs")
        assert storage.admin.list() == []
    assert at_once(workers, "storage.admin.drop('runs')", "storage.admin.drop('runs')") == ["done", "done"]
    require_sound(url)


def test_a_drop_beside_writers_never_lets_old_rows_come_back(
    storage: Storage, workers: tuple[Worker, Worker], url: str
) -> None:
    """A write while the table is dropped and created again goes to the old table or the new one, never to both."""
    write = """
from structable.spi import StructableError
for n in range(40):
    try:
        with storage.transaction() as tx:
            table = tx.table("runs")
            generation = table.read((0,)).amount
            table.upsert({"id": n + 1, "amount": generation})
    except (StructableError, AttributeError):
        pass
"""
    storage.admin.create(RUNS)
    storage.table("runs").upsert({"id": 0, "amount": 0})
    for generation in range(1, 5):
        for worker in workers:
            worker.send(write)
        time.sleep(0.1)
        storage.admin.drop("runs")
        storage.admin.create(RUNS)
        assert storage.table("runs").count() == 0
        storage.table("runs").upsert({"id": 0, "amount": generation})
        for worker in workers:
            assert worker.result() == "done"
        assert {row.amount for row in storage.table("runs").scan()} == {generation}
    require_sound(url)


CREATE_POINTS = ["made", "after_readback", "before_commit", "after_commit", "before_finalise", "after_finalise"]
HELD = "\nimport time; time.sleep(60)"


def armed(point: str, body: str, nth: int = 1) -> str:
    if point == "made":
        return (
            "make = PrefixTables.create_space\n"
            "PrefixTables.create_space = lambda tables, space, **kind: (make(tables, space, **kind), die())\n"
            + body
            + HELD
        )
    return f"die_at({point!r}, {nth})\n{body}{HELD}"


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_process_killed_in_create(url: str, point: str) -> None:
    """Before the decision there is no table, and another call makes it; afterwards it is complete."""
    killed_at(url, armed(point, f"storage.admin.create({spec('runs', 'name')})"))
    committed = point not in CREATE_POINTS[:3]
    with connect(url) as storage:
        assert storage.admin.exists("runs") is committed
        started = time.monotonic()
        if committed:
            with pytest.raises(TableAlreadyExistsError):
                storage.admin.create(INDEXED)
        else:
            storage.admin.create(INDEXED)
        assert time.monotonic() - started < PROMPT
        assert storage.table("runs").count() == 0
        fill(storage)
        storage.admin.create(TableSpecification("other", FIELDS, ["id"]))
    require_sound(url)


@pytest.mark.parametrize("point", CREATE_POINTS[1:])
def test_a_process_killed_in_drop(url: str, point: str) -> None:
    """The table exists with its rows or not at all; created again after the crash, it is empty."""
    with connect(url) as storage:
        storage.admin.create(INDEXED)
        fill(storage)
    killed_at(url, armed(point, "storage.admin.drop('runs')"))
    with connect(url) as storage:
        if point in CREATE_POINTS[:3]:
            assert storage.table("runs").count() == 50
            storage.admin.drop("runs")
        assert storage.admin.list() == []
    killed_at(url, armed("before_finalise", f"storage.admin.create({spec('runs', 'name')})"))
    with connect(url) as storage:
        assert storage.table("runs").count() == 0
        assert list(storage.table("runs").scan_index("name", "n1")) == []
        storage.table("runs").insert({"id": 1})
    require_sound(url)


@pytest.mark.parametrize(
    ("point", "nth"),
    [("before_commit", 1), ("after_commit", 1), ("before_commit", 2), ("after_commit", 2), ("before_commit", 3)],
)
def test_a_process_killed_in_the_build_of_an_index(url: str, point: str, nth: int) -> None:
    """First it is published as being built, then filled, then opened; a repeated call completes it."""
    with connect(url) as storage:
        storage.admin.create(RUNS)
        fill(storage, 700)
    killed_at(url, armed(point, f"storage.admin.create_or_update({spec('runs', 'name')})", nth))
    with connect(url) as storage:
        assert storage.admin.get_specification("runs") == RUNS
        storage.run(lambda tx: tx.table("runs").upsert({"id": 1_000, "name": "n1"}))
        assert storage.table("runs").count(where=col("name") == "n1") == 101
        storage.admin.create_or_update(INDEXED)
        assert storage.table("runs").explain(where=col("name") == "n1").index == "name"
        assert storage.table("runs").count(where=col("name") == "n1") == 101
    require_sound(url)


def test_a_change_holds_for_every_transaction_that_begins_later(
    storage: Storage, workers: tuple[Worker, Worker]
) -> None:
    """In any process, in transactions and in the auto-commit view, at once."""
    storage.admin.create(RUNS)
    fill(storage, 3)
    for worker in workers:
        assert worker.run("view = storage.table('runs'); assert view.read((1,)).amount == 1") == "done"
    fields = list(FIELDS)
    for number in range(6):
        fields.append(Field.int(f"x{number}"))
        storage.admin.create_or_update(TableSpecification("runs", fields, ["id"]))
        sees = (
            f"with storage.transaction() as tx: assert tx.table('runs').read((1,))['x{number}'] is None\n"
            f"view.update({{'id': 1, 'x{number}': {number}}})\nassert view.read((1,))['x{number}'] == {number}"
        )
        reads = f"assert view.read((2,))['x{number}'] is None"
        assert workers[0].run(sees) == "done"
        assert workers[1].run(reads) == "done"
    storage.admin.drop("runs")
    gone = (
        "try: view.read((1,))\nexcept Exception as e: assert type(e).__name__ == 'TableNotFoundError', e\nelse: die()"
    )
    for worker in workers:
        assert worker.run(gone) == "done"
    storage.admin.create(RUNS)
    for worker in workers:
        assert worker.run("assert view.read((1,)) is None") == "done"


def test_a_change_holds_for_a_reader_that_never_pauses(
    storage: Storage, workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads do not check the table's schema each time, but never use one from before a finished change."""
    seconds = 0.5  # long enough to catch a change that does not wait
    monkeypatch.setattr(schema_lease, "LEASE_SECONDS", seconds)
    for worker in workers:
        code = f"import structable.backends.hbase.txn.schema_lease as lease; lease.LEASE_SECONDS = {seconds}"
        assert worker.run(code) == "done"
    storage.admin.create(RUNS)
    fill(storage, 3)
    changes = 4
    last = len(FIELDS) + changes
    for worker in workers:
        worker.send(
            "import time\nview, seen = storage.table('runs'), [(0.0, 0)]\n"
            f"while seen[-1][1] < {last}: seen.append((time.monotonic(), len(view.read((1,)))))"
        )
    fields = list(FIELDS)
    returned = []
    for number in range(changes):
        fields.append(Field.int(f"x{number}"))
        storage.admin.create_or_update(TableSpecification("runs", fields, ["id"]))
        returned.append((time.monotonic(), len(fields)))
    for worker in workers:
        assert worker.result() == "done"
        check = f"late = [(a, n) for a, n in seen for b, m in {returned!r} if a > b and n < m]; assert not late, late"
        assert worker.run(check) == "done"
        assert worker.run(f"assert len(seen) > {changes}") == "done"


def test_a_new_index_misses_no_row_written_meanwhile(
    storage: Storage, workers: tuple[Worker, Worker], url: str
) -> None:
    storage.admin.create(RUNS)
    fill(storage, 2_000)
    load = """
import random, time
until = time.monotonic() + 6
while time.monotonic() < until:
    def write(tx):
        table = tx.table("runs")
        for n in random.sample(range({first}, 4_000, 2), 5):
            if random.random() < 0.2:
                table.delete((n,))
            else:
                table.upsert({{"id": n, "name": f"n{{random.randrange(7)}}"}})
    storage.run(write, max_attempts=100)
"""
    for first, worker in enumerate(workers):
        worker.send(load.format(first=first))
    time.sleep(0.5)
    storage.admin.create_or_update(INDEXED)
    for worker in workers:
        assert worker.result() == "done"
    require_sound(url)
    view = storage.table("runs")
    assert view.explain(where=col("name") == "n3").index == "name"

    def compare(transaction: Transaction) -> None:
        table = transaction.table("runs")
        for number in range(7):
            name = f"n{number}"
            found = {row.id for row in table.scan_index("name", name)}
            assert found == {row.id for row in table.scan() if row.name == name}

    storage.run(compare, read_only=True)  # a session of two seconds may be lost on a busy machine


def test_dropped_tables_are_deleted_once_no_snapshot_needs_them(
    hbase_url: str, hbase_server: Place, hbase_prefix: str
) -> None:
    url = with_options(hbase_url, QUICK)

    def physical() -> set[str]:
        with closing(hbase_server.connection()) as connection:
            names = {name.decode() for name in connection.tables()}
        return {name for name in names if name.startswith(f"{hbase_prefix}_0")}

    with connect(url) as storage, connect(url) as other:
        storage.admin.create(RUNS)
        fill(storage)
        old = physical()
        assert len(old) == 1
        with other.transaction() as reader:
            assert reader.table("runs").count() == 50
            storage.admin.drop("runs")
            storage.admin.create(RUNS)
            time.sleep(7)  # some rounds of collecting, which begin anew every five seconds
            assert reader.table("runs").count() == 50
            assert old < physical()
        until(lambda: not old & physical())
        assert storage.table("runs").count() == 0
        fill(storage, 3)
        storage.admin.drop("runs")
    with connect(url):  # the dropping process has ended: the next one deletes it
        until(lambda: not physical())


def test_two_threads_of_one_process_contend(storage: Storage) -> None:
    """A conflict of two admin calls in one process is settled like one between processes."""
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for _ in range(4):
                storage.admin.create_or_update(TableSpecification(name, FIELDS, ["id"]))
                storage.table(name).upsert({"id": 1})
                storage.admin.drop(name)
        except TransactionConflictError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert storage.admin.list() == []
