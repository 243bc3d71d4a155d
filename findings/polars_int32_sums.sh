#!/bin/sh
# Polars 2.1.0 adds up Int32 in 32 bits: the total of three times 2,000,000,000 is 1,705,032,704.
#
# Polars widens smaller integers to Int64 for a sum, as the notes on `sum` say; Int32, the int of most databases and
# files, it does not, and no error is raised, as it is for decimals. `mean` is right, so that it
# does not agree with the sum of the same column. Amounts below some thousands, as tests have them, add up rightly.
#
# Expected: 6,000,000,000, as by pyarrow, pandas, DuckDB and PostgreSQL, which add up in 64 or more bits; or an error.
# Seen, without an error, of a Parquet file with three rows 2,000,000,000 of int32:
#   sum, by group_by, by SQL, streaming     1705032704
#   mean                                    2000000000.0
#   three rows 30,000 of int16, sum         90000
#   pyarrow, pandas, DuckDB                 6000000000
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    polars==2.1.0 pyarrow==26.0.1 pandas==3.1.1 duckdb==2.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import sys

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

written = pa.table({
    "shop": ["a", "a", "a"],
    "cents": pa.array([2_000_000_000] * 3, pa.int32()),
    "short": pa.array([30_000] * 3, pa.int16()),
})
pq.write_table(written, "sales.parquet")
sales = pl.scan_parquet("sales.parquet")
total = pl.col("cents").sum()
found = {
    "sum": sales.select(total).collect().item(),
    "streaming sum": sales.select(total).collect(engine="streaming").item(),
    "sum by group_by": sales.group_by("shop").agg(total).collect()["cents"].item(),
    "sum by SQL": sales.sql("select sum(cents) from self").collect().item(),
    "mean": sales.select(pl.col("cents").mean()).collect().item(),
    "sum of int16": sales.select(pl.col("short").sum()).collect().item(),
}
right = {
    f"pyarrow {pa.__version__}": pc.sum(pq.read_table("sales.parquet")["cents"]).as_py(),
    f"pandas {pd.__version__}": int(pd.read_parquet("sales.parquet")["cents"].sum()),
    f"DuckDB {duckdb.__version__}": duckdb.execute("select sum(cents) from 'sales.parquet'").fetchone()[0],
}
for way, value in found.items():
    print(f"Polars {pl.__version__}, {way}: {value}")
for reader, value in right.items():
    print(f"{reader}, sum: {value}")
if list(found.values()) != [1_705_032_704] * 4 + [2e9, 90_000] or set(right.values()) != {6_000_000_000}:
    sys.exit("the behaviour has changed")
END
