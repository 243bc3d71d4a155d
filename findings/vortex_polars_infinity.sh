#!/bin/sh
# Polars 2.1.0 on a Vortex file (vortex-data 0.93.0): a filter that compares with infinity or NaN finds no row, whatever is in the file.
#
# `VortexFile.to_polars` promises "predicate pushdown": it reads the filter from Polars' JSON form of an expression. JSON has no
# infinity, Polars writes null for it without an error, and Vortex takes that for a null, with which no comparison is true. "All finite
# values" and an open end of a range, of `is_between` for instance, are empty then, and a missing row cannot be seen in what is left.
# Polars itself does not read this form back. Comparisons with other numbers, and `is_finite`, which Polars does itself, are right.
#
# Expected: the same rows as by Polars' own filter of the same data, in memory or from a Parquet file.
# Seen, without an error, of the rows 1.0, -5.0, infinity and NaN (numbered from 1):
#                                 Parquet, memory   Vortex
#   x < inf                       1 2               none
#   x.is_between(0, inf)          1 3               none
#   x == NaN                      4                 none
#   x != inf                      1 2 4             none
#   (x < inf) | (x == -5)         1 2               2
#   x < 1e308, x.is_finite()      1 2               1 2
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 vortex-data==0.93.0 pyarrow==26.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import sys
from importlib.metadata import version
from math import inf, nan

import polars as pl
import vortex

x = pl.col("x")
CONDITIONS = {
    "x < inf": (x < inf, [1, 2], []),
    "x.is_between(0, inf)": (x.is_between(0, inf), [1, 3], []),
    "x == NaN": (x == nan, [4], []),
    "x != inf": (x != inf, [1, 2, 4], []),
    "(x < inf) | (x == -5)": ((x < inf) | (x == -5), [1, 2], [2]),
    "x < 1e308": (x < 1e308, [1, 2], [1, 2]),
    "x.is_finite()": (x.is_finite(), [1, 2], [1, 2]),
}

frame = pl.DataFrame({"id": [1, 2, 3, 4], "x": [1.0, -5.0, inf, nan]})
frame.write_parquet("x.parquet")
vortex.io.write(vortex.array(frame.to_arrow()), "x.vortex")
readers = {
    "memory": frame.lazy(),
    "Parquet": pl.scan_parquet("x.parquet"),
    "Vortex": vortex.open("x.vortex").to_polars(),
}
print(f"Polars {pl.__version__}, vortex-data {version('vortex-data')}")
changed = False
for text, (condition, right, by_vortex) in CONDITIONS.items():
    found = {
        name: sorted(frame.filter(condition).select("id").collect()["id"].to_list()) for name, frame in readers.items()
    }
    print(f"  {text:22} {found}")
    changed |= found != {"memory": right, "Parquet": right, "Vortex": by_vortex}
if changed:
    sys.exit("the behaviour has changed")
END
