"""The PostgreSQL store: tables in a schema of a database."""

from .backend import PostgreSQLBackend

__all__ = ["PostgreSQLBackend"]
