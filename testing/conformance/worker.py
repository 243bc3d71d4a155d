"""A client process of the suite: `python -m structable.testing.conformance.worker` runs one command on a store.

The first line of its input is a pickled command with its arguments. Each result is a pickled line of its output,
written at once, so that acknowledged commits are known after a kill -9. Some commands wait for further lines of input.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    FeedPosition,
    Isolation,
    ScanSplit,
    StagedWrite,
    Storage,
    StorageUnavailableError,
    StructuredTable,
    TableAlreadyExistsError,
    TableSpecification,
    Transaction,
    TransactionConflictError,
    UnsupportedOperationError,
    Value,
    WriteJob,
    connect,
    read_split,
)
from structable.spi.authors import lowered_limit

from .bank import transfer
from .feed_load import move_often
from .interruptions import interrupt_at_points, interrupt_by_signals


def encoded(something: object) -> str:
    """Return a picklable object as one line."""
    return base64.b64encode(pickle.dumps(something)).decode() + "\n"


def decoded(line: str) -> Any:  # noqa: ANN401 - any pickled object
    """Return the content of a line."""
    return pickle.loads(base64.b64decode(line))


def receive() -> Any:  # noqa: ANN401 - any pickled object
    """Return the content of the next line of input; exit when the parent closes it."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return decoded(line)


def transfer_money(storage: Storage, isolation: Isolation, first_seed: int, rounds: int) -> Iterator[object]:
    """Make transfers in the bank, and report each commit."""
    for number in range(rounds):
        body = partial(transfer, seed=first_seed + number)
        storage.run(body, isolation=isolation, max_attempts=10_000, deadline=120.0)
        yield number


def count(storage: Storage, table: str, rounds: int) -> Iterator[object]:
    """Increment n of row 1."""

    def body(transaction: Transaction) -> None:
        transaction.table(table).increment((1,), "n")

    for _ in range(rounds):
        storage.run(body, max_attempts=10_000, deadline=120.0)
    yield rounds


def merge(storage: Storage, tables: Sequence[str], worker: int, rounds: int) -> Iterator[object]:
    """On command, merge its number into row 1 of each table, in the auto-commit view."""
    yield "ready"
    receive()
    for number in range(rounds):
        for table in tables:
            storage.table(table).upsert({"id": 1, "n": worker, "times": number})
    yield rounds


def move(storage: Storage, first_seed: int, rounds: int) -> Iterator[object]:
    """Move money in the table with a feed."""
    move_often(storage, first_seed, rounds)
    yield rounds


def create(storage: Storage, spec: TableSpecification) -> Iterator[object]:
    """Create a table on command, and report whether this process did it."""
    yield "ready"
    receive()
    try:
        storage.admin.create(spec)
    except TableAlreadyExistsError:
        yield False
    else:
        yield True


def write_pairs(storage: Storage, table: str, worker: int) -> Iterator[object]:
    """Insert pairs of rows for ever, one pair per transaction; report each commit; wait out outages."""
    for first in itertools.count(worker * 1_000_000, 2):
        pair: list[dict[str, Value]] = [
            {"id": first + place, "n": first, "tag": f"worker {worker}"} for place in (0, 1)
        ]
        try:
            storage.run(partial(insert_all, table, pair))
        except CommitOutcomeUnknownError:
            continue  # it may be there or not: nothing is acknowledged
        except StorageUnavailableError:
            time.sleep(0.05)
            continue
        yield first


def submit(storage: Storage, kinds: Sequence[str], jobs: int, count: int) -> Iterator[object]:
    """Submit jobs until each is committed; report None before each, and its number if this process committed it."""
    for number in range(jobs):
        kind, mode = kinds[number % len(kinds)], "insert" if number % 3 else "upsert"
        name: dict[str, Any] = {"stream": "s", "batch": number} if kind == "batch" else {"job_id": f"job {number}"}
        rows: list[dict[str, Value]] = [
            {"id": count * number + place, "n": number, "tag": f"{number}"} for place in range(count)
        ]
        yield None
        applied: bool | None = None
        while applied is None:
            try:
                job = storage.begin_write("items", mode=mode, **name)
            except (TransactionConflictError, StorageUnavailableError):
                time.sleep(0.05)
                continue
            staged = [_stage(storage, job, part, rows[part::4]) for part in range(4)]
            try:
                applied = storage.commit_write(job, staged).applied
            except (TransactionConflictError, StorageUnavailableError, CommitOutcomeUnknownError):
                time.sleep(0.05)
        if applied:
            yield number


def insert_all(table: str, rows: Sequence[Mapping[str, Value]], transaction: Transaction) -> None:
    """Insert rows."""
    for row in rows:
        transaction.table(table).insert(row)


def hold_open(storage: Storage, table: str, row: dict[str, Value]) -> Iterator[object]:
    """Write a row, and keep the transaction open until a command; then commit, and report whether that succeeded."""
    transaction = storage.transaction()
    transaction.table(table).upsert(row)
    yield "written"
    receive()
    try:
        transaction.commit()
    except TransactionConflictError:
        yield False
    else:
        yield True


def _noted(key: str) -> dict[str, Value]:
    return {"id": key, "note": "blind", "n": 2}


