#!/bin/sh
# Polars and DuckDB take the type of a column of Python's numbers from a sample, and cut the numbers after it to that type.
#
# Both raise an error if a value cannot be of the type at all, a text for instance, and Polars also if a list of one
# column mixes int and float, so that one expects an error, or a wider type, of a number that does not fit.
#
# Expected: 9.99, or an error.
# Seen, without a warning, of prices whose first 100 are 10 and whose last is 9.99:
#   Polars 2.1.0   9 from rows of a database, from tuples and from dictionaries, though `strict` is true, its default;
#                  10.0 of Decimal("10.1") and Decimal("9.999"). It samples 100 rows; infer_schema_length=None is right
#   DuckDB 2.0.1   10 from a pandas column of objects, and 10.0 of Decimal("10.1") and Decimal("9.99"). It samples every
#                  n-th of more than 1,000 rows; pandas_analyze_sample is the setting
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 duckdb==2.0.1 pandas==2.3.3 || exit 2
"$folder/venv/bin/python" - <<'END'
import sqlite3
import sys
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl

database = sqlite3.connect(":memory:")
database.execute("create table prices (price numeric)")
database.executemany("insert into prices values (?)", [(10,)] * 100 + [(9.99,)])
rows = database.execute("select price from prices").fetchall()
decimals = [{"price": Decimal("10.1")}] * 100 + [{"price": Decimal("9.999")}]


def by_duckdb(usual, rare):
    frame = pd.DataFrame({"price": pd.Series([usual, rare] + [usual] * 10_000, dtype=object)})
    return duckdb.query_df(frame, "frame", "select min(price) from frame").fetchall()[0][0]


found = {
    "SQLite itself": database.execute("select min(price) from prices").fetchall()[0][0],
    "Polars, read_database": pl.read_database("select price from prices", database)["price"].min(),
    "Polars, tuples": pl.DataFrame(rows, schema=["price"], orient="row")["price"].min(),
    "Polars, dictionaries": pl.DataFrame([{"price": price} for (price,) in rows])["price"].min(),
    "Polars, dictionaries of Decimal": pl.DataFrame(decimals)["price"].min(),
    "Polars, infer_schema_length=None": pl.DataFrame(decimals, infer_schema_length=None)["price"].min(),
    "DuckDB, int and float": by_duckdb(10, 9.99),
    "DuckDB, Decimal": by_duckdb(Decimal("10.1"), Decimal("9.99")),
}
print("Polars", pl.__version__, "DuckDB", duckdb.__version__)
for way, number in found.items():
    print(f"  {way:33}", number)
seen = ["9.99", "9", "9", "9", "10.0", "9.999", "10", "10.0"]
sys.exit([str(number) for number in found.values()] != seen)
END
