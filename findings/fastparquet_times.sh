#!/bin/sh
# fastparquet 2026.9.0 reads times that are an hour apart wrongly from DuckDB's files of version 2, and writes seconds
# wrongly.
#
# Reading: DuckDB writes integers and times as DELTA_BINARY_PACKED with parquet_version v2, and pyarrow by
# column_encoding. The encoding holds differences of up to 64 bits; fastparquet loses the upper ones, as of an hour in
# microseconds. For encodings that it does not know it raises NotImplementedError.
# Writing: datetime64[s], which pandas makes of datetime64[D] and by date_range(unit="s"), is stored with the type of
# milliseconds, and with numbers that are a thousandth of the seconds.
#
# Expected: the times of the file or of the frame, or an error.
# Seen, without an error:
#   12:00:00, 12:00:01, 14:00:00 written by DuckDB      read as 12:00:00, 12:00:01, 12:12:37.549056
#   the same by pyarrow, DELTA_BINARY_PACKED            the same; by pyarrow's default encoding all three are right
#   datetime64[s] of 2026-01-01 written by fastparquet  1970-01-01 00:29:27.225 to pyarrow and DuckDB
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    fastparquet==2026.9.0 pandas==3.1.1 pyarrow==26.0.1 duckdb==2.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import datetime as dt
import sys

import duckdb
import fastparquet
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

TIMES = [dt.datetime(2026, 1, 1, 12), dt.datetime(2026, 1, 1, 12, 0, 1), dt.datetime(2026, 1, 1, 14)]
given = pa.table({"t": pa.array(TIMES, pa.timestamp("us"))})
duckdb.sql("copy (from given) to 'duckdb.parquet' (parquet_version v2)")
delta = {"use_dictionary": False, "column_encoding": {"t": "DELTA_BINARY_PACKED"}}
pq.write_table(given, "delta.parquet", **delta)
pq.write_table(given, "default.parquet")
days = pd.DataFrame({"t": np.array(["2026-01-01"], "datetime64[s]")})
fastparquet.write("seconds.parquet", days)


def by_fastparquet(file):
    return [time.to_pydatetime() for time in fastparquet.ParquetFile(file).to_pandas()["t"]]


found = {
    "DuckDB's, by itself": [time for (time,) in duckdb.sql("from 'duckdb.parquet'").fetchall()],
    "DuckDB's, by fastparquet": by_fastparquet("duckdb.parquet"),
    "pyarrow's, DELTA_BINARY_PACKED": by_fastparquet("delta.parquet"),
    "pyarrow's, default": by_fastparquet("default.parquet"),
    "seconds, by pyarrow": pq.read_table("seconds.parquet")["t"].to_pylist(),
    "seconds, by DuckDB": [time for (time,) in duckdb.sql("from 'seconds.parquet'").fetchall()],
}
print(f"fastparquet {fastparquet.__version__}, pandas {pd.__version__}")
print(f"DuckDB {duckdb.__version__}, pyarrow {pa.__version__}")
for what, times in found.items():
    print(f"  {what:31}", *times, sep="  ")
wrong = [*TIMES[:2], dt.datetime(2026, 1, 1, 12, 12, 37, 549056)]
moved = [dt.datetime(1970, 1, 1, 0, 29, 27, 225000)]
if list(found.values()) != [TIMES, wrong, wrong, TIMES, moved, moved]:
    sys.exit("the behaviour has changed")
END
