#!/bin/sh
# Times of zones whose offset has seconds: JSON encoders move the instant, each its own way.
#
# RFC 3339 has no seconds in offsets, so such a time can only be written with another offset, and keeps its instant only if
# the local time is changed with it. Python's own zone data has such offsets: Liberia's was -00:44:30 until 1972, and most
# zones had one before time was standardised.
#
# Expected: the same instant, an error, or Python's isoformat(), which writes the seconds.
# Seen, without a warning, for noon of 1 June 1971 in Africa/Monrovia (12:44:30 UTC):
#   msgspec 0.22.0   JSON drops the seconds of the offset and keeps the local time: 30 s too early; MessagePack is right
#   orjson 3.13.0    rounds the offset to the nearest minute and keeps the local time: 30 s too late
#   pydantic 2.14.4  as msgspec: 30 s too early, after dump_json and validate_json of one type
# So an equality or an order of instants that held before a round trip does not hold after it.
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    msgspec==0.22.0 orjson==3.13.0 pydantic==2.14.4 tzdata==2026.6 || exit 2
"$folder/venv/bin/python" - <<'END'
import datetime as dt
import sys
from zoneinfo import ZoneInfo

import msgspec
import orjson
import pydantic

written = dt.datetime(1971, 6, 1, 12, tzinfo=ZoneInfo("Africa/Monrovia"))
instant = written.astimezone(dt.timezone.utc)
kind = pydantic.TypeAdapter(dt.datetime)
found = {
    f"msgspec {msgspec.__version__} JSON": msgspec.json.decode(msgspec.json.encode(written), type=dt.datetime),
    "msgspec MessagePack": msgspec.msgpack.decode(msgspec.msgpack.encode(written), type=dt.datetime),
    f"orjson {orjson.__version__}": dt.datetime.fromisoformat(orjson.loads(orjson.dumps(written))),
    f"pydantic {pydantic.VERSION}": kind.validate_json(kind.dump_json(written)),
    "isoformat": dt.datetime.fromisoformat(written.isoformat()),
}
print(f"{'written':20}", written)
moved = {}
for name, read in found.items():
    moved[name] = (read - instant).total_seconds()
    print(f"{name:20} {read}  {moved[name]:+.0f} s")
sys.exit(list(moved.values()) != [-30, 0, 30, -30, 0])
END
