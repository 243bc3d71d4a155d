#!/bin/sh
# Spark 4.3.0 on PostgreSQL by JDBC: conditions and sums that Spark hands to the server mean something else there.
#
# pushDownPredicate and pushDownAggregate are on by default, and Spark does not check the rows that come back. Its
# documentation says of the first option that it is "usually turned off when the predicate filtering is performed faster by
# Spark": a matter of speed. With both options off the same statements give the right answers.
#
# Expected: what Spark answers when it computes the same itself.
# Seen, without an error, by a JDBCTableCatalog with the options on, of weight also by spark.read.format("jdbc"):
#   cast(price as int) = 2, price 2.70       not found; cast(price as int) = 3 finds it: PostgreSQL's casts round
#   group by cast(price as int)              a group 3
#   weight = cast(0.1 as float), weight 0.1  not found: Spark sends the text 0.1, a number that no real equals
#   second(at) = 59, at 23:59:59.5           not found: PostgreSQL's seconds have a fraction
#   sum(weight) of 16777216, 1 and 1         16777216: PostgreSQL adds reals as reals, Spark as doubles
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

with psycopg.connect(os.environ["server"], autocommit=True) as connection:
    connection.execute("create table goods (id int, price numeric(10, 2), weight real, at timestamp)")
    connection.execute("""insert into goods values
        (1, 2.70, 0.1, '2026-01-01 23:59:59.5'),
        (2, 1.00, 16777216, '2026-01-01'), (3, 1.00, 1, '2026-01-01'), (4, 1.00, 1, '2026-01-01')""")

url = re.sub("postgresql://(.*)@(.*)", r"jdbc:postgresql://\2?user=\1", os.environ["server"])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.driver.extraClassPath", sys.argv[1]).config("spark.sql.shuffle.partitions", "1")
OFF = {"pushDownPredicate": "false", "pushDownAggregate": "false"}
for name, options in (("pushed", {}), ("spark", OFF)):
    prefix = f"spark.sql.catalog.{name}"
    builder.config(prefix, "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    for option, value in {"url": url, "driver": "org.postgresql.Driver", **options}.items():
        builder.config(f"{prefix}.{option}", value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for name, options in (("pushed", {}), ("spark", OFF)):
    frame = spark.read.format("jdbc").options(url=url, dbtable="goods", driver="org.postgresql.Driver", **options).load()
    frame.createOrReplaceTempView(f"read_{name}")

SEEN = {
    "select id from T where cast(price as int) = 2": ([], [1]),
    "select id from T where cast(price as int) = 3": ([1], []),
    "select cast(price as int) n from T where id = 1 group by n": ([3], [2]),
    "select id from T where weight = cast(0.1 as float)": ([], [1]),
    "select id from READ where weight = cast(0.1 as float)": ([], [1]),
    "select id from T where second(at) = 59": ([], [1]),
    "select sum(weight) from T where id > 1": ([16777216.0], [16777218.0]),
}


def answer(statement, name):
    names = {"T": f"{name}.public.goods", "READ": f"read_{name}"}
    return [row[0] for row in spark.sql(re.sub("T$|READ|T(?= )", lambda one: names[one[0]], statement)).collect()]


found = {statement: (answer(statement, "pushed"), answer(statement, "spark")) for statement in SEEN}
print(f"Spark {spark.version}, PostgreSQL JDBC driver {os.path.basename(sys.argv[1])}; READ is spark.read.format('jdbc')")
for statement, (pushed, computed) in found.items():
    print(f"  {statement:60} pushed {pushed}, by Spark {computed}")
if found != SEEN:
    sys.exit("the behaviour has changed")
PYTHON
TZ=UTC "$python" "$work/query.py" "$(echo "$work"/jars/*.jar)" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
