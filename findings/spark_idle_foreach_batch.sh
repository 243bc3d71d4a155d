#!/bin/sh
# PySpark 4.3.0: a function of foreachBatch that leaves one micro-batch of a stateful query alone ends the query for good.
#
# Spark's state of a micro-batch is written by the tasks that compute its rows. A function that runs no action on the
# DataFrame (since it finds in its own store that it has written this micro-batch before, which is how exactly-once
# sinks are made) leaves the state of that version unwritten.
#
# Expected: the state moves on, or an error that says what the function must do, and a query that can be restarted.
# Seen, of a count by key over three files, one a micro-batch, whose second micro-batch is left alone: micro-batch 1 is
#   written to the log of commits, then the query ends with [STREAM_FAILED] "Exception thrown in awaitResult", whose
#   text names no cause. Each restart from the checkpoint ends with CANNOT_LOAD_STATE_STORE, also if the function reads all
#   rows from then on. With an action on each micro-batch all is well.
#
# Exits with 0 as long as this is so; needs Java.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 || exit 2
cat > query.py <<'PYTHON'
import json
import os
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
os.mkdir("arrivals")
for number in range(3):
    with open(f"arrivals/{number}.json", "w") as file:
        file.write(json.dumps({"key": "a"}) + "\n")
    os.utime(f"arrivals/{number}.json", (1_000_000_000 + number,) * 2)


def run(checkpoint, left_alone=None):
    """Return the counts that were read by micro-batch, and how the query ended."""
    counts = {}

    def look(frame, batch):
        if batch != left_alone:
            counts[batch] = [row["count"] for row in frame.collect()]

    stream = spark.readStream.schema("key string").option("maxFilesPerTrigger", 1).json("arrivals")
    writer = stream.groupBy("key").count().writeStream.outputMode("update").foreachBatch(look)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        text = str(error)
        return counts, "cannot load its state" if "CANNOT_LOAD_STATE_STORE" in text else text.splitlines()[0][-60:]
    return counts, "well"


found = [run("all"), run("one-left-alone", left_alone=1), run("one-left-alone"), run("one-left-alone")]
committed = sorted(name for name in os.listdir("one-left-alone/commits") if name.isdigit())
for what, (counts, end) in zip(("action on each", "1 left alone", "restarted", "restarted again"), found):
    print(f"Spark {spark.version}, {what}: counts by micro-batch {counts}, ended: {end}")
print(f"in the log of commits: {committed}")
ends = [end for _, end in found]
if not (
    found[0] == ({0: [1], 1: [2], 2: [3]}, "well")
    and found[1][0] == {0: [1]}
    and "awaitResult" in ends[1]
    and ends[2:] == ["cannot load its state"] * 2
    and committed == ["0", "1"]
):
    sys.exit("the behaviour has changed")
PYTHON
venv/bin/python query.py 2> errors || { cat errors >&2; exit 1; }
