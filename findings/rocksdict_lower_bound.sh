#!/bin/sh
# rocksdict 0.3.29 (RocksDB in Python): the lower bound of an iterator is taken for its upper bound.
#
# `ReadOptions.set_iterate_lower_bound` is documented to set the lower bound. It sets the upper one: an iterator with a lower bound shows
# just the keys that it should leave out, in both directions, and of two bounds the one that was set last counts, as the upper.
# `from_key` of `keys` and `items` is right.
#
# Expected: with a lower bound of 020, the keys from 020 on.
# Seen, without an error, of the keys 000, 010, ... 090 (raw mode):
#   lower bound 020                    000 010
#   upper bound 050                    000 010 020 030 040
#   lower bound 020, upper bound 050   000 010 020 030 040
#   upper bound 050, lower bound 020   000 010
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check rocksdict==0.3.29 || exit 2
"$folder/venv/bin/python" - "$folder/database" <<'END'
import sys
from importlib.metadata import version

from rocksdict import Options, Rdict, ReadOptions

SEEN = [
    ([("lower", b"020")], "000 010"),
    ([("upper", b"050")], "000 010 020 030 040"),
    ([("lower", b"020"), ("upper", b"050")], "000 010 020 030 040"),
    ([("upper", b"050"), ("lower", b"020")], "000 010"),
]

print("rocksdict", version("rocksdict"))
changed = False
with Rdict(sys.argv[1], Options(raw_mode=True)) as database:
    for number in range(0, 100, 10):
        database[b"%03d" % number] = b""
    for bounds, keys in SEEN:
        found = []
        for backwards in (False, True):
            options = ReadOptions()
            for which, bound in bounds:
                getattr(options, f"set_iterate_{which}_bound")(bound)
            found.append(list(database.keys(backwards=backwards, read_opt=options)))
        assert found[0] == found[1][::-1]
        shown = b" ".join(found[0]).decode()
        print(f"  {', '.join(f'{which} bound {bound.decode()}' for which, bound in bounds):34} {shown}")
        changed |= shown != keys
if changed:
    sys.exit("the behaviour has changed")
END
