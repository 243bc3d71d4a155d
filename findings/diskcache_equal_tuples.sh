#!/bin/sh
# diskcache 5.6.3: an entry whose key is a tuple is not found by an equal tuple, by where the members' objects came from.
#
# A key that is no text, number or bytes is stored as its pickle, and two keys are one if the pickles are the same bytes. Pickle writes an
# object that a tuple holds twice once, and refers to it; two equal objects it writes twice. So the key of a row with two equal columns
# ("from" and "to", "first" and "last") depends on whether both are one object in memory: literals of a program are, texts that were
# parsed, received or sliced are not. `Index`, which is documented as a mapping, does the same, and comes to hold two entries under equal
# keys. Keys whose members differ are found.
#
# Expected: what is stored under a tuple is found by an equal tuple of the same types, as in any mapping, or the key is refused.
# Seen, without an error:
#   equal pairs of one object and of two       each has its own entry: the first is not found by the second, len() is 2
#   a pair of different texts                  found
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check diskcache==5.6.3 || exit 2
"$folder/venv/bin/python" - "$folder/index" <<'END'
import sys

import diskcache

index = diskcache.Index(sys.argv[1])
literal = ("Oslo", "Oslo")
parsed = tuple("Oslo;Oslo".split(";"))
assert parsed == literal and hash(parsed) == hash(literal)
print("diskcache", diskcache.__version__)

index[literal] = "written with literals"
found = index.get(parsed)
index[parsed] = "written with parsed texts"
print(f"  of one object, of two: found {found!r}, then {len(index)} entries, of {len({*index})} different keys")
differing = index.setdefault(("Oslo", "Bergen"), "a journey") == index.get(tuple("Oslo;Bergen".split(";")))
print(f"  different texts: {'found' if differing else 'not found'}")
if found is not None or len(list(index)) != 3 or len({*index}) != 2 or not differing:
    sys.exit("the behaviour has changed")
END
