#!/bin/sh
# Daft 0.6.14 divides decimals wrongly from an amount on that the digits of its type set: of decimal(18, 2), 3105.94 / 2 is 0.000052...
#
# Daft multiplies the dividend by a power of ten that grows with the digits of its type. The product exceeds 128 bits and wraps around: the
# quotient has the right type and any value, often a negative one, or is null if it does not fit. Of decimal(18, 2), a common type of
# amounts, each is wrong, of decimal(12, 2) those above 170 millions, of decimal(10, 2) none. The divisor is of no account. Sums and
# products are right, and a quotient whose type would have more than 38 digits is an error when the query is planned.
#
# Expected: half of the amount, as by pyarrow; or an error.
# Seen, without an error, by expressions and SQL, the last amount that is right and the next one:
#   decimal(12, 2)   170141183.46 / 2 = 85070591.730000   170141183.47 / 2 = -85070591.725469
#   decimal(15, 2)         170.14 / 2 = 85.070000               170.15 / 2 = -85.066183
#   decimal(16, 2)           1.70 / 2 = 0.850000                  1.71 / 2 = -0.846411
#   decimal(18, 2)                    none                     3105.94 / 2 = 0.000052
#   decimal(18, 2)                    none         9999999999999999.99 / 2 = null
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
    (12, "170141183.46"): "85070591.730000",
    (12, "170141183.47"): "-85070591.725469",
    (15, "170.14"): "85.070000",
    (15, "170.15"): "-85.066183",
    (16, "1.70"): "0.850000",
    (16, "1.71"): "-0.846411",
    (18, "3105.94"): "0.000052",
    (18, "9999999999999999.99"): "None",
}


def shown(number):
    """Return the first six digits after the point, as a text."""
    return str(number and number.quantize(Decimal("0.000001"), ROUND_DOWN))


print(f"Daft {daft.__version__}, pyarrow {pa.__version__}")
changed = False
for (digits, amount), seen in SEEN.items():
    column = pa.array([Decimal(amount)], pa.decimal128(digits, 2))
    frame = daft.from_arrow(pa.table({"amount": column}))
    by_expression = frame.select((daft.col("amount") / 2).alias("half")).to_pylist()[0]["half"]
    by_sql = daft.sql("select amount / 2 as half from amounts", amounts=frame).to_pylist()[0]["half"]
    right = pc.divide(column, pa.scalar(Decimal(2)))[0].as_py()
    print(f"  decimal({digits}, 2): {amount} / 2 = {shown(by_expression)}; pyarrow {right}")
    changed |= shown(by_expression) != seen or by_sql != by_expression or right != Decimal(amount) / 2
sys.stdout.flush()
if changed:
    print("the behaviour has changed", file=sys.stderr)
os._exit(1 if changed else 0)  # without Daft's threads, which may abort at the end of Python
END
