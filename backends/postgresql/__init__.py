"""Backend "postgresql": tables in a schema of a PostgreSQL database."""

from .backend import PostgreSQLBackend

__all__ = ["PostgreSQLBackend"]