BLIND_WRITES: dict[str, Callable[[StructuredTable, str], object]] = {
    "upsert": lambda table, key: table.upsert(_noted(key)),
    "upsert_many": lambda table, key: table.upsert_many([_noted(key)]),
    "replace": lambda table, key: table.replace(_noted(key)),
    "increment": lambda table, key: table.increment((key,), "n"),
    "delete": lambda table, key: table.delete((key,)),
}
"""Writes of a row of NOTED by its key; all but the delete need not look at it."""


def write_blindly(storage: Storage, kind: str, isolation: Isolation) -> Iterator[object]:
    """Write row "a" of NOTED, and on the command "commit" row "b"; report whether both were committed.

    On the command "read", first report the content of row "b", or None for a conflict.
    """
    storage.table("noted").count()  # so that looking the table up is not the first read
    transaction = storage.transaction(isolation)
    write = BLIND_WRITES[kind]
    write(transaction.table("noted"), "a")
    yield "written"
    if receive() == "read":
        try:
            row = transaction.table("noted").read(("b",))
        except TransactionConflictError:
            transaction.rollback()
            yield None
            return
        yield None if row is None else dict(row)
        receive()
    try:
        write(transaction.table("noted"), "b")
        transaction.commit()
    except TransactionConflictError:
        transaction.rollback()
        yield False
    else:
        yield True


def obey(storage: Storage) -> Iterator[object]:
    """Call the received functions, pickled by name, with the storage and arguments; answer with their results."""
    yield "ready"
    while True:
        function, arguments = receive()
        yield DEEDS[function](storage, *arguments)


def _describe(storage: Storage, table: str) -> TableSpecification:
    with storage.transaction() as transaction:
        return transaction.table(table).specification


def _rows(storage: Storage, table: str) -> list[dict[str, Value]]:
    return [dict(row) for row in storage.table(table).scan()]


def _upsert(storage: Storage, table: str, row: dict[str, Value]) -> None:
    storage.table(table).upsert(row)


def _upsert_below_limit(storage: Storage, table: str, rows: list[dict[str, Value]], limit: int) -> str | None:
    with lowered_limit(limit):
        try:
            with storage.transaction() as transaction:
                for row in rows:
                    transaction.table(table).upsert(row)
        except UnsupportedOperationError as refusal:
            return str(refusal)
    return None


def _change(storage: Storage, spec: TableSpecification) -> None:
    storage.admin.create_or_update(spec)


def _signal(storage: Storage, channel: str) -> None:
    with storage.transaction() as transaction:
        transaction.signal(channel)


def _changes(
    storage: Storage, table: str, since: FeedPosition | None, until: FeedPosition | None
) -> list[tuple[str, dict[str, Value], int | None, dt.datetime | None]]:
    with storage.changes(table).read(since, until) as changes:
        return [(str(one.kind), dict(one.row), one.version, one.timestamp) for one in changes]


def _feed(storage: Storage, table: str, method: str, *arguments: object) -> object:
    return getattr(storage.changes(table), method)(*arguments)


def _read_split(storage: Storage, split: ScanSplit) -> list[dict[str, object]]:
    return [row for batch in storage.read_split(split) for row in batch.to_pylist()]


def _read_split_by_url(_: Storage, url: str, split: ScanSplit) -> list[dict[str, object]]:
    return [row for batch in read_split(url, split) for row in batch.to_pylist()]


def _stage(storage: Storage, job: WriteJob, partition: int, rows: list[dict[str, Value]]) -> StagedWrite:
    from structable.spi.arrow import rows_to_batches

    spec = storage.admin.get_specification(job.table)
    return storage.stage(job, partition, 0, rows_to_batches(spec, rows, list(rows[0])))


def _begin_write(storage: Storage, table: str, mode: str, job_id: str) -> WriteJob:
    return storage.begin_write(table, mode=mode, job_id=job_id)


def _commit_write(storage: Storage, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
    return storage.commit_write(job, staged)


DEEDS: dict[str, Callable[..., object]] = {
    "describe": _describe,
    "rows": _rows,
    "multi_read": lambda storage, table, keys: [dict(row) for row in storage.table(table).multi_read(keys)],
    "upsert": _upsert,
    "upsert_below_limit": _upsert_below_limit,
    "create": lambda storage, spec: storage.admin.create(spec),
    "change": _change,
    "drop": lambda storage, table: storage.admin.drop(table),
    "changes": _changes,
    "feed": _feed,
    "read_split": _read_split,
    "signal": _signal,
    "read_split_by_url": _read_split_by_url,
    "stage": _stage,
    "begin_write": _begin_write,
    "commit_write": _commit_write,
    "abort_write": lambda storage, job: storage.abort_write(job),
}
"""The commands of `obey`."""

COMMANDS: dict[str, Callable[..., Iterator[object]]] = {
    "transfer_money": transfer_money,
    "count": count,
    "merge": merge,
    "move": move,
    "create": create,
    "submit": submit,
    "write_pairs": write_pairs,
    "hold_open": hold_open,
    "write_blindly": write_blindly,
    "obey": obey,
    "interrupt_at_points": interrupt_at_points,
    "interrupt_by_signals": interrupt_by_signals,
}
"""The tasks of a process."""


def main() -> None:
    """Run the command of the first line."""
    command, url, arguments = receive()
    with connect(url) as storage:
        try:
            for result in COMMANDS[command](storage, *arguments):
                sys.stdout.write(encoded((True, result)))
                sys.stdout.flush()
        except Exception as error:
            sys.stdout.write(encoded((False, error)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
