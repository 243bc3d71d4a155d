#!/bin/sh
# Spark 4.3.0 on PostgreSQL by JDBC: a TIMESTAMP_NTZ, a local time of no zone, changes with the zone of Spark's machine.
#
# Spark makes a java.sql.Timestamp of it on the way, which is an instant in the zone of the JVM; a local time that this
# zone skips in spring becomes the one an hour later. So 02:30 in a column that holds UTC, or the time of another place,
# arrives as a second 03:30. spark.sql.session.timeZone makes no difference, and Spark's own files keep the time. Conditions
# are evaluated by the server on the times that are stored, so that a row is found by a time that it then does not show.
#
# Expected: the local times that are stored, as preferTimestampNTZ and TIMESTAMP_NTZ promise.
# Seen, without an error, with the JVM in Berlin, on the 29th of March 2026:
#   stored 01:30 02:30 03:30    read 01:30 03:30 03:30; 2 distinct ones of 3 in Spark
#   where t = 02:30             one row, of 03:30
#   written 01:30 02:30 03:30   stored 01:30 03:30 03:30
# With the JVM in UTC all is well.
#
# Exits with 0 as long as this is so; needs Java 17 and Maven.
for program in java mvn; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 2; }
done
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 || exit 2
mvn -q -B dependency:copy -Dartifact=org.postgresql:postgresql:42.7.8 -DoutputDirectory="$work/jars" >"$work/maven" 2>&1 ||
    { cat "$work/maven" >&2; exit 2; }
served

cat >"$work/query.py" <<'PYTHON'
import os
import re
import sys

import psycopg
from pyspark.sql import SparkSession

TIMES = ["01:30", "02:30", "03:30"]
database = psycopg.connect(os.environ["server"], autocommit=True)
database.execute("create table if not exists times (t timestamp)")
database.execute("truncate times")
database.execute("insert into times select date '2026-03-29' + unnest(%s::time[])", [TIMES])

url = re.sub("postgresql://(.*)@(.*)", r"jdbc:postgresql://\2?user=\1", os.environ["server"])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.driver.extraClassPath", sys.argv[1]).config("spark.sql.session.timeZone", "UTC")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")


def hours(frame):
    return [row[0] for row in frame.selectExpr("date_format(t, 'HH:mm') h").orderBy("h").collect()]


stored = spark.read.format("jdbc").options(url=url, dbtable="times", preferTimestampNTZ="true").load()
rows = ", ".join(f"(timestamp_ntz'2026-03-29 {time}')" for time in TIMES)
written = spark.sql(f"select * from values {rows} as times(t)")
written.write.mode("overwrite").parquet(sys.argv[2] + ".parquet")
written.write.format("jdbc").options(url=url, dbtable="written").mode("overwrite").save()
found = {
    "type": [stored.schema["t"].dataType.simpleString()],
    "read": hours(stored),
    "distinct": [str(stored.distinct().count())],
    "where t = 02:30": hours(stored.where("t = timestamp_ntz'2026-03-29 02:30'")),
    "Parquet": hours(spark.read.parquet(sys.argv[2] + ".parquet")),
    "written": [row[0] for row in database.execute("select to_char(t, 'HH24:MI') from written order by t")],
}
zone = spark._jvm.java.util.TimeZone.getDefault().getID()
print(f"Spark {spark.version}, {os.path.basename(sys.argv[1])}, JVM in {zone}")
for what, times in found.items():
    print(f"  {what:16}", *times)
moved = ["01:30", "03:30", "03:30"]
berlin = zone == "Europe/Berlin"
if list(found.values()) != [
    ["timestamp_ntz"],
    moved if berlin else TIMES,
    ["2" if berlin else "3"],
    ["03:30" if berlin else "02:30"],
    TIMES,
    moved if berlin else TIMES,
]:
    sys.exit("the behaviour has changed")
PYTHON
for zone in UTC Europe/Berlin; do
    TZ=$zone "$python" "$work/query.py" "$(echo "$work"/jars/*.jar)" "$work/times" 2>"$work/errors" ||
        { cat "$work/errors" >&2; exit 1; }
done
