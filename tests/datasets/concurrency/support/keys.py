"""Master keys that change from one use to the next."""

from __future__ import annotations

import random

from structable.datasets import SecretError


class RotatingKeys:
    """A provider of two master keys, each the current one half of the time; safe to share between threads."""

    def __init__(self) -> None:
        self._keys = {"k1": b"1" * 32, "k2": b"2" * 32}

    def current(self) -> tuple[str, bytes]:
        """Return one of the keys."""
        return random.choice(list(self._keys.items()))

    def key(self, key_id: str) -> bytes:
        """Return a key."""
        if key_id not in self._keys:
            raise SecretError(f"no key {key_id!r}")
        return self._keys[key_id]
