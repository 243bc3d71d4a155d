#!/bin/sh
# pyarrow 26.0.1: a filter by a list with 0.0 finds no row of a Parquet file, or row group, that holds nothing but 0.0.
#
# A writer gives -0.0 as the minimum of zeros, as Parquet's format asks of it, since readers may distinguish the two.
# pyarrow sees that the minimum equals the maximum, and takes the minimum for the only value of the column. But its lists
# compare floats by their bits, so that 0.0 is not -0.0, although `==` says so. Joins and groups do the same, and a
# rounded or negated amount is often -0.0. A file that also holds another value is right.
#
# Expected: `isin` with one value finds what `==` finds; equal keys are joined and grouped, as DuckDB and Polars do.
# Seen, without an error:
#   a file of 0.0, key == 0.0                    1 row
#   a file of 0.0, key.isin([0.0])               no row, nor by isin([0.0, 7.0]) or read_table(filters=)
#   a file of 0.0 and 1.0, key.isin([0.0])       1 row
#   in memory 0.0 and -0.0, key.isin([0.0])      1 row; == finds 2
#   the same, joined with 0.0                    1 row; DuckDB and Polars 2
#   the same, group_by(key)                      2 groups; DuckDB and Polars 1
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

key = ds.field("key")
rows, names = pa.table({"key": [0.0, -0.0]}), pa.table({"key": [0.0]})
frame = pl.from_arrow(rows)


def by_file(values):
    """Return how many rows of a file with these values each filter finds."""
    pq.write_table(pa.table({"key": values}), "rows.parquet")
    file = ds.dataset("rows.parquet")
    counts = [len(file.to_table(filter=one)) for one in (key == 0.0, key.isin([0.0]), key.isin([0.0, 7.0]))]
    return [*counts, len(pq.read_table("rows.parquet", filters=[("key", "in", [0.0])]))]


found = {
    "a file of 0.0": by_file([0.0]),
    "a file of 0.0, 1.0": by_file([0.0, 1.0]),
    "in memory, == and isin": [len(rows.filter(key == 0.0)), len(rows.filter(key.isin([0.0])))],
    "join; DuckDB, Polars": [
        len(rows.join(names, "key", join_type="inner")),
        len(duckdb.sql("from rows join names using (key)").fetchall()),
        frame.join(pl.from_arrow(names), on="key").height,
    ],
    "groups; DuckDB, Polars": [
        len(rows.group_by("key").aggregate([])),
        len(duckdb.sql("select key from rows group by key").fetchall()),
        frame.group_by("key").len().height,
    ],
}
print(f"pyarrow {pa.__version__}, DuckDB {duckdb.__version__}, Polars {pl.__version__}")
for way, counts in found.items():
    print(f"  {way:24}", *counts)
if list(found.values()) != [[1, 0, 0, 0], [1, 1, 1, 1], [2, 1], [1, 2, 2], [2, 1, 1]]:
    sys.exit("the behaviour has changed")
END
