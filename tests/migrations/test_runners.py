"""Runners: one at a time, taken over when its beats stand still, paused and interrupted; programs that live."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from structable.migrations import (
    LiveClientsError,
    MigrationError,
    MigrationLockedError,
    Migrator,
    NotReadyError,
    Schema,
    SchemaAheadError,
    SchemaBehindError,
    State,
    Throttle,
    backfill,
    batches,
    part_filler,
    schema_calls,
)
from structable.migrations.fills import Fill
from structable.migrations.history import History
from structable.migrations.lease import Clocks, RunnerLease
from structable.migrations.parts import Part
from structable.migrations.schema_calls import Report, SchemaCalls
from structable.migrations.throttle import BatchSize, Pace
from structable.spi import (
    CommitOutcomeUnknownError,
    Derived,
    Field,
    InvalidFieldError,
    Renamed,
    Row,
    SchemaIncompatibleError,
    Storage,
    StorageUnavailableError,
    TableAdmin,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    col,
)
from tests.migrations.conftest import every_store
from tests.migrations.support.clocks import fast
from tests.migrations.support.folders import Scripts, put_runs

FILL = 'op.add_field("runs", op.long("n"), derive=op.json_field(("n",), "long"), source="payload")'
THIRDS = [Part(None, '["app1",0]'), Part('["app1",0]', '["app2",0]'), Part('["app2",0]', None)]


@pytest.fixture
def migrator(store: Storage, scripts: Scripts) -> Migrator:
    put_runs(store, 200)
    scripts.add("n", up=FILL, contract='op.drop_field("runs", "attempts")')
    return Migrator(store, scripts.path, monotonic=fast)


def held(store: Storage, *, beats: bool) -> RunnerLease:
    """Acquire the lease, as a runner that lives or that was killed."""
    history = History(store)
    history.create()
    lease = RunnerLease(history, Clocks.given(None, fast))
    lease.acquire()
    if not beats:
        lease._ended.set()
    return lease


def test_a_living_runner_locks_others_out(store: Storage, migrator: Migrator) -> None:
    lease = held(store, beats=True)
    with pytest.raises(MigrationLockedError) as raised:
        migrator.up()
    assert raised.value.owner == lease.owner
    lease.release()
    migrator.up()


def test_a_silent_runner_is_replaced_and_learns_it(store: Storage, migrator: Migrator) -> None:
    lease = held(store, beats=False)
    migrator.up()
    assert migrator.status()[0].state is State.READY
    with pytest.raises(MigrationError), store.transaction() as tx:
        lease.hold(tx)
    lease.release()  # nothing


def test_a_takeover_conflicts_with_a_transaction_that_holds_the_lease(store: Storage) -> None:
    lease = held(store, beats=False)
    tx = store.transaction()
    lease.hold(tx)
    held(store, beats=False)
    with pytest.raises(TransactionConflictError):
        tx.commit()


def test_a_runner_pauses_on_demand_and_goes_on(
    store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    do_batch = batches.do_batch

    def one(*args: object, **options: object) -> object:
        nonlocal count
        count += 1
        if count == 2:
            assert migrator.pause() == 1
        return do_batch(*args, **{**options, "rows": 10})  # type: ignore[arg-type]

    monkeypatch.setattr(batches, "do_batch", one)
    with pytest.raises(MigrationError, match="paused or replaced"):
        migrator.up()
    [paused] = migrator.status()
    assert (paused.state, paused.resumes) == (State.PAUSED, State.FILLING)
    migrator.resume()
    [ready] = migrator.status()
    assert (ready.state, ready.seen) == (State.READY, 200)


def test_the_status_names_the_runner_that_took_over(
    store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str | None] = []

    def look(*args: object, **options: object) -> None:
        found.append(migrator.status()[0].runner)
        raise MigrationLockedError("another:2", dt.datetime.now(dt.UTC))  # as a kill, it records nothing

    monkeypatch.setattr(batches, "do_batch", look)
    for owner in ("first:1", "second:1"):
        monkeypatch.setattr("structable.migrations.lease.owner_name", lambda owner=owner: owner)
        with pytest.raises(MigrationLockedError):
            migrator.up(throttle=Throttle(threads=1))
    assert found == ["first:1", "second:1"]


def test_an_interrupted_runner_is_paused(store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batches, "do_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            migrator.up()
    [paused] = migrator.status()
    assert (paused.state, paused.error) == (State.PAUSED, "interrupted")
    migrator.resume(throttle=Throttle(threads=3))
    assert store.table("runs").count(where=col("n") == 7) == 1


def test_a_store_that_is_away_for_good_pauses_the_revision(
    store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object, **options: object) -> None:
        raise StorageUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(batches, "do_batch", away)
        patch.setattr(part_filler, "_UNAVAILABLE", 0.2)
        with pytest.raises(StorageUnavailableError):
            migrator.up()
    assert migrator.status()[0].error == "away"
    migrator.resume()


def test_conflicts_halve_batches_and_end_a_fill_that_always_loses(
    store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def conflicting(*args: object, rows: int, **options: object) -> None:
        sizes.append(rows)
        raise TransactionConflictError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(batches, "do_batch", conflicting)
        with pytest.raises(MigrationError, match="conflicted 5 times in a row"):
            migrator.up(throttle=Throttle(threads=1, max_conflicts=5))
    assert sizes == [100, 50, 25, 12, 6]


def test_a_runner_that_is_stopped_begins_nothing_more(
    store: Storage, migrator: Migrator, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts.add("two", up='op.add_field("runs", op.int("one"))\nop.add_field("runs", op.int("two"))')
    scripts.add("last", up='op.add_field("runs", op.int("three"))')
    add_field = SchemaCalls.add_field

    def stopping(self: SchemaCalls, table: str, field: Field, rule: Derived | Renamed | None = None) -> None:
        add_field(self, table, field, rule)
        if field.name == "one":
            self._scope.ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(SchemaCalls, "add_field", stopping)
        with pytest.raises(MigrationError, match="stopped"):
            migrator.up()
    assert [one.state for one in migrator.status()] == [State.READY, State.PAUSED, State.PENDING]
    assert "two" not in store.admin.get_specification("runs")
    migrator.resume()
    assert "three" in store.admin.get_specification("runs")


@every_store
def test_a_fill_in_the_background_by_threads_beside_a_writer(store: Storage, scripts: Scripts) -> None:
    """Rows that a program writes meanwhile keep what it wrote, and those that it deletes stay away."""
    put_runs(store, 400)
    scripts.add("n", up=FILL)
    migrator = Migrator(store, scripts.path)
    background = migrator.up(background=True, throttle=Throttle(threads=2, rows_per_second=2_000))
    assert background is not None
    written = 0
    while not background.done:
        number = written % 400
        key = (f"app{number % 3}", number)
        if number % 7 == 0:
            store.table("runs").delete(key)
        else:
            row = {"app": key[0], "run": key[1], "payload": f'{{"n": {1000 + number}}}'}
            store.run(lambda tx, row=row: tx.table("runs").upsert(row))  # type: ignore[misc]
        written += 1
    assert background.wait()
    assert written > 5
    with store.table("runs").scan() as rows:
        found = {row.run: row.n for row in rows}
    for number in range(min(written, 400)):
        assert found.get(number, "deleted") == ("deleted" if number % 7 == 0 else 1000 + number)


def test_parts_are_filled_by_a_mapper(store: Storage, scripts: Scripts) -> None:
    put_runs(store, 50)
    scripts.add("n", up=FILL)
    parts: list[int] = []

    def mapper(function: object, numbers: Iterable[int]) -> Iterable[int]:
        for number in numbers:
            parts.append(function(number))  # type: ignore[operator]
        return parts

    Migrator(store, scripts.path, parallel=mapper).up()
    assert parts
    scripts.add("low", up='op.add_field("runs", op.string("low"), derive=op.lower(), source="state")')
    with pytest.raises(MigrationError, match="the mapper did not fill"):
        Migrator(store, scripts.path, parallel=lambda function, numbers: []).up()
    Migrator(store, scripts.path).resume()
    assert store.table("runs").count(where=col("low") == "done") == 25


@pytest.mark.parametrize("store", ["leveldb"], indirect=True)
def test_parts_are_filled_by_forks_of_the_runner(store: Storage, scripts: Scripts) -> None:
    """A fork cannot use the connection of its parent, so it opens its own."""
    put_runs(store, 5_000)
    scripts.add("n", up=FILL)

    def mapper(function: Callable[[int], int], numbers: Iterable[int]) -> Iterable[int]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(function, numbers)

    Migrator(store, scripts.path, parallel=mapper).up()
    assert store.table("runs").count(where=col("n") == 4_998) == 1


def test_a_rate_is_kept(store: Storage, migrator: Migrator) -> None:
    begun = time.monotonic()
    migrator.up(throttle=Throttle(rows_per_second=1_000))
    assert time.monotonic() - begun >= 0.09  # the first hundred rows are paid for before the second


def batch_sizes(
    migrator: Migrator, monkeypatch: pytest.MonkeyPatch, rate: float | None, opening: float = 0.0
) -> list[int]:
    """Return how many rows each batch asks for when each takes two openings."""
    now, asked = 0.0, []
    transform = batches.transform

    def timed(tx: Transaction, fill: Fill, task: Row, rows: int) -> object:
        nonlocal now
        asked.append(rows)
        now += opening
        return transform(tx, fill, task, rows)

    def opened(*args: object) -> None:
        nonlocal now
        now += opening

    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(backfill, "cut", lambda *given: [Part(None, None)])
    monkeypatch.setattr(batches, "check_epoch", opened)
    monkeypatch.setattr(batches, "transform", timed)
    monkeypatch.setattr(batches, "time", clock)
    monkeypatch.setattr(part_filler, "time", clock)
    monkeypatch.setattr(Pace, "spend", lambda self, rows, ended: None)
    migrator.up(throttle=Throttle(rows_per_second=rate))
    return asked


@pytest.mark.parametrize(("rate", "sizes"), [(600, {30}), (5, {1}), (1e9, {100, 200})])
def test_a_rate_is_spread_over_time(
    migrator: Migrator, monkeypatch: pytest.MonkeyPatch, rate: float, sizes: set[int]
) -> None:
    """By batches of the rows of 50 ms."""
    assert {*batch_sizes(migrator, monkeypatch, rate)} == sizes


def test_a_distant_store_is_filled_by_large_batches(
    store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that a batch of any size takes says nothing about its size."""
    put_runs(store, 2_000)
    assert batch_sizes(migrator, monkeypatch, None, opening=0.1)[:4] == [100, 200, 400, 800]


