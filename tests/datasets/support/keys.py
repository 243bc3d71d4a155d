"""Master keys that tests set, and changes of stored rows."""

from __future__ import annotations

from structable.datasets import SecretError, Session
from structable.spi import Value


class Keys:
    """A provider of master keys."""

    def __init__(self) -> None:
        self.keys = {"k1": b"1" * 32, "k2": b"2" * 32}
        self.now = "k1"

    def current(self) -> tuple[str, bytes]:
        """Return the current key."""
        return self.now, self.key(self.now)

    def key(self, key_id: str) -> bytes:
        """Return a key."""
        if key_id not in self.keys:
            raise SecretError(f"no key {key_id!r}")
        return self.keys[key_id]


def tampered(s: Session, table: str, key: dict[str, Value], field: str) -> None:
    """Change a field of a row: the last bit of bytes, the other key for a key's id."""
    row = s.tx.table(table).read(tuple(key.values()))
    assert row is not None
    stored = row[field]
    changed = stored[:-1] + bytes([stored[-1] ^ 1]) if isinstance(stored, bytes) else "k2"
    s.tx.table(table).update({**key, field: changed})
