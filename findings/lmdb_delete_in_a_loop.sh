#!/bin/sh
# lmdb 3.0.0 (py-lmdb): a loop over a cursor that deletes what it sees, by the cursor, leaves every second entry.
#
# In LMDB itself MDB_NEXT gives the entry after a deleted one, as MDB_GET_CURRENT does: a loop of mdb_cursor_del and
# MDB_NEXT deletes all. py-lmdb's `Cursor.delete` moves to the next entry, as its documentation says, and the iterators
# then move on once more. Backwards the loop ends after one deletion. Entries between others that stay are all deleted, so that a test
# with some expired ones finds nothing. `Transaction.delete` in the same loops is right.
#
# Expected: all entries are seen, or an error.
# Seen, without an error, of the keys 0 to 7:
#   for key, _ in cursor: cursor.delete()               1 3 5 7 stay
#   for key, _ in cursor.iterprev(): cursor.delete()    0 to 6 stay
#   cursor.delete() of 2, 3, 4 and 6                    3 stays
#   transaction.delete(key) of all                      none stays
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lmdb==3.0.0 || exit 2
"$folder/venv/bin/python" - "$folder/database" <<'END'
import sys

import lmdb


def forwards(transaction):
    cursor = transaction.cursor()
    for _ in cursor:
        cursor.delete()


def backwards(transaction):
    cursor = transaction.cursor()
    for _ in cursor.iterprev():
        cursor.delete()


def some(transaction):
    cursor = transaction.cursor()
    for key, _ in cursor:
        if key in (b"2", b"3", b"4", b"6"):
            cursor.delete()


def by_transaction(transaction):
    for key, _ in transaction.cursor():
        transaction.delete(key)


SEEN = [(forwards, "1 3 5 7"), (backwards, "0 1 2 3 4 5 6"), (some, "0 1 3 5 7"), (by_transaction, "")]

print("lmdb", lmdb.__version__, "LMDB", *lmdb.version())
changed = False
with lmdb.open(sys.argv[1]) as environment:
    for delete, stay in SEEN:
        with environment.begin(write=True) as transaction:
            for number in range(8):
                transaction.put(b"%d" % number, b"")
        with environment.begin(write=True) as transaction:
            delete(transaction)
        with environment.begin() as transaction:
            found = b" ".join(transaction.cursor().iternext(values=False)).decode()
        print(f"  {delete.__name__:14} stay: {found or 'none'}")
        changed |= found != stay
if changed:
    sys.exit("the behaviour has changed")
END
