#!/bin/sh
# PyIceberg 0.12.0 rounds the number in a filter to the type of the column, in deletes too: "n < 2.5" leaves out 2.
#
# Its page "Expression DSL" promises under "Type Safety" that types are checked at run time, with a TypeError if one does
# not match its field. An expression made of objects does raise it for a float and a column of integers. The same filter
# as a text does not: the parser makes a Decimal of the number, which is then rounded to an integer, while the comparison
# stays the same. A datetime object that is compared with a column of dates loses its time of day. Tests with whole
# numbers, and with datetimes at midnight, find nothing.
#
# Expected: the rows that fulfil the condition, as pyarrow finds them, or an error.
# Seen, without an error, with the integers 1, 2, 3 and the first three days of January:
#   n > 1.5                            3          pyarrow 2 3
#   n < 2.5                            1          pyarrow 1 2
#   n = 1.5                            2          pyarrow none
#   delete n < 2.5                     2 3 stay   only 3 should
#   delete n = 1.5                     1 3 stay   all should
#   d < 2 January, 12:00               1          pyarrow 1 2
#   d = 2 January, 12:00               2          pyarrow none
#   GreaterThan("n", 1.5)              TypeError
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
import datetime as dt
import itertools
import os
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThan, LessThan

catalog = SqlCatalog("catalog", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("space")
numbers = itertools.count()
rows = pa.table({"n": pa.array([1, 2, 3], pa.int32()), "d": [dt.date(2026, 1, day) for day in (1, 2, 3)]})
noon = dt.datetime(2026, 1, 2, 12)
n, d = pc.field("n"), pc.field("d").cast(pa.timestamp("us"))


def table():
    made = catalog.create_table(f"space.t{next(numbers)}", rows.schema)
    made.append(rows)
    return made


def kept(scan):
    return sorted(scan.to_arrow()["n"].to_pylist())


def found(condition):
    try:
        return kept(table().scan(row_filter=condition))
    except TypeError:
        return "TypeError"


def deleted(condition):
    made = table()
    made.delete(condition)
    return kept(made.scan())


def right(condition):
    return rows.filter(condition)["n"].to_pylist()


SEEN = {
    "n > 1.5": (found("n > 1.5"), [3], right(n > 1.5)),
    "n < 2.5": (found("n < 2.5"), [1], right(n < 2.5)),
    "n = 1.5": (found("n = 1.5"), [2], right(n == 1.5)),
    "delete n < 2.5": (deleted("n < 2.5"), [2, 3], right(n >= 2.5)),
    "delete n = 1.5": (deleted("n = 1.5"), [1, 3], right(n != 1.5)),
    "d < 2 January, 12:00": (found(LessThan("d", noon)), [1], right(d < noon)),
    "d = 2 January, 12:00": (found(EqualTo("d", noon)), [2], right(d == noon)),
    'GreaterThan("n", 1.5)': (found(GreaterThan("n", 1.5)), "TypeError", right(n > 1.5)),
}
print(f"PyIceberg {pyiceberg.__version__}, pyarrow {pa.__version__}")
for what, (answer, _, by_pyarrow) in SEEN.items():
    print(f"  {what:22} {answer!s:10} pyarrow {by_pyarrow}")
if any(answer != seen or answer == by_pyarrow for answer, seen, by_pyarrow in SEEN.values()):
    sys.exit("the behaviour has changed")
END
