"""Clients of the bank, to be killed: each a process, `python -m tests.hbase.support.bank_worker WHAT URL ...`.

    transfer URL POINT NUMBER    one transfer, killed when it comes by a failpoint for the NUMBERth time
    payday URL POINT NUMBER      many transfers in one transaction
    conflict URL POINT NUMBER    one that another transaction makes abort
    job URL POINT NUMBER         a write job
    sums URL POINT NUMBER        a write job that adds to rows, each of which it names twice
    batch URL POINT NUMBER       a batch of a stream that adds to rows
    patch URL POINT NUMBER       a batch of a stream that patches rows, of which some are missing
    collect URL POINT NUMBER     transfers, and a round of the janitor
    load URL NAME                transfers until it is killed; prints each when it is acknowledged

All but the last print what they have done once they live on.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal

from structable.backends.hbase.failpoints import failpoints
from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    Isolation,
    Storage,
    StorageUnavailableError,
    TransactionConflictError,
    connect,
)

from .bank import OPENING, account, payday, transfer
from .internals import collect_garbage, drained

JOB = "job"
SUMS = 3_000
"""Rows of a job that adds: two chunks."""


def _die_at(point: str, number: int) -> None:
    """End this process as kill -9 does, when it passes the point for the `number`th time."""
    seen = itertools.count(1)

    def reached() -> None:
        if next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints[point] = reached


def _transfer(storage: Storage, arm: Callable[[], None]) -> None:
    with storage.transaction(Isolation.SERIALIZABLE) as transaction:
        transfer(transaction, "doomed", 0, 1, 3)
        arm()
    drained(storage)


def _payday(storage: Storage, arm: Callable[[], None]) -> None:
    accounts = storage.table("accounts").count()
    with storage.transaction() as transaction:
        payday(transaction, "doomed", accounts)
        arm()
    drained(storage)


def _conflict(storage: Storage, arm: Callable[[], None]) -> None:
    transaction = storage.transaction()
    transfer(transaction, "doomed", 0, 1, 3)
    storage.run(lambda other: transfer(other, "winner", 1, 2, 1))
    drained(storage)
    arm()
    try:
        transaction.commit()
    except TransactionConflictError:
        drained(storage)


def _job(storage: Storage, arm: Callable[[], None]) -> None:
    import pyarrow as pa

    rows = [account(number, OPENING + (1 if number % 2 else -1)) for number in range(storage.table("accounts").count())]
    types = pa.schema([("id", pa.int32()), ("balance", pa.int64()), ("band", pa.int64())])
    job = storage.begin_write("accounts", mode="upsert", job_id=JOB)
    staged = storage.stage(job, 0, 0, [pa.RecordBatch.from_pylist(rows, types)])
    arm()
    storage.commit_write(job, [staged])


def _sums(storage: Storage, arm: Callable[[], None]) -> None:
    submit_sums(storage, arm)


def submit_sums(storage: Storage, arm: Callable[[], None] = lambda: None) -> bool:
    """Add 2 and 3 to each row of the table `sums` by one job; tell whether this call did so."""
    import pyarrow as pa

    job = storage.begin_write("sums", mode="upsert", job_id=JOB)
    keys = list(range(SUMS))
    staged = [
        storage.stage(job, partition, 0, [pa.RecordBatch.from_pydict({"k": keys, "n": [amount] * SUMS})])
        for partition, amount in ((1, 3), (0, 2))
    ]
    arm()
    return storage.commit_write(job, staged).applied


def submit_batch(
    storage: Storage, mode: Literal["upsert", "patch"], number: int = 1, arm: Callable[[], None] = lambda: None
) -> CommitResult:
    """Write to the table `sums` by a batch: add 2 and 3 to each row, or change present rows and put absent ones."""
    import pyarrow as pa

    keys = list(range(SUMS))
    if mode == "patch":
        job = storage.begin_write("sums", mode=mode, stream="s", batch=number, on_missing="skip")
        more = [*keys, *range(SUMS, SUMS + 10)]
        parts: list[dict[str, list[Any]]] = [
            {"k": keys, "n": [100] * SUMS, "_arm": ["absent"] * SUMS},
            {"k": more, "n": [2] * len(more), "_arm": ["present"] * len(more)},
        ]
    else:
        job = storage.begin_write("sums", mode=mode, stream="s", batch=number)
        parts = [{"k": keys, "n": [amount] * SUMS} for amount in (2, 3)]
    staged = [
        storage.stage(job, partition, 0, [pa.RecordBatch.from_pydict(part)]) for partition, part in enumerate(parts)
    ]
    arm()
    return storage.commit_write(job, staged)


def _batch(storage: Storage, arm: Callable[[], None]) -> None:
    submit_batch(storage, "upsert", arm=arm)


def _patch(storage: Storage, arm: Callable[[], None]) -> None:
    submit_batch(storage, "patch", arm=arm)


def _collect(storage: Storage, arm: Callable[[], None]) -> None:
    for number in range(6):
        with storage.transaction() as transaction:
            transfer(transaction, f"t{number}", number, number + 1, 1)
    drained(storage)
    arm()
    while collect_garbage(storage).removed == 0:
        pass


def _load(storage: Storage, name: str) -> None:
    chance = random.Random(name)
    accounts = storage.table("accounts").count()
    for number in itertools.count():
        source, target = chance.sample(range(accounts), 2)
        level = chance.choice(list(Isolation))
        try:
            with storage.transaction(level) as transaction:
                transfer(transaction, f"{name}-{number}", source, target, chance.randint(1, 3))
        except (TransactionConflictError, CommitOutcomeUnknownError, StorageUnavailableError):
            continue
        print(f"{name}-{number}", flush=True)


def main(what: str, url: str, *rest: str) -> None:
    with connect(url) as storage:
        if what == "load":
            _load(storage, *rest)
            return
        works = {
            "transfer": _transfer,
            "payday": _payday,
            "conflict": _conflict,
            "job": _job,
            "sums": _sums,
            "batch": _batch,
            "patch": _patch,
            "collect": _collect,
        }
        works[what](storage, lambda: _die_at(rest[0], int(rest[1])))
        print("alive", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
