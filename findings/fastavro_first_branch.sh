#!/bin/sh
# fastavro 1.13.1 writes a value of a union by the first branch that accepts it, though a later one would hold it exactly.
#
# In a union of a date and a timestamp a datetime loses its time of day, as a Python datetime is also a date; in a union
# of double and long an integer beyond 2**53 is rounded. The documentation of the writer names one ambiguity, records that
# fit two branches, and pairs of a name and a value as its remedy. Avro's specification names no order in which a writer
# tries the branches. With the branches in the other order both values are right.
#
# Expected: a branch that holds the value.
# Seen, without an error:
#   [null, date, timestamp-micros], a datetime at noon       the date
#   [null, timestamp-micros, date], the same                 noon
#   [null, double, long], 9007199254740993 (2**53 + 1)       9007199254740992.0
#   [null, long, double], the same                           9007199254740993
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check fastavro==1.13.1 || exit 2
"$folder/venv/bin/python" - <<'END'
import datetime as dt
import io
import sys

import fastavro

DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "timestamp-micros"}
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
SEEN = [
    (["null", DATE, TIME], NOON, NOON.date()),
    (["null", TIME, DATE], NOON, NOON),
    (["null", "double", "long"], 2**53 + 1, 2**53),
    (["null", "long", "double"], 2**53 + 1, 2**53 + 1),
]
print("fastavro", fastavro.__version__)
changed = False
for branches, value, seen in SEEN:
    schema = {"type": "record", "name": "row", "fields": [{"name": "x", "type": branches}]}
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(schema), [{"x": value}])
    file.seek(0)
    found = next(fastavro.reader(file))["x"]
    names = ", ".join(branch if isinstance(branch, str) else branch["logicalType"] for branch in branches)
    print(f"  [{names}], {value}: {found!r}")
    changed |= type(found) is not (float if branches[1] == "double" else type(seen)) or found != seen
if changed:
    sys.exit("the behaviour has changed")
END
