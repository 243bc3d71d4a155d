#!/bin/sh
# ADBC's driver of PostgreSQL 1.13.0: large unsigned numbers become negative, both ways, and arrays lose their dimensions.
#
# A column of unsigned 64-bit numbers, such as hashes, becomes one of bigint. ADBC's driver of SQLite, which has no such
# type either, raises an error. An oid of PostgreSQL is an unsigned number of 32 bits, and arrives as a signed one. An
# array of arrays arrives as one flat list, whose type is that of a list of numbers.
#
# Expected: the values, or an error.
# Seen, without an error:
#   uint64 2**63, 2**64 - 1 ingested          -9223372036854775808, -1; SQLite: an error
#   oid 3000000000 read                       -1294967296
#   array[[1, 2], [3, 4]] read                [1, 2, 3, 4]; psycopg [[1, 2], [3, 4]]
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check adbc-driver-postgresql==1.13.0 \
    adbc-driver-sqlite==1.13.0 adbc-driver-manager==1.13.0 pyarrow==26.0.1 || exit 2
served

"$python" - <<'PYTHON'
import os

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi as postgresql
import adbc_driver_sqlite.dbapi as sqlite
import psycopg
import pyarrow as pa

server = os.environ["server"]
HASHES = pa.table({"n": pa.array([1, 2**63, 2**64 - 1], pa.uint64())})
QUERY = "select 3000000000::oid as oid, array[[1, 2], [3, 4]] as matrix"


def ingested(driver, *where):
    with driver.connect(*where) as connection, connection.cursor() as cursor:
        try:
            cursor.adbc_ingest("hashes", HASHES)
            cursor.execute("select n from hashes")
            return [n for (n,) in cursor.fetchall()]
        except driver.Error:
            return "error"


with postgresql.connect(server) as connection, connection.cursor() as cursor:
    cursor.execute(QUERY)
    table = cursor.fetch_arrow_table()
with psycopg.connect(server) as connection:
    right = connection.execute(QUERY).fetchone()
found = {
    "hashes in PostgreSQL": ingested(postgresql, server),
    "hashes in SQLite": ingested(sqlite),
    "oid, matrix": tuple(table.to_pylist()[0].values()),
    "psycopg": right,
}
print("adbc-driver-postgresql", adbc_driver_postgresql.__version__, "hashes:", HASHES["n"].to_pylist())
for what, values in found.items():
    print(f"  {what:21} {values}")
if list(found.values()) != [
    [1, -(2**63), -1],
    "error",
    (-1294967296, [1, 2, 3, 4]),
    (3000000000, [[1, 2], [3, 4]]),
]:
    raise SystemExit("the behaviour has changed")
PYTHON
