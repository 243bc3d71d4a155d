#!/bin/sh
# PySpark 4.3.0: Python functions that return their argument move timestamps by an hour, in the hour that a zone has twice.
#
# Spark's TIMESTAMP is an instant. A Python function gets it as a local time without a zone, and what it returns is taken
# for an instant again. In the autumn a local time is that of two instants: each kind of function takes its own one, and
# `fold`, which tells them apart, is lost.
#
# Expected: the instants that were given, or an error.
# Seen, without a warning, in UTC, for 00:30 and 01:30, which are both 02:30 in Berlin on 25 October 2026:
#   udf                                                           00:30 00:30
#   udf without Arrow, pandas_udf, mapInPandas                    01:30 01:30
#   createDataFrame of the rows of collect(), or of toPandas()    01:30 01:30
#   mapInArrow                                                    00:30 01:30
# Tests in UTC find nothing.
#
# Exits with 0 as long as this is so; needs Java.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1 || exit 2
cat > query.py <<'PYTHON'
import datetime as dt
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "Europe/Berlin")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
given = spark.range(0, 2, 1, 1).select(F.expr("timestamp'2026-10-25 00:30:00Z' + make_interval(0, 0, 0, 0, id) as t"))
plain = F.udf(lambda t: t, "timestamp")
pickled = F.udf(lambda t: t, "timestamp", useArrow=False)
in_pandas = F.pandas_udf(lambda series: series, "timestamp")


def instants(frame):
    seconds = [row[0] for row in frame.select(F.unix_timestamp("t")).collect()]
    return [dt.datetime.fromtimestamp(one, dt.timezone.utc).strftime("%H:%M") for one in seconds]


found = {
    "given": instants(given),
    "udf": instants(given.select(plain("t").alias("t"))),
    "udf without Arrow": instants(given.select(pickled("t").alias("t"))),
    "pandas_udf": instants(given.select(in_pandas("t").alias("t"))),
    "mapInPandas": instants(given.mapInPandas(lambda frames: frames, given.schema)),
    "collect, createDataFrame": instants(spark.createDataFrame(given.collect(), given.schema)),
    "toPandas, createDataFrame": instants(spark.createDataFrame(given.toPandas(), given.schema)),
    "mapInArrow": instants(given.mapInArrow(lambda batches: batches, given.schema)),
}
for way, times in found.items():
    print(f"Spark {spark.version}, {way:25}", *times)
right, first, second = ["00:30", "01:30"], ["00:30", "00:30"], ["01:30", "01:30"]
if list(found.values()) != [right, first, second, second, second, second, second, right]:
    sys.exit("the behaviour has changed")
PYTHON
PYSPARK_PYTHON=venv/bin/python TZ=Europe/Berlin venv/bin/python query.py 2> errors || { cat errors >&2; exit 1; }
