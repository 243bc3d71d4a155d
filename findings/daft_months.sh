#!/bin/sh
# Daft 0.6.14 adds months beyond the end of the month, and takes them off within it: January 31 and a month is March 2.
#
# PostgreSQL, DuckDB, Spark and pandas end both in the last day of the month if it has no such day. So does Daft for a minus, but a
# plus counts on into the next month. A month after the last day of January is none of February, "one year ago" and "in one year" do not
# agree, and a date that is the end of a period by PostgreSQL lies in the next period by Daft. Days up to the 28th are right.
#
# Expected: the dates of DuckDB.
# Seen, without an error, of dates and timestamps, by expressions and SQL:
#                             Daft         DuckDB
#   2020-01-31 + 1 month      2020-03-02   2020-02-29
#   2020-08-31 + 6 months     2021-03-03   2021-02-28
#   2020-02-29 + 1 year       2021-03-01   2021-02-28
#   2020-01-31 + -11 months   2019-03-03   2019-02-28
#   2020-03-31 - 1 month      2020-02-29   2020-02-29
#   2020-02-29 - 1 year       2019-02-28   2019-02-28
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check daft==0.6.14 duckdb==2.0.1 || exit 2
cd "$folder"
export DO_NOT_TRACK=1
venv/bin/python - <<'END'
import os
import sys
from datetime import date, datetime, time

import daft
import duckdb

SEEN = {
    (date(2020, 1, 31), "+", 1): (date(2020, 3, 2), date(2020, 2, 29)),
    (date(2020, 8, 31), "+", 6): (date(2021, 3, 3), date(2021, 2, 28)),
    (date(2020, 2, 29), "+", 12): (date(2021, 3, 1), date(2021, 2, 28)),
    (date(2020, 1, 31), "+", -11): (date(2019, 3, 3), date(2019, 2, 28)),
    (date(2020, 3, 31), "-", 1): (date(2020, 2, 29), date(2020, 2, 29)),
    (date(2020, 2, 29), "-", 12): (date(2019, 2, 28), date(2019, 2, 28)),
}

print(f"Daft {daft.__version__}, DuckDB {duckdb.__version__}")
changed = False
for (day, sign, months), seen in SEEN.items():
    frame = daft.from_pydict({"day": [day], "time": [datetime.combine(day, time(10))]})
    interval = daft.interval(months=months)
    moved = [daft.col(name) + interval if sign == "+" else daft.col(name) - interval for name in ("day", "time")]
    row = frame.select(*moved).to_pylist()[0]
    by_sql = daft.sql(f"select date '{day}' {sign} interval '{months} months' as moved").to_pylist()[0]["moved"]
    question = f"select date '{day}' {sign} interval ({months}) month"
    right = duckdb.execute(question).fetchone()[0].date()
    print(f"  {day} {sign} {months:3} months: Daft {row['day']}, DuckDB {right}")
    changed |= (row["day"], right) != seen or by_sql != row["day"] or row["time"] != datetime.combine(seen[0], time(10))
sys.stdout.flush()
if changed:
    print("the behaviour has changed", file=sys.stderr)
os._exit(1 if changed else 0)  # without Daft's threads, which may abort at the end of Python
END
