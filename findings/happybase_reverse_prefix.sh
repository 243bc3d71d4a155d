#!/bin/sh
# happybase 1.3.0: `scan(row_prefix=..., reverse=True)` gives a row without the prefix, and leaves out the one that is it.
#
# "If `row_prefix` is specified, only rows with row keys matching the prefix will be returned." happybase makes a range of
# the prefix, includes its start and excludes its end, and exchanges the two for the reverse: now the key after the last of
# the prefix is included, and the prefix itself excluded. The newest row of a prefix, by limit=1, is one of another prefix
# where that has a row of just its name. Rows with longer keys alone, as tests often have, are given rightly.
#
# Expected: the rows of the forward scan, in the other order.
# Seen, without an error, of rows a, a1, a2, b and b1, with the prefix a:
#   forward                       a a1 a2
#   reverse                       b a2 a1
#   reverse, limit=1              b
#   reverse, PrefixFilter('a')    a2 a1 a
#
# Exits with 0 as long as this is so; needs Java 17 and Maven, and some 200 MB.
. "$(dirname "$0")/support/hbase"
served

"$python" - "$gateway" <<'PYTHON'
import sys

import happybase

table = happybase.Connection("127.0.0.1", int(sys.argv[1]), timeout=60_000).table("t")
for key in (b"a", b"a1", b"a2", b"b", b"b1"):
    table.put(key, {b"f:c": b"value"})
SCANS = {
    "forward": ({"row_prefix": b"a"}, "a a1 a2"),
    "reverse": ({"row_prefix": b"a", "reverse": True}, "b a2 a1"),
    "reverse, limit=1": ({"row_prefix": b"a", "reverse": True, "limit": 1}, "b"),
    "reverse, PrefixFilter('a')": ({"filter": b"PrefixFilter('a')", "reverse": True}, "a2 a1 a"),
}
changed = False
for scan, (arguments, seen) in SCANS.items():
    found = b" ".join(key for key, _ in table.scan(**arguments)).decode()
    print(f"seen: {scan:27} {found}")
    changed |= found != seen
if changed:
    sys.exit("the behaviour has changed")
PYTHON
