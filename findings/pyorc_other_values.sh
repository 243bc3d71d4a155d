#!/bin/sh
# pyorc 0.12.0 stores integers that their column cannot hold, and moves times within the second before 1970 by a second.
#
# ORC's smallint has 16 bits and its int 32. pyorc checks neither: it writes all digits, to the file's statistics too, and
# reads them back itself, while pyarrow reads the lower bits. A bigint of more than 64 bits raises TypeError, so that one
# expects the same of the others, and a test of a round trip finds nothing. ORC keeps a time as seconds and a fraction of
# a second; from files of pyarrow's writer pyorc reads the same times rightly.
#
# Expected: TypeError; the time that was written.
# Seen, without an error:
#   smallint 40000             pyorc 40000, pyarrow -25536
#   int 3000000000             pyorc 3000000000, pyarrow -1294967296
#   tinyint 200                -56, by both
#   bigint 2**63               TypeError
#   1969-12-31 23:59:59.5      1970-01-01 00:00:00.5, by both; by pyarrow's writer it is right
#   1969-12-31 23:59:58.5      right
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyorc==0.12.0 pyarrow==26.0.1 || exit 2
"$folder/venv/bin/python" - <<'END'
import datetime as dt
import importlib.metadata
import io
import sys

import pyarrow as pa
import pyarrow.orc
import pyorc


def read(file):
    """Return the value in an ORC file as pyorc and as pyarrow read it, times without a zone."""
    ours = next(pyorc.Reader(io.BytesIO(file)))[0]
    column = pa.orc.read_table(pa.BufferReader(file))["x"]
    if pa.types.is_timestamp(column.type):
        return ours.replace(tzinfo=None), column.cast(pa.timestamp("us"))[0].as_py()
    return ours, column[0].as_py()


def by_pyorc(kind, value):
    file = io.BytesIO()
    try:
        with pyorc.Writer(file, f"struct<x:{kind}>") as writer:
            writer.write((value,))
    except TypeError:
        return "TypeError"
    return read(file.getvalue())


def by_pyarrow(value):
    file = pa.BufferOutputStream()
    pa.orc.write_table(pa.table({"x": pa.array([value], pa.timestamp("us"))}), file)
    return read(file.getvalue().to_pybytes())


late, later = (dt.datetime(1969, 12, 31, 23, 59, second, 500_000) for second in (58, 59))
moved = dt.datetime(1970, 1, 1, 0, 0, 0, 500_000)
utc = dt.timezone.utc
SEEN = [
    ("smallint", 40_000, (40_000, -25_536)),
    ("int", 3_000_000_000, (3_000_000_000, -1_294_967_296)),
    ("tinyint", 200, (-56, -56)),
    ("bigint", 2**63, "TypeError"),
    ("timestamp", later.replace(tzinfo=utc), (moved, moved)),
    ("timestamp", late.replace(tzinfo=utc), (late, late)),
]

print("pyorc", importlib.metadata.version("pyorc"), "pyarrow", pa.__version__)
changed = False
for kind, value, seen in SEEN:
    found = by_pyorc(kind, value)
    print(f"  {kind} {value}:", found if found == "TypeError" else f"pyorc {found[0]}, pyarrow {found[1]}")
    changed |= found != seen
right = by_pyarrow(later)
print(f"  the time before 1970 by pyarrow: pyorc {right[0]}, pyarrow {right[1]}")
if changed or right != (later, later):
    sys.exit("the behaviour has changed")
END
