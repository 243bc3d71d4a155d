"""Names in the database: tables and columns have the names of the specification, all others begin with `_`.

A name of the contract begins with a letter, so these never collide with a user's.
"""

from __future__ import annotations

CATALOG = "_structable_tables"
FORMAT = "_structable_format"
JOBS = "_structable_jobs"
RECEIPTS = "_structable_receipts"
STREAMS = "_structable_streams"
HIDDEN_KEY = "_id"
"""The column of the key of tables without one."""

_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def quoted(name: str) -> str:
    """Return a name quoted for SQL, whatever its characters."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str, name: str) -> str:
    """Return the quoted name of an object in a schema."""
    return f"{quoted(schema)}.{quoted(name)}"


def column_name(field: str) -> str:
    """Return the column that holds a field: it has the field's name, unless PostgreSQL reserves that."""
    return f"_{field}" if field in _SYSTEM_COLUMNS else field


def column(field: str) -> str:
    """Return the quoted column of a field."""
    return quoted(column_name(field))


def index_name(table_id: int, field: str) -> str:
    """Return the name of a field's index, at most 63 bytes."""
    return f"_i{table_id:x}_{field}"


def token_name(table_id: int, version: int) -> str:
    """Return the name of the function that exists while a version of a table does."""
    return f"_version_{table_id:x}_{version:x}"
