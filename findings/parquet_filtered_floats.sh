#!/bin/sh
# Filters of doubles do not find rows that are in a Parquet file: those of NaN in three of four readers, and -0.0 in Spark.
#
# NaN: a row group's statistics leave it out. The format asks that of writers, and of readers that "when looking for NaN
# values, min and max should be ignored". Here pyarrow writes 1.0 and NaN; minimum and maximum are 1.0. To Spark and
# DuckDB NaN is larger than all numbers, to pyarrow it is no number. Spark and DuckDB write no maximum where NaN is, so
# that tests with files of their own find nothing.
# -0.0: equal to 0.0 for Spark, but not in the dictionary of a column, by which it skips row groups; in its own files, too.
#
# Expected: the rows that each reader finds without the file's statistics and dictionary.
# Seen, without an error, rows found in the file, and without these:
#   DuckDB 2.0.1    1.0, NaN: x > 1: 0 and 1; x <> 1: 0 and 1; x <= 1: 2 and 1; isnan(x): 0 and 1
#   pyarrow 26.0.1  1.0, NaN: x != 1: 0 and 1; is_nan(x): 0 and 1
#   Spark 4.3.0     1.0, NaN: x > 1: 0 and 1; x <> 1: 0 and 1; x = NaN: 0 and 1; isnan(x): 1 and 1
#                   -0.0, 1.0, -0.0: x = 0: 0 and 2; x in (0, 7): 0 and 2; x <= 0: 2 and 2
#   Polars 2.1.0    the same numbers
#
# Exits with 0 as long as this is so; needs Java.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    pyspark==4.3.0 pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 || exit 2
cat > readers.py <<'PYTHON'
import sys

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
given = pa.table({"x": [1.0, float("nan")]})
pq.write_table(given, "nan.parquet")
duckdb.execute("create table memory as from given")
zeros = spark.createDataFrame([(-0.0,), (1.0,), (-0.0,)], "x double")
zeros.coalesce(1).write.parquet("zeros.parquet")
x = ds.field("x")
X = polars.col("x")


def by_duckdb(condition):
    return [duckdb.sql(f"select x from {rows} where {condition}").fetchall() for rows in ("'nan.parquet'", "memory")]


def by_pyarrow(condition):
    return [ds.dataset(rows).to_table(filter=condition) for rows in ("nan.parquet", given)]


def by_polars(condition):
    frames = polars.scan_parquet("nan.parquet"), polars.from_arrow(given).lazy()
    return [rows.filter(condition).collect() for rows in frames]


def by_spark(file):
    def read(condition):
        for pushdown in ("true", "false"):
            spark.conf.set("spark.sql.parquet.filterPushdown", pushdown)
            yield spark.read.parquet(file).where(condition).collect()

    return read


ways = {
    f"DuckDB {duckdb.__version__}": (by_duckdb, ["x > 1", "x <> 1", "x <= 1", "isnan(x)"]),
    f"pyarrow {pa.__version__}": (by_pyarrow, [x != 1, pc.is_nan(x)]),
    f"Spark {spark.version}": (by_spark("nan.parquet"), ["x > 1", "x <> 1", "x = double('NaN')", "isnan(x)"]),
    f"Spark {spark.version}, zeros": (by_spark("zeros.parquet"), ["x = 0", "x in (0, 7)", "x <= 0"]),
    f"Polars {polars.__version__}": (by_polars, [X > 1, X != 1, X.is_nan()]),
}
found = []
for reader, (read, conditions) in ways.items():
    for condition in conditions:
        counts = tuple(len(rows) for rows in read(condition))
        print(f"{reader}: {condition}: {counts[0]} and {counts[1]}")
        found.append(counts)
lost = (0, 1)
seen = [lost, lost, (2, 1), lost, lost, lost, lost, lost, lost, (1, 1), (0, 2), (0, 2), (2, 2), *[(1, 1)] * 3]
if found != seen:
    sys.exit("the behaviour has changed")
PYTHON
venv/bin/python readers.py 2> errors || { cat errors >&2; exit 1; }
