#!/bin/sh
# One Parquet file, three readers, three answers: INT96 timestamps outside of the years 1677 to 2262.
#
# INT96 is Spark's default type of timestamps in Parquet (spark.sql.parquet.outputTimestampType), and what pyarrow writes
# with flavor="spark". A value is a day and the nanoseconds within it: all years fit. 64-bit nanoseconds hold only 584.
#
# Expected: the years that were written, or an error.
# Seen, without a warning:
#   DuckDB 2.0.1    the years that were written
#   pyarrow 26.0.1  9999 becomes 1816, and 1600 becomes 2184, in a file of its own too;
#                   coerce_int96_timestamp_unit="us", which is not the default, reads the years
#   Polars 2.1.0    both become the last instant of nanoseconds, in 2262
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1
cd "$folder"
venv/bin/python - <<'END'
import datetime as dt
import sys

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

WRITTEN = [dt.datetime(9999, 12, 31), dt.datetime(1600, 1, 1), dt.datetime(2024, 2, 29)]
table = pa.table({"t": pa.array(WRITTEN, pa.timestamp("us"))})
pq.write_table(table, "t.parquet", flavor="spark", store_schema=False)


def days(table):
    return [text[:10] for text in table.column("t").cast(pa.string()).to_pylist()]


found = {
    "written": days(table),
    "DuckDB " + duckdb.__version__: [str(time)[:10] for (time,) in duckdb.sql("select t from 't.parquet'").fetchall()],
    "pyarrow " + pa.__version__: days(pq.read_table("t.parquet")),
    "pyarrow, in us": days(pq.read_table("t.parquet", coerce_int96_timestamp_unit="us")),
    "Polars " + polars.__version__: days(polars.read_parquet("t.parquet").to_arrow()),
}
for reader, answer in found.items():
    print(f"{reader:16}", *answer)
right = ["9999-12-31", "1600-01-01", "2024-02-29"]
seen = [
    right,
    right,
    ["1816-03-29", "2184-07-20", "2024-02-29"],
    right,
    ["2262-04-11", "2262-04-11", "2024-02-29"],
]
sys.exit(list(found.values()) != seen)
END
