#!/bin/sh
# fastparquet 2026.9.0: the filter "not in" drops all rows of a row group if its minimum or its maximum is listed.
#
# "not in" is one of the documented operations of `filters` (ParquetFile.to_pandas), which skips row groups by their
# statistics; `row_filter=True` then filters rows. "!=" is right, and so is a list with neither end of the row group, so
# that a test that excludes a value in the middle finds nothing.
#
# Expected: all rows whose value is not listed, as from pyarrow; without `row_filter` all rows of such row groups.
# Seen, without an error, with 1, 5, 9 in one row group:
#   not in (1)       none, without row_filter none      pyarrow 5 9
#   not in (1, 9)    none, without row_filter none      pyarrow 5
#   not in (5)       1 9, without row_filter 1 5 9      pyarrow 1 9
#   != 1             5 9, without row_filter 1 5 9      pyarrow 5 9
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import sys

import fastparquet
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

fastparquet.write("rows.parquet", pd.DataFrame({"n": [1, 5, 9]}))
SEEN = {
    ("not in", (1,)): ([], [], [5, 9]),
    ("not in", (1, 9)): ([], [], [5]),
    ("not in", (5,)): ([1, 9], [1, 5, 9], [1, 9]),
    ("!=", 1): ([5, 9], [1, 5, 9], [5, 9]),
}
file = fastparquet.ParquetFile("rows.parquet")
print(f"fastparquet {fastparquet.__version__}, pyarrow {pa.__version__}")
changed = False
for (name, operand), seen in SEEN.items():
    filters = [("n", name, operand)]
    found = tuple(file.to_pandas(filters=filters, row_filter=by_row)["n"].tolist() for by_row in (True, False))
    by_pyarrow = pq.read_table("rows.parquet", filters=filters)["n"].to_pylist()
    print(f"  {name} {operand!s:7} {found[0]!s:7} without row_filter {found[1]!s:9} pyarrow {by_pyarrow}")
    changed |= (*found, by_pyarrow) != seen
if changed:
    sys.exit("the behaviour has changed")
END
