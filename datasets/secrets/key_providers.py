"""Where master keys come from."""

from __future__ import annotations

from typing import Protocol

__all__ = ["KeyProvider"]


class KeyProvider(Protocol):
    """Gives master keys of 32 bytes by their ids; they are never in the store."""

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key that new values are sealed with."""

    def key(self, key_id: str) -> bytes:
        """Return the key of an id.

        Raises
        ------
        SecretError
            If there is none.
        """
