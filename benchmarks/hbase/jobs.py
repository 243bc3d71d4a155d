"""A write job of many rows: staged here, and committed by a separate process whose memory is measured."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Measurement, Scale
from benchmarks.memory import status
from benchmarks.rows import TABLE, make_rows, specification
from structable.spi import StagedWrite, WriteJob, WriteMode, connect
from structable.spi.arrow import rows_to_batches

from .database import AREA, Database

_SPAWN = multiprocessing.get_context("spawn")


def measure(database: Database, scale: Scale) -> Iterator[Measurement]:
    """Measure an upsert; a quarter of its rows exist already."""
    rows = scale.rows
    with database.storage() as storage:
        job = storage.begin_write(TABLE, mode=WriteMode.UPSERT, job_id=f"job-{os.urandom(8).hex()}")
        begin = perf_counter()
        staged = storage.stage(job, 0, 0, rows_to_batches(specification(), make_rows(rows)))
        staging = perf_counter() - begin
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_commit, args=(there, database.url, job, staged))
    process.start()
    there.close()
    try:
        committing, growth = here.recv()
    except EOFError:
        raise RuntimeError("the process that commits the job failed; its traceback is above") from None
    finally:
        process.join()
    for name, figure, unit in (
        ("staging", rows / staging, "rows/s"),
        ("commit and clean-up", rows / committing, "rows/s"),
        ("memory of the commit", growth, "MB"),
    ):
        title = f"write job of {rows:,} rows: {name}"
        yield Measurement(AREA, title, math.nan, figure, figure, None, 0.0, "", unit)


def _commit(pipe: Connection, url: str, job: WriteJob, staged: StagedWrite) -> None:
    with connect(url) as storage:
        storage.table(TABLE).read(("nobody", 0))
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        begin = perf_counter()
        storage.commit_write(job, [staged])
        pipe.send((perf_counter() - begin, max(status("VmHWM") - before, 1) / 1024))