@pytest.mark.parametrize(("seconds", "opening"), [(0.03, 0.001), (0.12, 0.03)], ids=["near", "distant"])
def test_batches_grow_again_after_conflicts(seconds: float, opening: float) -> None:
    """Down to the smallest one: a batch of a row may take more than half of the time at which batches aim."""
    size = BatchSize()
    for _ in range(10):
        size.conflicted()
    assert size.rows == 1
    for _ in range(20):
        size.took(size.rows, seconds, opening)
    assert size.rows >= 20


def test_a_part_that_was_done_is_opened_like_others(migrator: Migrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the answer to the commit of its last batch was lost: the distance of the store stays known."""
    do_batch = batches.do_batch
    openings: list[float] = []
    lost: list[batches.BatchResult] = []

    def last_answer_lost(*given: Any, **options: Any) -> batches.BatchResult:  # noqa: ANN401 - those of `do_batch`
        found = do_batch(*given, **options)
        if found.done and not lost:
            lost.append(found)
            raise CommitOutcomeUnknownError("lost")
        return found

    monkeypatch.setattr(batches, "do_batch", last_answer_lost)
    monkeypatch.setattr(BatchSize, "took", lambda self, rows, seconds, opening: openings.append(opening))
    batch_sizes(migrator, monkeypatch, None, opening=0.125)
    assert lost
    assert set(openings) == {0.125}


def test_every_row_counts_against_the_rate(store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of a part, too."""
    spent: list[int] = []
    monkeypatch.setattr(backfill, "cut", lambda *given: THIRDS)
    monkeypatch.setattr(Pace, "spend", lambda self, rows, ended: spent.append(rows))
    migrator.up(throttle=Throttle(rows_per_second=600))
    assert sum(spent) == 200


@every_store
def test_progress_is_told_where_a_field_is_missed(
    store: Storage, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an order by a field that is being filled, and of a program that requires its revision."""
    put_runs(store, 60)
    scripts.add("n", up=f"{FILL}\nop.add_index('runs', 'n')")
    do_batch = batches.do_batch
    monkeypatch.setattr(backfill, "cut", lambda *given: THIRDS)

    def one_part(history: History, key: batches.TaskKey, *args: object, **options: object) -> object:
        if key.part:
            raise MigrationError("enough")
        return do_batch(history, key, *args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(batches, "do_batch", one_part)
        with pytest.raises(MigrationError, match="enough"):
            Migrator(store, scripts.path).up()
    with pytest.raises(InvalidFieldError, match=r"'n'.* is being filled, 33 %, and has no order"):
        store.table("runs").scan(order_by="n")
    with store.transaction() as tx:
        table = tx.table("runs")
        table.upsert({"app": "app0", "run": 0, "payload": '{"n": 100}'})
        with pytest.raises(InvalidFieldError, match="is being filled, 33 %"):
            table.scan_index("n", 7)
    with Schema(store, revision=1, application="a") as schema:
        with pytest.raises(NotReadyError, match="revision 1 is not ready: PAUSED in FILLING 33 %"):
            schema.require(1)
        Migrator(store, scripts.path).resume()
        schema.require(1)
    with store.table("runs").scan(order_by="n", reverse=True, limit=1) as rows:
        assert [row.n for row in rows] == [100]


def test_programs_are_refused_behind_and_ahead(store: Storage, migrator: Migrator) -> None:
    with pytest.raises(SchemaBehindError, match="needs revision 1, which is PENDING"):
        Schema(store, revision=1, application="a")
    migrator.up()
    with Schema(store, revision=1, application="a") as schema:
        assert schema.ready(1)
        assert not schema.ready(2)
        schema.require(1)
        with pytest.raises(NotReadyError, match="revision 2 is not ready: PENDING"):
            schema.require(2)
    migrator.contract(1)
    with pytest.raises(SchemaAheadError) as raised:
        Schema(store, revision=0, application="a")
    assert (raised.value.revision, raised.value.contracted) == (0, 1)
    Schema(store, revision=1, application="a").close()


def test_a_beat_does_not_bring_a_closed_program_back(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is closed while its beat is written."""
    put = Schema._put

    def closing(self: Schema, tx: Transaction, beat: int) -> None:
        if beat:
            self.close()
        put(self, tx, beat)

    monkeypatch.setattr(Schema, "_put", closing)
    schema = Schema(store, revision=0, application="closed", monotonic=fast)
    for thread in threading.enumerate():
        if thread.name == "schema of closed":
            thread.join()
    assert store.table("structable_clients").read((schema.application, schema.instance)) is None


def test_contract_waits_for_the_end_of_older_programs(store: Storage, migrator: Migrator) -> None:
    migrator.up()
    old = Schema(store, revision=0, application="old", instance="i", monotonic=fast)
    new = Schema(store, revision=1, application="new", monotonic=fast)
    with pytest.raises(LiveClientsError) as raised:
        migrator.contract(1)
    assert [text.partition(" on ")[0] for text in raised.value.clients] == ["old i"]
    assert migrator.status()[0].state is State.READY
    Schema(store, revision=0, application="old", monotonic=fast).close()  # it may start again
    old._ended.set()  # as if it were killed
    migrator.contract(1)
    assert migrator.status()[0].state is State.DONE
    new.close()
    with store.table("structable_clients").scan() as rows:
        assert [row.application for row in rows] == [""]


def test_contract_can_be_forced(store: Storage, migrator: Migrator) -> None:
    migrator.up()
    with Schema(store, revision=0, application="old", monotonic=fast):
        migrator.contract(1, force=True)
    assert "attempts" not in store.admin.get_specification("runs")


def test_a_program_that_starts_during_a_contract_loses_or_is_seen(store: Storage, migrator: Migrator) -> None:
    """Its announcement and the raise of the minimum conflict: one of them sees the other."""
    migrator.up()
    history = History(store)
    schema = Schema(store, revision=1, application="a")
    tx = store.transaction()
    schema._announce(tx)
    store.run(lambda other: history.set_minimum(other, 1))
    with pytest.raises(TransactionConflictError):
        tx.commit()
    schema.close()


def test_stamped_stores_have_nothing_to_do(store: Storage, migrator: Migrator) -> None:
    migrator.stamp(1)
    assert migrator.status()[0].state is State.DONE
    assert migrator.plan() == []
    migrator.up()
    with pytest.raises(SchemaAheadError):
        Schema(store, revision=0, application="a")


def test_two_runners_that_start_at_once(store: Storage, migrator: Migrator, scripts: Scripts) -> None:
    other = Migrator(store, scripts.path, monotonic=fast)
    outcomes: list[object] = []

    def run(one: Migrator) -> None:
        try:
            one.up()
            outcomes.append("up")
        except MigrationLockedError:
            outcomes.append("locked")

    threads = [threading.Thread(target=run, args=(one,)) for one in (migrator, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "up" in outcomes
    assert migrator.status()[0].seen == 200


def test_the_rows_of_an_index_are_counted_while_it_is_built(
    store: Storage, migrator: Migrator, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts.add("index", up='op.add_index("runs", "payload")\nop.add_index("runs", "n")')
    counted: list[int | None] = []
    add_index = SchemaCalls.add_index

    def watched(self: SchemaCalls, table: str, field: str, report: Report) -> None:
        add_index(self, table, field, report)
        report(123, None)
        counted.append(migrator.status()[1].indexed)

    monkeypatch.setattr(SchemaCalls, "add_index", watched)
    migrator.up()
    assert counted[-1] is not None
    [_, ready] = migrator.status()
    assert (ready.state, ready.indexed) == (State.DONE, None)


def test_a_table_that_is_in_use_is_waited_for(
    store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others hold is never ended; after some attempts the revision pauses."""
    monkeypatch.setattr(schema_calls, "_FIRST_PAUSE", 0.001)
    attempts = 0
    set_rules = type(store.admin).set_rules

    def busy(*args: object, **options: object) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise StorageUnavailableError("a plan holds the table")
        set_rules(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(store.admin), "set_rules", busy)
        migrator.up()
    assert attempts >= 3
    assert migrator.status()[0].state is State.READY


def test_a_runner_that_wakes_after_a_takeover_changes_no_rules(
    store: Storage, migrator: Migrator, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner that took over has ended the revision by then, and added the rule of another one."""
    scripts.add("low", up='op.add_field("runs", op.string("low"), derive=op.lower(), source="state")')
    set_rules = type(store.admin).set_rules
    slept = False

    def late(*args: object, **options: object) -> None:
        nonlocal slept
        if not slept:
            slept = True
            Migrator(store, scripts.path, monotonic=fast).up()
        set_rules(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(RunnerLease, "_beat", lambda self: None)
    monkeypatch.setattr(type(store.admin), "set_rules", late)
    with pytest.raises(SchemaIncompatibleError, match="another call has changed them"):
        migrator.up()
    assert [one.state for one in migrator.status()] == [State.READY, State.DONE]
    rules = store.admin.get_specification("runs").rules
    assert {rule.field for rule in rules if isinstance(rule, Derived) and rule.ready} == {"n", "low"}


def test_a_runner_that_waited_for_a_table_checks_its_lease_again(
    store: Storage, migrator: Migrator, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner that took over has undone the revision by then."""
    monkeypatch.setattr(schema_calls, "_FIRST_PAUSE", 0.001)
    create_or_update = type(store.admin).create_or_update
    waited = False

    def busy(self: TableAdmin, spec: TableSpecification, **options: object) -> None:
        nonlocal waited
        if spec.name == "runs" and not waited:
            waited = True
            other = Migrator(store, scripts.path, monotonic=fast)
            other.up()
            other.down(0)
            raise StorageUnavailableError("a plan holds the table")
        create_or_update(self, spec, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(RunnerLease, "_beat", lambda self: None)
    monkeypatch.setattr(type(store.admin), "create_or_update", busy)
    with pytest.raises(MigrationError, match="paused or replaced"):
        migrator.up()
    assert "n" not in store.admin.get_specification("runs")
    assert migrator.status()[0].state is State.PENDING


def test_two_runners_of_one_part_collide(store: Storage, migrator: Migrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that another runner does while it runs is done once, and counted once."""
    history, transform = History(store), batches.transform
    collided = False

    def beside(tx: Transaction, fill: Fill, task: Row, rows: int) -> tuple[batches.BatchResult, str | None]:
        nonlocal collided
        if not collided:
            collided = True
            key = batches.TaskKey(task.revision, task.operation, task.part)
            lease = store.table("structable_lease").read(("runner",))
            assert lease is not None
            now = dt.datetime.now(dt.UTC)
            batches.do_batch(history, key, fill, rows=rows, lost=0, epoch=lease.epoch, clock=lambda: now)
        return transform(tx, fill, task, rows)

    monkeypatch.setattr(batches, "transform", beside)
    migrator.up()
    [status] = migrator.status()
    assert collided
    assert (status.state, status.seen, status.changed) == (State.READY, 200, 180)
