#!/bin/sh
# HBase 2.6.1's Thrift gateway executes all puts of a batch first and then all deletes, whatever their order is.
#
# A batch that deletes a row, or a column of it, and then puts it anew, so that nothing old remains, loses what it puts.
# The gateway's interface calls a batch "a series of mutations on a single row", and happybase sends them in order.
#
# Expected: as without a batch, the new value; or an error.
# Seen, without an error:
#   delete(row), put(row, new)           the row is gone
#   delete(row, column), put(row, new)   the row is gone
#   the same calls without a batch       new
#
# Exits with 0 as long as this is so; needs Java 17 and Maven, and some 200 MB.
. "$(dirname "$0")/support/hbase"
served

"$python" - "$gateway" <<'PYTHON'
import sys
import time

import happybase

table = happybase.Connection("127.0.0.1", int(sys.argv[1]), timeout=60_000).table("t")


def fill(writer, row, *columns, pause=0.0):
    writer.delete(row, *columns)
    time.sleep(pause)  # a delete hides a put of its own millisecond
    writer.put(row, {b"f:c": b"new"})


found = {}
for row, columns in ((b"row", []), (b"column", [[b"f:c"]])):
    table.put(row, {b"f:c": b"old"})
    with table.batch() as batch:
        fill(batch, row, *columns)
    found["batch, delete the " + row.decode()] = table.row(row)
    fill(table, row, *columns, pause=0.1)
    found["no batch, delete the " + row.decode()] = table.row(row)
print("expected: the new value in all")
for way, cells in found.items():
    print(f"seen: {way}: {cells}")
if list(found.values()) != [{}, {b"f:c": b"new"}] * 2:
    sys.exit("the behaviour has changed")
PYTHON
