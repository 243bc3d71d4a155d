"""Typed records: a class whose instances are the rows of a table."""

from __future__ import annotations

from .annotations import Byte, Digits, Int, Json, Local, Record, Short, Single
from .cursors import Page
from .reading import RecordIterator
from .record_table import RecordTable
from .records import Records

__all__ = [
    "Byte",
    "Digits",
    "Int",
    "Json",
    "Local",
    "Page",
    "Record",
    "RecordIterator",
    "RecordTable",
    "Records",
    "Short",
    "Single",
]
