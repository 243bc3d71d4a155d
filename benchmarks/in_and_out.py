"""In and out: tables as Arrow, loads, and files, each against the shortest program with pyarrow, on LevelDB."""

from __future__ import annotations

import contextlib
import io
import math
import multiprocessing
import shutil
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

import duckdb
import pyarrow as pa
from pyarrow import csv as arrow_csv

from structable.cli.app import app
from structable.spi import Storage, connect
from structable.spi.arrow import arrow_schema, rows_to_batches

from .leveldb.stores import url_of
from .measuring import Contender, Measurement, Scale, compare
from .memory import status
from .rows import TABLE, make_rows, specification

AREA = "in-and-out"
_MEMORY = 256.0
_SPAWN = multiprocessing.get_context("spawn")


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure both ways."""
    data = pa.Table.from_batches(rows_to_batches(specification(), make_rows(scale.many_rows // 2)))
    with connect(url_of(folder / "read")) as storage:
        storage.admin.create(specification())
        storage.load(TABLE, data)
    with connect(url_of(folder / "read")) as storage:
        yield from _out(storage, scale)
    yield from _loads(folder, data, scale)
    file = folder / f"{TABLE}.csv"
    _write_csv(file, scale.many_rows)
    yield from _files(folder, file, scale)
    yield _memory(folder, file)


def _timed(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def _out(storage: Storage, scale: Scale) -> Iterator[Measurement]:
    table = storage.table(TABLE)

    def by_hand() -> pa.Table:
        with storage.plan_scan(TABLE) as plan:
            return pa.Table.from_batches([batch for split in plan.splits for batch in storage.read_split(split)])

    yield from compare(
        AREA,
        "the splits of a plan, read by hand",
        lambda: _timed(by_hand),
        [Contender("to_arrow", lambda: _timed(table.to_arrow), 1.05)],
        scale.rounds,
    )

    def of_table() -> object:
        return _answer(by_hand())

    def of_scan() -> object:
        return _answer(table.scan())

    yield from compare(
        AREA,
        "DuckDB's count and sum over the pa.Table of these splits",
        lambda: _timed(of_table),
        [Contender("DuckDB's count and sum over a scan", lambda: _timed(of_scan), 1.2)],
        scale.rounds,
    )


def _answer(found: object) -> object:
    """Return DuckDB's count and sum; it finds the data by their name."""
    query = duckdb.sql("select count(*), sum(bytes::double), max(cost) from found")
    assert query is not None
    return query.fetchall()


def _loads(folder: Path, data: pa.Table, scale: Scale) -> list[Measurement]:
    def into_new(write: Callable[[Storage], object]) -> float:
        with connect(url_of(folder / "written")) as storage:
            storage.admin.create(specification())
            seconds = _timed(lambda: write(storage))
        shutil.rmtree(folder / "written")
        return seconds

    def by_hand(storage: Storage) -> None:
        job = storage.begin_write(TABLE, mode="upsert", job_id=str(uuid.uuid4()))
        storage.commit_write(job, [storage.stage(job, 0, 0, data.to_batches())])

    return compare(
        AREA,
        "begin_write, stage, commit_write by hand",
        lambda: into_new(by_hand),
        [Contender("load", lambda: into_new(lambda storage: storage.load(TABLE, data)), 1.1)],
        scale.rounds,
    )


def _write_csv(file: Path, rows: int) -> None:
    schema = arrow_schema(specification())
    with arrow_csv.CSVWriter(str(file), schema) as writer:
        for batch in rows_to_batches(specification(), make_rows(rows), batch_size=100_000):
            writer.write_batch(batch)


def _files(folder: Path, file: Path, scale: Scale) -> Iterator[Measurement]:
    rounds = min(scale.rounds, 3)
    size = f"{file.stat().st_size / 1e6:,.0f} MB"
    schema = arrow_schema(specification())

    def into_new(write: Callable[[str], object]) -> float:
        url = url_of(folder / "written")
        with connect(url) as storage:
            storage.admin.create(specification())
        seconds = _timed(lambda: write(url))
        shutil.rmtree(folder / "written")
        return seconds

    def by_hand(url: str) -> None:
        options = arrow_csv.ConvertOptions(column_types={field.name: field.type for field in schema})
        with connect(url) as storage:
            storage.load(TABLE, arrow_csv.read_csv(str(file), convert_options=options))

    yield from compare(
        AREA,
        "pyarrow.csv and load",
        lambda: into_new(by_hand),
        [
            Contender(
                f"import of a CSV file of {size}",
                lambda: into_new(lambda url: _command("import", url, TABLE, file)),
                1.3,
            )
        ],
        rounds,
    )
    yield from compare(
        AREA,
        "pyarrow.csv",
        lambda: _timed(lambda: arrow_csv.read_csv(str(file))),
        [Contender(f"infer of it, {size}", lambda: _timed(lambda: _command("infer", file)), 2.5)],
        rounds,
    )


def _command(*arguments: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = app([str(one) for one in arguments], standalone_mode=False)
    assert not code, said.getvalue()


def _memory(folder: Path, file: Path) -> Measurement:
    url = url_of(folder / "measured")
    with connect(url) as storage:
        storage.admin.create(specification())
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_peak, args=(there, url, str(file)))
    process.start()
    there.close()
    try:
        growth = here.recv()
    except EOFError:
        raise RuntimeError("the process of the import failed; its traceback is above") from None
    finally:
        process.join()
    title = f"import of {file.stat().st_size / 1e6:,.0f} MB of CSV: memory"
    return Measurement(
        AREA, title, math.nan, growth, growth, _MEMORY, 0.0, "peak of resident memory beyond that at its start", "MB"
    )


def _peak(pipe: Connection, url: str, file: str) -> None:
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    _command("import", url, TABLE, file)
    pipe.send((status("VmHWM") - before) / 1024)
