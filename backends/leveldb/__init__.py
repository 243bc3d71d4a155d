"""Backend "leveldb": tables in LevelDB, the embedded default."""

from .backend import LevelDBBackend

__all__ = ["LevelDBBackend"]
