#!/bin/sh
# fastavro 1.13.1 writes numbers that an Avro int cannot hold; it reads them back itself, but Polars reads other numbers.
#
# An int of Avro has 32 bits. In a union with null the same values raise ValueError, "do not match", so that one expects
# the same of a field that is not nullable. There fastavro also truncates floats to integers, and stores the text "no" as
# true. Avro stores an int in as many bytes as its size needs, so that fastavro reads back more than 32 bits, and a test
# of a round trip finds nothing. `validator=True`, which is not the default, raises an error.
#
# Expected: ValueError, as from the union.
# Seen, without an error:
#   int, 2147483648 (2**31)        fastavro 2147483648, Polars -2147483648
#   int, 1099511627776 (2**40)     fastavro 1099511627776, Polars 0
#   int, 1.7                       1, by both
#   boolean, "no"                  True, by both
#   each in a union with null      ValueError
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check fastavro==1.13.1 polars==2.1.0 || exit 2
"$folder/venv/bin/python" - <<'END'
import io
import sys

import fastavro
import polars as pl


def answers(kind, value):
    """Return the value as fastavro and Polars read it, or the name of the error that it raises when written."""
    schema = {"type": "record", "name": "row", "fields": [{"name": "x", "type": kind}]}
    file = io.BytesIO()
    try:
        fastavro.writer(file, fastavro.parse_schema(schema), [{"x": value}])
    except ValueError as error:
        return type(error).__name__
    file.seek(0)
    return [row["x"] for row in fastavro.reader(file)] + pl.read_avro(io.BytesIO(file.getvalue()))["x"].to_list()


SEEN = {
    ("int", 2**31): [2**31, -(2**31)],
    ("int", 2**40): [2**40, 0],
    ("int", 1.7): [1, 1],
    ("boolean", "no"): [True, True],
}
print(f"fastavro {fastavro.__version__}, Polars {pl.__version__}")
changed = False
for (kind, value), seen in SEEN.items():
    alone, nullable = answers(kind, value), answers(["null", kind], value)
    print(f"  {kind}, {value!r}: fastavro and Polars read {alone}; in a union with null: {nullable}")
    changed |= alone != seen or nullable != "ValueError"
if changed:
    sys.exit("the behaviour has changed")
END
