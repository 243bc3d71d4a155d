#!/bin/sh
# pg8000 1.31.6 reads the minutes and seconds of a negative interval as positive ones.
#
# The server writes a time of an interval with one sign before it: -01:30:00 is an hour and a half. pg8000 applies the
# sign to the hours alone, and "-00" has none. What it sends itself has days of that sign and a positive time, -1 days
# +23:30:00, which it reads rightly: a round trip finds nothing, but differences of times that the server computes are
# wrong.
#
# Expected: the intervals, as psycopg reads them.
# Seen, without an error, by minutes:
#   interval '-00:30:00'                    30           psycopg -30
#   interval '-01:30:00'                    -30          psycopg -90
#   interval '1 day -00:30:00'              1470         psycopg 1410
#   12:00 minus 12:45, both timestamps      45           psycopg -45
#   the same plus 15 minutes                30           psycopg -30
#   timedelta(minutes=-30) sent             -30          psycopg -30
#
# Exits with 0 as long as this is so.
. "$(dirname "$0")/support/postgresql"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pg8000==1.31.6 || exit 2
served

"$python" - <<'PYTHON'
import datetime as dt
import importlib.metadata
import os
from urllib.parse import urlsplit

import pg8000.dbapi
import psycopg

server = os.environ["server"]
BEFORE = "timestamp '2026-01-01 12:00' - timestamp '2026-01-01 12:45'"
SEEN = [
    ("interval '-00:30:00'", 30, -30),
    ("interval '-01:30:00'", -30, -90),
    ("interval '1 day -00:30:00'", 1470, 1410),
    (BEFORE, 45, -45),
    (f"{BEFORE} + interval '15 minutes'", 30, -30),
    ("cast(%s as interval)", -30, -30),
]

ours = pg8000.dbapi.connect(user="app", host="127.0.0.1", port=urlsplit(server).port, database="postgres").cursor()
print("pg8000", importlib.metadata.version("pg8000"), "psycopg", psycopg.__version__)
found = []
with psycopg.connect(server) as direct:
    for expression, *_ in SEEN:
        sent = [dt.timedelta(minutes=-30)] if "%s" in expression else []
        ours.execute(f"select {expression}", sent)
        values = ours.fetchone()[0], direct.execute(f"select {expression}", sent).fetchone()[0]
        minutes = [value / dt.timedelta(minutes=1) for value in values]
        print(f"  {expression}: {minutes[0]:g}, psycopg {minutes[1]:g}")
        found.append((expression, *minutes))
if found != SEEN:
    raise SystemExit("the behaviour has changed")
PYTHON
