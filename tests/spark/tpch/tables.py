"""TPC-H's eight tables: files of generated rows, and the same rows in a store.

Keys are those of TPC-H, types those of the generator's files. Foreign keys and indexes have no counterpart here.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pyarrow.parquet as pq

from structable.spi import Field, TableSpecification, connect
from structable.spi.arrow import arrow_schema

LEAST_SCALE = 0.01

_BATCH = 10_000
_TEXT, _LONG, _INT, _DATE = Field.string, Field.long, Field.int, Field.date


def _money(name: str) -> Field:
    return Field.decimal(name, 15, 2)


TABLES = (
    TableSpecification(
        "region", [_LONG("r_regionkey"), _TEXT("r_name"), _TEXT("r_comment")], primary_key=["r_regionkey"]
    ),
    TableSpecification(
        "nation",
        [_LONG("n_nationkey"), _TEXT("n_name"), _LONG("n_regionkey"), _TEXT("n_comment")],
        primary_key=["n_nationkey"],
    ),
    TableSpecification(
        "supplier",
        [
            *(_LONG("s_suppkey"), _TEXT("s_name"), _TEXT("s_address"), _LONG("s_nationkey"), _TEXT("s_phone")),
            *(_money("s_acctbal"), _TEXT("s_comment")),
        ],
        primary_key=["s_suppkey"],
    ),
    TableSpecification(
        "customer",
        [
            *(_LONG("c_custkey"), _TEXT("c_name"), _TEXT("c_address"), _LONG("c_nationkey"), _TEXT("c_phone")),
            *(_money("c_acctbal"), _TEXT("c_mktsegment"), _TEXT("c_comment")),
        ],
        primary_key=["c_custkey"],
    ),
    TableSpecification(
        "part",
        [
            *(_LONG("p_partkey"), _TEXT("p_name"), _TEXT("p_mfgr"), _TEXT("p_brand"), _TEXT("p_type")),
            *(_INT("p_size"), _TEXT("p_container"), _money("p_retailprice"), _TEXT("p_comment")),
        ],
        primary_key=["p_partkey"],
    ),
    TableSpecification(
        "partsupp",
        [
            *(_LONG("ps_partkey"), _LONG("ps_suppkey"), _INT("ps_availqty")),
            *(_money("ps_supplycost"), _TEXT("ps_comment")),
        ],
        primary_key=["ps_partkey", "ps_suppkey"],
    ),
    TableSpecification(
        "orders",
        [
            *(_LONG("o_orderkey"), _LONG("o_custkey"), _TEXT("o_orderstatus"), _money("o_totalprice")),
            *(_DATE("o_orderdate"), _TEXT("o_orderpriority"), _TEXT("o_clerk"), _INT("o_shippriority")),
            _TEXT("o_comment"),
        ],
        primary_key=["o_orderkey"],
    ),
    TableSpecification(
        "lineitem",
        [
            *(_LONG("l_orderkey"), _LONG("l_partkey"), _LONG("l_suppkey"), _INT("l_linenumber")),
            *(_money("l_quantity"), _money("l_extendedprice"), _money("l_discount"), _money("l_tax")),
            *(_TEXT("l_returnflag"), _TEXT("l_linestatus")),
            *(_DATE("l_shipdate"), _DATE("l_commitdate"), _DATE("l_receiptdate")),
            *(_TEXT("l_shipinstruct"), _TEXT("l_shipmode"), _TEXT("l_comment")),
        ],
        primary_key=["l_orderkey", "l_linenumber"],
    ),
)


def generate(folder: Path, scale: float) -> None:
    """Write the rows of all tables, the same at each call, to a Parquet file each: `<folder>/<table>.parquet`.

    Of scale 1, `lineitem` has 6,000,000 rows, `orders` 1,500,000 and `supplier` 10,000. Below `LEAST_SCALE` TPC-H's
    formula gives some parts the same supplier twice.
    """
    generator = Path(sysconfig.get_path("scripts"), "tpchgen-cli")
    command = [str(generator), "parquet", "--quiet", f"--scale-factor={scale}", f"--output-dir={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{generator} failed with code {done.returncode}: {done.stderr}")


def load(folder: Path, url: str) -> None:
    """Create all tables in an empty store, and write the rows of the files, one write job a table."""
    with connect(url) as storage:
        for spec in TABLES:
            storage.admin.create(spec)
            rows = pq.read_table(folder / f"{spec.name}.parquet").cast(arrow_schema(spec))
            job = storage.begin_write(spec.name, mode="insert", job_id=f"load-{spec.name}")
            storage.commit_write(job, [storage.stage(job, 0, 0, rows.to_batches(max_chunksize=_BATCH))])
