#!/bin/sh
# Polars 2.1.0 `scan_pyarrow_dataset`: filters of times with a zone are off by the zone's offset.
#
# Polars hands the condition to pyarrow, where 03:00 in Berlin arrives as 01:00 in Berlin, which is the time in UTC. Neither
# of the two is wrong alone: `scan_parquet` of the same file, `allow_pyarrow_filter=False` and pyarrow's own filter find the
# right rows. The documentation warns of conditions that compare nulls, and of no others. Tests in UTC find nothing.
#
# Expected: the rows whose times fulfil the condition.
# Seen, without an error, of the hours 0, 1, 2, 3 and 12 of a day in Berlin, two hours ahead of UTC:
#   t == 1        none             otherwise 1
#   t >= 2        0 1 2 3 12       otherwise 2 3 12
#   t < 2         none             otherwise 0 1
#   t in (3)      1                otherwise 3
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 tzdata==2026.6 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import datetime as dt
import sys
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq


def hour(number, zone="Europe/Berlin"):
    return dt.datetime(2026, 7, 1, number, tzinfo=ZoneInfo(zone))


def conditions(column, zone):
    """Return conditions on a column of Polars or pyarrow."""
    within = [hour(3, zone)]
    members = column.is_in(within) if isinstance(column, pl.Expr) else column.isin(pa.array(within))
    return {
        "t == 1": column == hour(1, zone),
        "t >= 2": column >= hour(2, zone),
        "t < 2": column < hour(2, zone),
        "t in (3)": members,
    }


def found(zone):
    """Return the hours that each reader finds, by condition."""
    times = pa.array([hour(number, zone) for number in (0, 1, 2, 3, 12)], pa.timestamp("us", zone))
    pq.write_table(pa.table({"t": times}), "t.parquet")
    dataset = ds.dataset("t.parquet")
    frames = {
        "scan_pyarrow_dataset": pl.scan_pyarrow_dataset(dataset),
        "allow_pyarrow_filter=False": pl.scan_pyarrow_dataset(dataset, allow_pyarrow_filter=False),
        "scan_parquet": pl.scan_parquet("t.parquet"),
    }
    answers = {
        name: {what: frame.filter(one).collect()["t"].to_list() for what, one in conditions(pl.col("t"), zone).items()}
        for name, frame in frames.items()
    }
    answers["pyarrow"] = {
        what: dataset.to_table(filter=one)["t"].to_pylist() for what, one in conditions(pc.field("t"), zone).items()
    }
    return {name: [[time.hour for time in times] for times in by.values()] for name, by in answers.items()}


print(f"Polars {pl.__version__}, pyarrow {pa.__version__}; hours found by", *conditions(pl.col("t"), "UTC"), sep=", ")
right = [[1], [2, 3, 12], [0, 1], [3]]
changed = False
for zone in ("UTC", "Europe/Berlin"):
    for name, answer in found(zone).items():
        print(f"  {zone:14} {name:27}", *answer)
        moved = zone != "UTC" and name == "scan_pyarrow_dataset"
        changed |= answer != ([[], [0, 1, 2, 3, 12], [], [1]] if moved else right)
if changed:
    sys.exit("the behaviour has changed")
END
