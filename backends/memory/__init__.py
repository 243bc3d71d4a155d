"""The in-memory store: for tests, and the simplest engine to read."""

from .backend import MemoryBackend

__all__ = ["MemoryBackend"]
