#!/bin/sh
# ADBC's driver of PostgreSQL 1.13.0: `adbc_ingest` with mode "append" writes the bits of a number into a column of another
# type of as many bytes, and the column then holds other numbers.
#
# The driver copies in PostgreSQL's binary format, which has no types in it, by the type in Arrow and not by that of the
# column. Other pairs of types end in an error of the server, by the number of bytes, so that one relies on that; a
# numeric column gets the right numbers. Polars' `write_database` appends in this way: a column of
# floats without fractions that came as integers is enough.
#
# Expected: the numbers that were sent, as `execute` with parameters and COPY of text store them, or an error.
# Seen, without an error:
#   int64 1, 2 to double precision                 5e-324, 1e-323; by Polars too
#   double 1.5 to bigint                           4609434218613702656
#   float 1.5 to integer                           1069547520
#   int64 5 to timestamp                           5 microseconds after 2000
#   int64 1, 2 to integer                          an error
#   int64 1, 2 to numeric                          1, 2
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    adbc-driver-postgresql==1.13.0 adbc-driver-manager==1.13.0 pyarrow==26.0.1 polars==2.1.0 || exit 2
served

"$python" - <<'PYTHON'
import os

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi as dbapi
import polars as pl
import psycopg
import pyarrow as pa

server = os.environ["server"]
SEEN = [
    (pa.array([1, 2], pa.int64()), "double precision", ["5e-324", "1e-323"]),
    (pa.array([1.5], pa.float64()), "bigint", ["4609434218613702656"]),
    (pa.array([1.5], pa.float32()), "integer", ["1069547520"]),
    (pa.array([5], pa.int64()), "timestamp", ["2000-01-01 00:00:00.000005"]),
    (pa.array([1, 2], pa.int64()), "integer", "error"),
    (pa.array([1, 2], pa.int64()), "numeric", ["1", "2"]),
]


def stored(kind, append):
    """Return the texts in a new column once `append` has written it, or that there was an error."""
    with psycopg.connect(server, autocommit=True) as direct:
        direct.execute("drop table if exists numbers")
        direct.execute(f"create table numbers (n {kind})")
        try:
            with dbapi.connect(server) as connection:
                append(connection)
                connection.commit()
        except dbapi.Error:
            return "error"
        return [text for (text,) in direct.execute("select n::text from numbers")]


def ingest(values):
    def append(connection):
        with connection.cursor() as cursor:
            cursor.adbc_ingest("numbers", pa.table({"n": values}), mode="append")

    return append


def by_polars(connection):
    pl.DataFrame({"n": [1, 2]}).write_database("numbers", connection, if_table_exists="append")


print("adbc-driver-postgresql", adbc_driver_postgresql.__version__, "pyarrow", pa.__version__)
changed = False
for values, kind, seen in SEEN:
    found = stored(kind, ingest(values))
    print(f"  {values.type} {values.to_pylist()} to {kind}: {found}")
    changed |= found != seen
found = stored("double precision", by_polars)
print(f"  Polars {pl.__version__}, int64 [1, 2] to double precision: {found}")
if changed or found != SEEN[0][2]:
    raise SystemExit("the behaviour has changed")
PYTHON
