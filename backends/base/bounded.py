"""`Bounded`: a cache of results that depend on what users ask, which never grows without end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Bounded"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(dict[Key, Value]):
    """A dict that is emptied before it would hold more than `most` entries; safe to share between threads."""

    __slots__ = ("_most",)

    def __init__(self, most: int = 256) -> None:
        super().__init__()
        self._most = most

    def made(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the entry of a key, which is made if there is none."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
        return found

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)
