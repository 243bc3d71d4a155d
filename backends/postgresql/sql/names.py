"""Names in the database: tables and columns have the names of the specification, all others begin with `_`.

A name of the contract begins with a letter, so ours cannot meet one of a user's.
"""

from __future__ import annotations

__all__ = ["CATALOG", "FORMAT", "JOBS", "column_name", "index_name", "literal", "qualified", "quoted", "token_name"]

CATALOG = "_structable_tables"
FORMAT = "_structable_format"
JOBS = "_structable_jobs"

_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def quoted(name: str) -> str:
    """Return a name as SQL has it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str, name: str) -> str:
    """Return the quoted name of something in a schema."""
    return f"{quoted(schema)}.{quoted(name)}"


def column_name(field: str) -> str:
    """Return the column that holds a field: of the same name, where PostgreSQL does not use that itself."""
    return f"_{field}" if field in _SYSTEM_COLUMNS else field


def index_name(table_id: int, field: str) -> str:
    """Return the name of a field's index, at most 63 bytes."""
    return f"_i{table_id:x}_{field}"


def token_name(table_id: int, version: int) -> str:
    """Return the name of the function that exists as long as a version of a table does."""
    return f"_version_{table_id:x}_{version:x}"
