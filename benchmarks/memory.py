"""Memory: a scan and a write job hold batches, never the table; and a new row in memory sorts no others.

Each scan and job runs in a separate process over a table of two million rows. The figure is the growth of the process's
resident memory over its size with the storage open and all modules loaded, including LevelDB's cache and mapped files.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from structable.spi import Storage, WriteMode, connect
from structable.spi.arrow import rows_to_batches

from .leveldb.stores import url_of
from .measuring import Contender, Measurement, Scale, compare
from .rows import TABLE, batches, make_rows, specification

AREA = "memory"
_GOAL = 400.0
_SPAWN = multiprocessing.get_context("spawn")

Work = Callable[[Storage, int], int]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure peaks of memory."""
    url = url_of(folder / "ours")
    with connect(url) as storage:
        storage.admin.create(specification())
    for name, work in (
        ("write job", _write_job),
        ("scan to rows", _scan_rows),
        ("scan to Arrow", _scan_arrow),
        ("write job over as many rows", _write_job),
    ):
        here, there = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_peak, args=(there, url, work, scale.many_rows))
        process.start()
        there.close()
        try:
            growth = here.recv()
        except EOFError:
            raise RuntimeError(f"the process of {name!r} failed; its traceback is above") from None
        finally:
            process.join()
        title = f"{name}, {scale.many_rows:,} rows"
        yield Measurement(AREA, title, math.nan, growth, growth, _GOAL, 0.0, "growth of resident memory", "MB")
    yield from _scans_after_inserts(scale)


def _scans_after_inserts(scale: Scale) -> list[Measurement]:
    """Measure the first row of a scan after an insert at a random place, in a store in memory."""
    rows = list(make_rows(scale.rows // 2))
    random.shuffle(rows)
    samples = max(1, scale.samples // 20)
    with connect("memory://") as storage:
        storage.admin.create(specification())
        table = storage.table(TABLE)
        for batch in batches(rows[samples * (scale.rounds + 1) :]):
            table.upsert_many(batch)
        new = iter(rows)

        def first_row() -> float:
            begin = perf_counter()
            assert len(list(table.scan(limit=1))) == 1
            return perf_counter() - begin

        def after_inserts() -> float:
            seconds = 0.0
            for _ in range(samples):
                table.upsert(next(new))
                seconds += first_row()
            return seconds / samples

        return compare(
            AREA,
            "the same scan, no row inserted",
            lambda: sum(first_row() for _ in range(samples)) / samples,
            [Contender(f"memory://: first row of {len(rows):,} after an insert", after_inserts, 2.0)],
            scale.rounds,
        )


def _peak(pipe: Connection, url: str, work: Work, rows: int) -> None:
    with connect(url) as storage:
        storage.table(TABLE).read(("nobody", 0))
        list(rows_to_batches(specification(), make_rows(1)))
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        found = work(storage, rows)
        assert found == rows, f"{found:,} rows instead of {rows:,}"
        pipe.send((status("VmHWM") - before) / 1024)


def status(name: str) -> int:
    """Return a figure of this process in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(f"/proc/self/status has no {name}")


def _scan_rows(storage: Storage, rows: int) -> int:
    return sum(1 for _ in storage.table(TABLE).scan())


def _scan_arrow(storage: Storage, rows: int) -> int:
    with storage.plan_scan(TABLE) as plan:
        return sum(batch.num_rows for split in plan.splits for batch in storage.read_split(split))


def _write_job(storage: Storage, rows: int) -> int:
    job = storage.begin_write(TABLE, mode=WriteMode.UPSERT, job_id=f"memory-{uuid.uuid4()}")
    staged = storage.stage(job, 0, 0, rows_to_batches(specification(), make_rows(rows)))
    storage.commit_write(job, [staged])
    return staged.rows
