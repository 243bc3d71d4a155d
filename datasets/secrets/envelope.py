"""Envelope encryption: each value has a key of its own, which a master key wraps; both by AES-256-GCM."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from structable.datasets.errors import SecretError
from structable.spi.authors import remedy

from .key_providers import KEY_BYTES, KeyProvider

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
FORMAT = b"structable sealed value 1"


class Sealed(NamedTuple):
    """A sealed value, which its `repr` hides.

    Attributes
    ----------
    key_id : str
        The id of the master key.
    wrapped : bytes
        A nonce, and the value's key under the master key.
    nonce, data : bytes
        The value under its key.
    """

    key_id: str
    wrapped: bytes
    nonce: bytes
    data: bytes

    def __repr__(self) -> str:
        return "<sealed>"


def seal(keys: KeyProvider | None, table: str, key: tuple[str | int, ...], value: bytes) -> Sealed:
    """Seal a value for a row of a table; it can be opened only there.

    Raises
    ------
    SecretError
        If there is no provider, or no master key.
    """
    if not isinstance(value, bytes):
        raise TypeError(f"a sealed value must be bytes, not {type(value).__name__}")
    key_id, master = current_key(keys)
    associated = _associated_data(table, key)
    data_key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
    data = _cipher(data_key).encrypt(nonce, value, associated)
    return Sealed(key_id, _wrap(key_id, master, data_key, associated), nonce, data)


def open_sealed(keys: KeyProvider | None, table: str, key: tuple[str | int, ...], sealed: Sealed) -> bytes:
    """Return the value of a row.

    Raises
    ------
    SecretError
        If there is no provider, or not this key, or the row was tampered with or belongs elsewhere.
    """
    associated = _associated_data(table, key)
    data_key = _unwrap(_provider(keys), sealed, associated, table, key)
    return _decrypt(data_key, sealed.nonce, sealed.data, associated, table, key)


def rewrapped(keys: KeyProvider | None, table: str, key: tuple[str | int, ...], sealed: Sealed) -> Sealed:
    """Return the same sealed value under the current master key.

    Raises
    ------
    SecretError
        As `open_sealed`.
    """
    associated = _associated_data(table, key)
    data_key = _unwrap(_provider(keys), sealed, associated, table, key)
    key_id, master = current_key(keys)
    return sealed._replace(key_id=key_id, wrapped=_wrap(key_id, master, data_key, associated))


def current_key(keys: KeyProvider | None) -> tuple[str, bytes]:
    """Return the id and the master key that new values are sealed with.

    Raises
    ------
    SecretError
        If there is no provider, or no master key.
    """
    try:
        return _provider(keys).current()
    except LookupError:  # of a provider over a mapping; from None, as its traceback may hold other keys
        raise SecretError("the provider has no current master key") from None


def _provider(keys: KeyProvider | None) -> KeyProvider:
    if keys is None:
        raise SecretError("sealed values need master keys: SystemData.open(..., keys=FileKeys(path))")
    return keys


def _cipher(key: bytes) -> AESGCM:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        given = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise SecretError(f"the provider gave {given} as a master key; it must be {KEY_BYTES} bytes")
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise SecretError(f"sealed values need cryptography; {remedy('secrets', 'cryptography')}") from None
    return AESGCM(key)


def _wrap(key_id: str, master: bytes, data_key: bytes, associated: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(master).encrypt(nonce, data_key, associated + _part(key_id))


def _unwrap(keys: KeyProvider, sealed: Sealed, associated: bytes, table: str, key: tuple[str | int, ...]) -> bytes:
    nonce, wrapped = sealed.wrapped[:NONCE_BYTES], sealed.wrapped[NONCE_BYTES:]
    try:
        master = keys.key(sealed.key_id)
    except LookupError:
        raise SecretError(f"table {table!r}, row {key!r}: the provider has no key {sealed.key_id!r}") from None
    return _decrypt(master, nonce, wrapped, associated + _part(sealed.key_id), table, key)


def _decrypt(
    secret: bytes, nonce: bytes, data: bytes, associated: bytes, table: str, key: tuple[str | int, ...]
) -> bytes:
    cipher = _cipher(secret)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce, data, associated)
    except (InvalidTag, ValueError):
        # From None: the cause's traceback would hold the key among its variables.
        raise SecretError(f"table {table!r}, row {key!r}: it was tampered with, or its key is another one") from None


def _associated_data(table: str, key: tuple[str | int, ...]) -> bytes:
    return b"".join(map(_part, (FORMAT, table, *key)))


def _part(value: str | int | bytes) -> bytes:
    encoded = value if isinstance(value, bytes) else str(value).encode()
    return len(encoded).to_bytes(4, "big") + encoded
