"""How a database writes its table files, recorded beside them. Each block of a file says itself how it is written."""

from __future__ import annotations

from pathlib import Path

from .disk import replace_durably

__all__ = ["COMPRESSION", "DEFAULT_COMPRESSION", "record_compression", "recorded_compression"]

COMPRESSION = "compression"
"""The name of the file."""
DEFAULT_COMPRESSION = "none"
"""The compression of new databases."""
_BEFORE = "snappy"


def recorded_compression(folder: Path) -> str:
    """Return a database's own choice: Snappy if it has none, as it was made before there was one."""
    try:
        return DEFAULT_COMPRESSION if (folder / COMPRESSION).read_bytes() == DEFAULT_COMPRESSION.encode() else _BEFORE
    except FileNotFoundError:
        return _BEFORE


def record_compression(folder: Path, compression: str) -> None:
    """Record the choice, durably."""
    replace_durably(folder / COMPRESSION, compression.encode())
