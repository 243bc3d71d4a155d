"""HBase: every promise against bare happybase, on one Thrift gateway.

The gateway is that of STRUCTABLE_TEST_HBASE_URL, or one started from Maven's jars, with the settings of the tests'
server. happybase is unmodified: the binary protocol in thriftpy2's compiled form, over a buffered transport. Its floors
put and read exactly the bytes that structable stores in a cell; they decode no value and check nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Measurement, Scale
from tests.servers.availability import NoServerError

from . import clients, jobs, points, scans, transactions
from .database import database

__all__ = ["measure"]


def measure(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure HBase, if there is a server."""
    try:
        with database(folder) as found:
            found.load(scale.rows // 4)
            yield from points.measure(found, scale)
            yield from scans.measure(found, scale)
            yield from transactions.measure(found, scale)
            yield from clients.measure(found, scale)
            yield from jobs.measure(found, scale)
    except NoServerError as error:
        print(f"HBase is not measured: {error}", file=sys.stderr)
