"""The numbers of the server's own types, the same on every server, for parameters that are no fields."""

from __future__ import annotations

__all__ = [
    "BIGINT",
    "BIGINT_ARRAY",
    "BYTEA",
    "BYTEA_ARRAY",
    "CHAR",
    "CHAR_ARRAY",
    "INTEGER",
    "NUMERIC",
    "TEXT",
    "TEXT_ARRAY",
    "TID",
    "TID_ARRAY",
    "TIMESTAMPTZ",
]

BYTEA = 17
CHAR = 18
BIGINT = 20
INTEGER = 23
TEXT = 25
TID = 27
BYTEA_ARRAY = 1001
CHAR_ARRAY = 1002
TEXT_ARRAY = 1009
TID_ARRAY = 1010
BIGINT_ARRAY = 1016
TIMESTAMPTZ = 1184
NUMERIC = 1700
