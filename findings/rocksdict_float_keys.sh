#!/bin/sh
# rocksdict 0.3.29: a range scan over float keys gives other rows than those above its start as soon as a key is negative.
#
# RocksDB compares keys as bytes. rocksdict encodes an int so that the bytes have the order of the numbers, of any size and
# sign, and `keys`, `values` and `items` start at `from_key`, "backwards" if one likes. A float is stored as its IEEE 754
# bits, which have that order for positive numbers alone. Tests with positive floats, or with negative ints, find nothing.
#
# Expected: the order of the numbers, as of ints; or an error for floats.
# Seen, without an error, with the keys -20.5, -3.0, 0.0, 4.5 and 36.6:
#   keys()                                0.0 4.5 36.6 -3.0 -20.5
#   keys(from_key=-10.0)                  -20.5               expected -3.0 0.0 4.5 36.6
#   keys(from_key=-3.0)                   -3.0 -20.5          expected -3.0 0.0 4.5 36.6
#   keys(from_key=0.0, backwards=True)    0.0                 expected 0.0 -3.0 -20.5
#   the same with -20, -3, 0, 4 and 36    as expected
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check rocksdict==0.3.29 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import importlib.metadata
import sys

from rocksdict import Rdict

FLOATS = [-20.5, -3.0, 0.0, 4.5, 36.6]
SCANS = [{}, {"from_key": -10.0}, {"from_key": -3.0}, {"from_key": 0.0, "backwards": True}]
SEEN = [[0.0, 4.5, 36.6, -3.0, -20.5], [-20.5], [-3.0, -20.5], [0.0]]


def scans(kind):
    """Return the keys of each scan of a database whose keys are of a kind, and those expected."""
    database = Rdict(kind.__name__)
    keys = [kind(number) for number in FLOATS]
    for key in keys:
        database[key] = str(key)
    found, right = [], []
    for scan in SCANS:
        backwards, start = scan.get("backwards", False), scan.get("from_key", keys[0])
        bounds = {**scan, "from_key": kind(start)} if "from_key" in scan else scan
        found.append(list(database.keys(**bounds)))
        within = [key for key in keys if (key <= start if backwards else key >= start)]
        right.append(within[::-1] if backwards else within)
    database.close()
    return found, right


print("rocksdict", importlib.metadata.version("rocksdict"))
floats, ints = scans(float), scans(int)
for kind, (found, right) in (("float", floats), ("int", ints)):
    for scan, keys, expected in zip(SCANS, found, right):
        print(f"  {kind:5} {scan!s:38} {keys}, expected {expected}")
if floats[0] != SEEN or ints[0] != ints[1]:
    sys.exit("the behaviour has changed")
END
