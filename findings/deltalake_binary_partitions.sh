#!/bin/sh
# deltalake 1.6.6 (delta-rs) does not decode the values of a binary partition column: it writes b"a" and reads b"\\u0061".
#
# The log of a table holds the values of partition columns as text; for binary columns the Delta protocol prescribes "a
# string of escaped binary values". delta-rs escapes the bytes as it writes, and returns the escaped text as it reads.
# A filter by the bytes finds no row. Without partitions the same column is right.
#
# Expected: the bytes that were written, or an error.
# Seen, without an error, with b"a" and b"\xff":
#   to_pyarrow_table        b"\\u0061", b"\\u00FF"
#   QueryBuilder            b"\\u0061", b"\\u00FF"
#   pyarrow, key = b"a"     no row
#   without partitions      b"a", b"\xff"
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import sys

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

rows = pa.table({"n": [1, 2], "key": [b"a", b"\xff"]})


def answers(name, partitions):
    deltalake.write_deltalake(name, rows, partition_by=partitions)
    table = deltalake.DeltaTable(name)
    query = deltalake.QueryBuilder().register("t", table).execute("select key from t order by n")
    return {
        "to_pyarrow_table": table.to_pyarrow_table().sort_by("n")["key"].to_pylist(),
        "QueryBuilder": pa.table(query)["key"].to_pylist(),
        'key = b"a"': table.to_pyarrow_dataset().to_table(filter=pc.field("key") == b"a")["key"].to_pylist(),
    }


found = {"partitioned": answers("parted", ["key"]), "not partitioned": answers("whole", None)}
print(f"deltalake {deltalake.__version__}, pyarrow {pa.__version__}; written: {rows['key'].to_pylist()}")
for table, ways in found.items():
    for way, keys in ways.items():
        print(f"  {table:16} {way:17} {keys}")
escaped, right = [rb"\u0061", rb"\u00FF"], [b"a", b"\xff"]
if [list(ways.values()) for ways in found.values()] != [[escaped, escaped, []], [right, right, [b"a"]]]:
    sys.exit("the behaviour has changed")
END
