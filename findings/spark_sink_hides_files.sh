#!/bin/sh
# Spark 4.3.0 does not read what a batch job appends to a folder that a stream has written to: neither error nor warning.
#
# A stream's file sink lists its files in the subfolder _spark_metadata, and `spark.read` of the folder reads this list in
# place of the folder. `df.write.mode("append")` adds files to the folder, not to the list, and succeeds. So a repair or
# a backfill by a batch job is not there for Spark, also after the stream has ended, while all other readers see it.
#
# Expected: the rows of both, or an error of the append.
# Seen, of one row by a stream, then one by df.write.mode("append"), then again one by the stream:
#   spark.read.parquet(folder)                1, 3
#   spark.read.parquet(folder + "/*.parquet") 1, 2, 3
#   pyarrow                                   1, 2, 3
#
# Exits with 0 as long as this is so; needs Java.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 || exit 2
cat > query.py <<'PYTHON'
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
os.mkdir("arrivals")


def stream(number):
    with open(f"arrivals/{number}.csv", "w") as file:
        file.write(f"{number}\n")
    writer = spark.readStream.schema("n int").csv("arrivals").writeStream.format("parquet")
    query = writer.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start("rows")
    query.awaitTermination()


stream(1)
spark.range(2, 3).selectExpr("cast(id as int) n").write.mode("append").parquet("rows")
stream(3)
found = {
    f"Spark {spark.version}": [row.n for row in spark.read.parquet("rows").collect()],
    "Spark, rows/*.parquet": [row.n for row in spark.read.parquet("rows/*.parquet").collect()],
    f"pyarrow {pa.__version__}": pq.read_table("rows")["n"].to_pylist(),
}
for reader, numbers in found.items():
    print(f"{reader:22}", *sorted(numbers))
if [sorted(numbers) for numbers in found.values()] != [[1, 3], [1, 2, 3], [1, 2, 3]]:
    sys.exit("the behaviour has changed")
PYTHON
venv/bin/python query.py 2> errors || { cat errors >&2; exit 1; }
