#!/bin/sh
# One library lowers decimal.DefaultContext.prec, for threads that are yet to start: psycopg then loads small numerics
# wrong, in all threads, and large ones right.
#
# psycopg 3.3.9 computes a binary numeric in `decimal.DefaultContext` itself, as it is at that moment; only those that
# may have 28 digits or more get a context of their own. The context of the thread, which getcontext() and
# localcontext() give, makes no difference, so that a test with these finds nothing. Nor does another library's own use
# of decimals: Python copies DefaultContext into new threads and has no other use for it.
#
# Expected: the numbers that were sent; or, if the precision counts, numbers rounded to 6 digits.
# Seen, without a warning:
#   12345678.91 becomes 1.234E+7: it is cut behind four digits, not rounded to six
#   0.1234567891 becomes 0.1234
#   123456789012345678901234567890.12 is exact
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "psycopg[binary]==3.3.9"
PSYCOPG_IMPL=binary "$folder/venv/bin/python" - <<'END'
import decimal
import sys
from decimal import Decimal

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

NUMERIC = psycopg.postgres.types["numeric"].oid
SENT = ["12345678.91", "0.1234567891", "123456789012345678901234567890.12"]


def load():
    """Return numbers in the bytes of PostgreSQL's binary format, as psycopg loads them."""
    transformer = Transformer()
    sent = [bytes(transformer.get_dumper(Decimal(one), PyFormat.BINARY).dump(Decimal(one))) for one in SENT]
    loader = transformer.get_loader(NUMERIC, pq.Format.BINARY)
    return [str(loader.load(one)) for one in sent]


found = {"as it is": load()}
with decimal.localcontext(prec=6):
    found["getcontext().prec = 6"] = load()
decimal.DefaultContext.prec = 6
found["DefaultContext.prec = 6"] = load()
print("psycopg", psycopg.__version__, pq.__impl__)
for state, numbers in found.items():
    print(f"  {state:24}", *numbers)
sys.exit(list(found.values()) != [SENT, SENT, ["1.234E+7", "0.1234", SENT[2]]])
END
