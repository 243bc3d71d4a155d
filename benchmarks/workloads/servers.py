"""The stores on servers: PostgreSQL against psycopg by hand, and HBase, which has no rival here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.hbase.database import database as hbase_database
from benchmarks.measuring import Measurement, Scale
from benchmarks.postgresql.database import available
from benchmarks.postgresql.database import database as postgresql_database
from tests.postgresql.support.binaries import MINIMUM
from tests.postgresql.support.shared import URL_VARIABLE, Schema, fresh_schema
from tests.servers.availability import NoServerError

from .clients import fleet
from .contest import MANY_CLIENTS, Contest, Rival
from .orders.psycopg_program import PsycopgOrders
from .orders.psycopg_whole_program import PsycopgWholeOrders
from .orders.requests import WORK as ORDERS
from .orders.spi_program import SpiOrders
from .postgresql import PostgresqlPlace, fresh_place
from .ycsb.psycopg_program import PsycopgRecords
from .ycsb.spi_program import SpiRecords


def measure_postgresql(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure PostgreSQL, if there is a server."""
    if not available():
        reason = f"set {URL_VARIABLE}, or install a server of version {MINIMUM} or later (Debian: postgresql)"
        print(f"PostgreSQL's workloads are not measured: {reason}", file=sys.stderr)
        return
    with postgresql_database() as found, fresh_schema(found.raw.conninfo) as whole:
        contest = _postgresql(scale, found.raw, whole, found.ours)
        # A single client and its server do not share a core, as in all measurements of single operations.
        with found.on_separate_cores(), fleet(1) as processes:
            contest.load(processes)
            for schema in (found.raw, whole, found.ours):
                PostgresqlPlace(schema.conninfo, schema.name).vacuum()
            yield from contest.run(processes, 0)
        with fleet(MANY_CLIENTS) as processes:
            yield from contest.run(processes, 1)


def _postgresql(scale: Scale, raw: Schema, whole: Schema, ours: Schema) -> Contest:
    # The schema `raw` exists.
    by_rows = PostgresqlPlace(raw.conninfo, raw.name)
    return Contest(
        Rival("PostgreSQL", partial(SpiRecords, ours.url), partial(SpiOrders, ours.url)),
        [
            Rival(
                "psycopg, statement a row",
                partial(PsycopgRecords, by_rows),
                partial(PsycopgOrders, by_rows),
                lambda work, _clients: 1.0 if work == ORDERS else 1 / 0.9,
            ),
            Rival(
                "psycopg, statement a table",
                None,
                partial(PsycopgWholeOrders, fresh_place(whole)),
                lambda _work, _clients: 1 / 0.9,
            ),
        ],
        scale,
    )


def measure_hbase(folder: Path, scale: Scale) -> Iterator[Measurement]:
    """Measure HBase, if there is a server, with a tenth of the records."""
    folder.mkdir()
    with ExitStack() as stack:
        try:
            found = stack.enter_context(hbase_database(folder))
        except NoServerError as error:
            print(f"HBase's workloads are not measured: {error}", file=sys.stderr)
            return
        ours = Rival("HBase", partial(SpiRecords, found.url), partial(SpiOrders, found.url))
        contest = Contest(ours, [], replace(scale, records=max(scale.records // 10, 100)))
        for number, clients in enumerate((1, MANY_CLIENTS)):
            with fleet(clients) as processes:
                if clients == 1:
                    contest.load(processes)
                yield from contest.run(processes, number)
