#!/bin/sh
# deltalake 1.6.6 (delta-rs): a filter, a delete or an update by a decimal of more than 15 digits can miss its row.
#
# The writer stores the least and the greatest decimal of each file as doubles, which rounds them. The Delta protocol
# wants them "equal to the smallest valid value", or else "less than or equal to all valid values", and the opposite for
# the greatest. Readers skip a file whose statistics exclude the value. Small amounts, and large ones whose double lies on
# the other side, are found, so that a test by a few amounts finds nothing.
#
# Expected: each way finds the one row; the update and the delete report one row.
# Seen, without an error, with the single row 1234567890123456.78 of a decimal(18, 2), whose statistics are ...456.8:
#   delta-rs, amount = 1234567890123456.78        no row; nothing updated, nothing deleted
#   delta-rs, amount <= 1234567890123456.78       no row
#   pyarrow's dataset, the same equality          no row
#   Polars' scan_delta, the same equality         no row
#   1234567890123.45 in its place                 one row by all
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    deltalake==1.6.6 pyarrow==26.0.1 polars==2.1.0 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import json
import pathlib
import sys
from decimal import Decimal

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

KIND = pa.decimal128(18, 2)


def answers(name, text):
    """Return the statistics of a table with one amount, and how many rows each way finds of it."""
    amount = Decimal(text)
    deltalake.write_deltalake(name, pa.table({"amount": pa.array([amount], KIND), "note": ["old"]}))
    table = deltalake.DeltaTable(name)
    literal = f"cast('{text}' as decimal(18, 2))"

    def rows(condition):
        query = deltalake.QueryBuilder().register("t", table)
        return len(pa.table(query.execute(f"select * from t where {condition}")))

    lines = next(pathlib.Path(name, "_delta_log").glob("*.json")).read_text().splitlines()
    added = next(line["add"] for line in map(json.loads, lines) if "add" in line)
    found = {
        "rows": rows("true"),
        "amount =": rows(f"amount = {literal}"),
        "amount <=": rows(f"amount <= {literal}"),
        "pyarrow": len(table.to_pyarrow_dataset().to_table(filter=pc.field("amount") == pa.scalar(amount, KIND))),
        "Polars": pl.scan_delta(name).filter(pl.col("amount") == amount).collect().height,
        "updated": table.update({"note": "'new'"}, predicate=f"amount = {literal}")["num_updated_rows"],
        "deleted": table.delete(f"amount = {literal}")["num_deleted_rows"],
    }
    return json.loads(added["stats"])["maxValues"]["amount"], found


print(f"deltalake {deltalake.__version__}, pyarrow {pa.__version__}, Polars {pl.__version__}")
found = []
for name, text in (("large", "1234567890123456.78"), ("small", "1234567890123.45")):
    statistics, counts = answers(name, text)
    print(f"  {text}, largest by the statistics {statistics}: {counts}")
    found.append(list(counts.values()))
if found != [[1, 0, 0, 0, 0, 0, 0], [1] * 7]:
    sys.exit("the behaviour has changed")
END
