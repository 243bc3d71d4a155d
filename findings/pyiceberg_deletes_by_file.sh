#!/bin/sh
# PyIceberg 0.12.0: whether a delete removes a null or a NaN depends on the other rows of its file.
#
# PyIceberg drops a file as a whole if its statistics show that all its rows fulfil the filter. The files that it writes
# have no counts of NaN, and for `!=` a null counts as fulfilling there. Other files it writes anew, without the rows that
# a scan finds. So the same rows are deleted or kept depending on how appends and compactions spread them over files.
# `Table.delete` documents its filter as "the predicate that used to remove rows".
#
# Expected: a delete removes the rows that a scan with the same filter finds.
# Seen, without an error; in each case the scan finds the 2 or the 3 alone:
#   1, 2, NaN in one file          delete x > 1.5   1 NaN stay
#   1 and 2, NaN in two files      delete x > 1.5   1 stays
#   2, 3, null in one file         delete x != 2    2 null stay
#   2 and 3, null in two files     delete x != 2    2 stays
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "pyiceberg[pyarrow,sql-sqlite]==0.12.0" pyarrow==26.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import itertools
import os
import sys

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

NAN = float("nan")
catalog = SqlCatalog("catalog", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("space")
numbers = itertools.count()


def values(table, **conditions):
    return " ".join(sorted(str(one) for one in table.scan(**conditions).to_arrow()["x"].to_pylist()))


def answers(kind, files, condition):
    """Return the values that a scan with the condition finds, and those that a delete with it leaves."""
    schema = pa.schema([("x", kind)])
    table = catalog.create_table(f"space.t{next(numbers)}", schema)
    for file in files:
        table.append(pa.table([pa.array(file, kind)], schema))
    found = values(table, row_filter=condition)
    table.delete(condition)
    return found, values(table)


CASES = [
    (pa.float64(), [[1.0, 2.0, NAN]], "x > 1.5", ("2.0", "1.0 nan")),
    (pa.float64(), [[1.0], [2.0, NAN]], "x > 1.5", ("2.0", "1.0")),
    (pa.int64(), [[2, 3, None]], "x != 2", ("3", "2 None")),
    (pa.int64(), [[2], [3, None]], "x != 2", ("3", "2")),
]
print("PyIceberg", pyiceberg.__version__)
changed = False
for kind, files, condition, seen in CASES:
    answer = answers(kind, files, condition)
    print(f"  files {files!s:22} {condition:8} a scan finds {answer[0]:4} a delete leaves {answer[1]}")
    changed |= answer != seen
if changed:
    sys.exit("the behaviour has changed")
END
