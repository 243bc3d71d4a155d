#!/bin/sh
# Daft 0.6.14 divides decimals wrongly once the dividend has a type of 15 digits or more: 3105.94 / 2 is 0.000052...
#
# Daft multiplies the dividend by a power of ten that grows with the digits of its type, and from 15 digits on the product exceeds 128 bits
# and wraps around. The quotient has the right type and any value, often a negative one, or is null if it does not fit. The digits of the
# type alone count: decimal(18, 2), a common type of amounts, is wrong for all values, decimal(12, 2) is right. Sums and products
# are right, and a quotient whose type would have more than 38 digits is an error when the query is planned, so that one relies on the rest.
#
# Expected: 1552.97 and 31.855794..., as by pyarrow; or an error.
# Seen, without an error, of the amount 3105.94 and the price 97.50 (the first digits):
#   decimal(14, 2)   amount / 2    1552.97     amount / price   31.855794
#   decimal(15, 2)   amount / 2      21.69     amount / price    0.445114
#   decimal(16, 2)   amount / 2      -0.41     amount / price   -0.008594
#   decimal(18, 2)   amount / 2       0.00     amount / price    0.000001
#   the same by SQL; 9999999999999999.99 / 1.10 of decimal(18, 2) is null
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check daft==0.6.14 pyarrow==26.0.1 || exit 2
cd "$folder"
export DO_NOT_TRACK=1
venv/bin/python - <<'END'
import os
import sys
from decimal import ROUND_DOWN, Decimal

import daft
import pyarrow as pa
import pyarrow.compute as pc

SEEN = {
    14: ["1552.970000", "31.855794"],
    15: ["21.699348", "0.445114"],
    16: ["-0.419004", "-0.008594"],
    18: ["0.000052", "0.000001"],
}


def shown(number):
    """Return the first six digits after the point, as a text."""
    return str(number.quantize(Decimal("0.000001"), ROUND_DOWN))


def quotients(digits, amount, price):
    """Return the quotients of a row by expressions, by SQL and by pyarrow."""
    kind = pa.decimal128(digits, 2)
    row = pa.table({"amount": pa.array([Decimal(amount)], kind), "price": pa.array([Decimal(price)], kind)})
    frame = daft.from_arrow(row)
    ways = (
        frame.select((daft.col("amount") / 2).alias("half"), (daft.col("amount") / daft.col("price")).alias("pieces")),
        daft.sql("select amount / 2 as half, amount / price as pieces from row", row=frame),
    )
    found = [list(way.to_pylist()[0].values()) for way in ways]
    return *found, pc.divide(row["amount"], row["price"])[0].as_py()


print(f"daft {daft.__version__}, pyarrow {pa.__version__}")
changed = False
for digits, seen in SEEN.items():
    by_expressions, by_sql, right = quotients(digits, "3105.94", "97.50")
    found = [shown(number) for number in by_expressions]
    print(f"  decimal({digits}, 2): 3105.94 / 2 = {found[0]}, 3105.94 / 97.50 = {found[1]}; pyarrow {shown(right)}")
    changed |= found != seen or by_sql != by_expressions or shown(right) != "31.855794"
by_expressions, by_sql, right = quotients(18, "9999999999999999.99", "1.10")
print(f"  decimal(18, 2): 9999999999999999.99 / 1.10 = {by_expressions[1]}; pyarrow {right}")
changed |= by_expressions[1] is not None or by_sql[1] is not None
sys.stdout.flush()
if changed:
    print("the behaviour has changed", file=sys.stderr)
os._exit(1 if changed else 0)  # without Daft's threads, which may abort at the end of Python
END
