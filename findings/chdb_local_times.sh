#!/bin/sh
# chdb 4.4.0 (ClickHouse in Python): a local time in a data frame changes with the zone of the machine, in a Parquet file it does not.
#
# `Python(frame)` takes a time without a zone, as pandas, Polars and Arrow have it, for one in UTC, and computes and compares in the zone
# of the process: west of Greenwich the first hours of a day belong to the day before, and to the month and year before. The type is
# DateTime64 without a zone. Of a Parquet file the same column is DateTime64(6, 'UTC'), and right everywhere. What comes back as a data
# frame is moved back again, so that a round trip finds nothing, and neither does a test on a machine in UTC.
#
# Expected: the same rows, days and hours from both, in every zone.
# Seen, without an error, in New York, of the times 2020-01-01 00:00 and 2020-07-01 02:30:
#                                 Python(frame)                   Parquet file
#   toDate(at), toHour(at)        2019-12-31 19, 2020-06-30 22    2020-01-01 0, 2020-07-01 2
#   at >= '2020-01-01 00:00:00'   the second                      both
#   toYear(at) = 2020             the second                      both
#   select at, as a data frame    both, as they were              both, with the zone UTC
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chdb==4.4.0 pandas==3.1.1 pyarrow==26.0.1 || exit 2
cd "$folder"
TZ=America/New_York venv/bin/python - <<'END'
import sys

import chdb
import pandas as pd
import pyarrow as pa

TIMES = ["2020-01-01 00:00", "2020-07-01 02:30"]
SEEN = {
    "Python(frame)": ([["2019-12-31", 19], ["2020-06-30", 22]], [2], [2]),
    "Python(table)": ([["2019-12-31", 19], ["2020-06-30", 22]], [2], [2]),
    "file('times.parquet')": ([["2020-01-01", 0], ["2020-07-01", 2]], [1, 2], [1, 2]),
}

frame = pd.DataFrame({"id": [1, 2], "at": pd.to_datetime(TIMES).astype("datetime64[us]")})
table = pa.Table.from_pandas(frame)
frame.to_parquet("times.parquet")


def ids(source, condition):
    """Return the ids of the rows of a source for which a condition holds."""
    return chdb.query(f"select id from {source} where {condition} order by id", "DataFrame")["id"].tolist()


print(f"chdb {chdb.__version__}, pandas {pd.__version__}, pyarrow {pa.__version__}; in New York, of {', '.join(TIMES)}:")
changed = False
for source, seen in SEEN.items():
    days = chdb.query(f"select toString(toDate(at)) as day, toHour(at) as hour from {source} order by id", "DataFrame")
    found = (days.values.tolist(), ids(source, "at >= '2020-01-01 00:00:00'"), ids(source, "toYear(at) = 2020"))
    print(f"  {source:22} days and hours {found[0]}, from 2020-01-01 on {found[1]}, of 2020 {found[2]}")
    changed |= found != seen
back = chdb.query("select at from Python(frame) order by id", "DataFrame")["at"]
print(f"  {'Python(frame)':22} back in pandas: {', '.join(map(str, back))}")
changed |= back.tolist() != frame["at"].tolist()
if changed:
    sys.exit("the behaviour has changed")
END
