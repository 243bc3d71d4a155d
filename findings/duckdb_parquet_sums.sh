#!/bin/sh
# DuckDB 2.0.1 writes sums of integers to Parquet as doubles, and intervals without their microseconds.
#
# `sum` of a bigint is a hugeint of 128 bits. Parquet has no such type; decimal(38, 0), as which Arrow gets it, would hold
# it, but DuckDB takes double, and rounds totals above 2**53. So do the data frame of pandas and `fetchnumpy`. The unit of
# Parquet's intervals is the millisecond. EXPORT DATABASE in Parquet keeps hugeints, but is no backup of intervals,
# and not of the zones of times. Tests with small sums and whole seconds find nothing.
#
# Expected: the values, or an error.
# Seen, without an error:
#   sum(n) of 9007199254740993 and 0       to_arrow_table and fetchall 9007199254740993
#     copied to Parquet, and read          9007199254740992.0
#     df() and fetchnumpy()                9007199254740992.0
#   exported as Parquet, and imported:
#     interval '1.0015 seconds'            00:00:01.001
#     timetz '10:00+02'                    08:00:00+00
#     hugeint 9007199254740993             9007199254740993
#   exported as CSV, and imported          all three
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 pandas==3.1.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import sys

import duckdb

connection = duckdb.connect()
connection.execute("create table totals as select unnest([9007199254740993::bigint, 0::bigint]) as n")
SUM = "select sum(n) as total from totals"
connection.execute(f"copy ({SUM}) to 'total.parquet'")
sums = {
    "fetchall": connection.execute(SUM).fetchone()[0],
    "to_arrow_table": connection.cursor().sql(SUM).to_arrow_table()["total"][0].as_py(),
    "Parquet": connection.execute("from 'total.parquet'").fetchone()[0],
    "df": connection.execute(SUM).df()["total"][0].item(),
    "fetchnumpy": connection.execute(SUM).fetchnumpy()["total"][0].item(),
}
connection.execute("drop table totals")
connection.execute("create table kept (pause interval, opens timetz, id hugeint)")
connection.execute("insert into kept values (interval '1.0015 seconds', '10:00:00+02', 9007199254740993)")
kept = {}
for form in ("csv", "parquet"):
    connection.execute(f"export database '{form}' (format {form})")
    copy = duckdb.connect()
    copy.execute(f"import database '{form}'")
    kept[form] = copy.execute("select pause::varchar, opens::varchar, id::varchar from kept").fetchone()

print("DuckDB", duckdb.__version__)
for way, value in sums.items():
    print(f"  sum by {way}: {value!r}")
for form, values in kept.items():
    print(f"  exported as {form} and imported:", *values)
right, rounded = 9007199254740993, 9007199254740992.0
if list(map(str, sums.values())) != list(map(str, [right, right, rounded, rounded, rounded])) or kept != {
    "csv": ("00:00:01.0015", "10:00:00+02", str(right)),
    "parquet": ("00:00:01.001", "08:00:00+00", str(right)),
}:
    sys.exit("the behaviour has changed")
END
