#!/bin/sh
# plyvel 1.5.1: a reverse iterator finds nothing where the only key of its range is the one at which the range starts.
#
# `include_start` is true unless one says otherwise, and a prefix is a range that starts at the prefix itself: the newest
# entry of a group, `next(db.iterator(prefix=..., reverse=True), None)`, is not found while the group has one entry with
# that key. With a second key in the range both are found, so that a test with several rows finds nothing.
#
# Expected: `reverse=True` gives what the same iterator gives without it, in the other order.
# Seen, without an error, of the keys a, b, b1 and c:
#   prefix a              forward a      reverse none
#   start a, stop b       forward a      reverse none
#   start c               forward c      reverse none
#   prefix b              forward b b1   reverse b1 b
#   stop b                forward a      reverse a
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check plyvel==1.5.1 || exit 2
"$folder/venv/bin/python" - "$folder/database" <<'END'
import sys

import plyvel

RANGES = [{"prefix": b"a"}, {"start": b"a", "stop": b"b"}, {"start": b"c"}, {"prefix": b"b"}, {"stop": b"b"}]
SEEN = [("a", ""), ("a", ""), ("c", ""), ("b b1", "b1 b"), ("a", "a")]

found = []
with plyvel.DB(sys.argv[1], create_if_missing=True) as database:
    for key in (b"a", b"b", b"b1", b"c"):
        database.put(key, b"value")
    for bounds in RANGES:
        ways = [b" ".join(database.iterator(reverse=way, include_value=False, **bounds)).decode() for way in (False, True)]
        found.append(tuple(ways))
        shown = ", ".join(f"{name} {bound.decode()}" for name, bound in bounds.items())
        print(f"plyvel {plyvel.__version__}, {shown:18} forward {ways[0] or 'none':6} reverse {ways[1] or 'none'}")
if found != SEEN:
    sys.exit("the behaviour has changed")
END
