"""The memory of a worker when a product changes to which every order refers: one atomic job, in batches."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from benchmarks.measuring import Measurement, Scale
from benchmarks.memory import status
from structable.spark_bridge.joins import JoinWorker
from structable.spark_bridge.joins.failpoints import failpoints
from structable.spi import connect

from .tables import AREA, Shop

_SPAWN = multiprocessing.get_context("spawn")


def measure(url: str, scale: Scale) -> Iterator[Measurement]:
    """Measure the growth of a worker's resident memory, with LevelDB's mapped files, over its size before the step."""
    here, there = _SPAWN.Pipe()
    orders = scale.many_rows // 2
    process = _SPAWN.Process(target=_peak, args=(there, url, orders))
    process.start()
    there.close()
    try:
        staged, growth, seconds = here.recv()
    except EOFError:
        raise RuntimeError("the process of the hot key failed; its traceback is above") from None
    finally:
        process.join()
    title, note = (
        f"hot key of {orders:,} orders, LevelDB",
        f"{staged:.0f} MB without mapped files, when it is staged; {seconds:.1f} s",
    )
    yield Measurement(AREA, title, math.nan, growth, growth, None, 0.0, "growth of resident memory", "MB", note)


def _peak(pipe: Connection, url: str, orders: int) -> None:
    with connect(url) as storage:
        shop = Shop(url, "hot")
        shop.make(storage, orders, hot=True)
        with JoinWorker(shop.join, small=min(10_000, orders // 10)) as worker:
            worker.step()
            storage.table(shop.products.name).update({"sku": 0, "price": -1})
            before = status("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
            staged: list[float] = []
            own = status("RssAnon")
            failpoints["staged"] = lambda: staged.append((status("RssAnon") - own) / 1024)
            begin = perf_counter()
            done = worker.step()
            seconds = perf_counter() - begin
            assert (done.updated, done.rebuilt) == (orders, False)
            pipe.send((staged[0], (status("VmHWM") - before) / 1024, seconds))
