"""Providers of master keys."""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from pathlib import Path
from typing import Protocol

from structable.datasets.errors import SecretError

KEY_BYTES = 32


class KeyProvider(Protocol):
    """Gives master keys of 32 bytes by their ids; they are never in the store."""

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key that new values are sealed with.

        Raises
        ------
        SecretError, LookupError
            If there is none; the caller of the datasets gets a `SecretError`.
        """

    def key(self, key_id: str) -> bytes:
        """Return the key of an id.

        Raises
        ------
        SecretError, LookupError
            If there is none; the caller of the datasets gets a `SecretError`.
        """


class FileKeys:
    """Master keys in a file that only its owner may read and write, mode 0600; it is read and checked at each use.

    The file is JSON: `{"current": "k2", "keys": {"k1": "base64 of 32 bytes", "k2": "..."}}`.

    Parameters
    ----------
    path : str or Path
        The file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key that new values are sealed with.

        Raises
        ------
        SecretError
            If the file cannot be read, has another mode, or lacks the key.
        """
        current, keys = self._read()
        return current, _decoded(keys.get(current), current, f"the file {self._path}")

    def key(self, key_id: str) -> bytes:
        """Return the key of an id.

        Raises
        ------
        SecretError
            If the file cannot be read, has another mode, or lacks the key.
        """
        return _decoded(self._read()[1].get(key_id), key_id, f"the file {self._path}")

    def _read(self) -> tuple[str, dict[str, object]]:
        try:
            with self._path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode != 0o600:
                    raise SecretError(f"the file {self._path} has the mode {mode:04o}; it must have 0600")
                content = file.read()
        except OSError as error:
            raise SecretError(f"the file {self._path} of master keys cannot be read: {error.strerror}") from None
        try:
            document = json.loads(content)
        except ValueError:
            document = None  # the error's text would contain the file's content
        if isinstance(document, dict):
            current, keys = document.get("current"), document.get("keys")
            if isinstance(current, str) and isinstance(keys, dict):
                return current, keys
        raise SecretError(f"the file {self._path} is not of the form " + '{"current": ID, "keys": {ID: BASE64}}')

    def __repr__(self) -> str:
        return f"FileKeys({str(self._path)!r})"


class EnvironmentKeys:
    """Master keys in environment variables: `PREFIX` + id is a key, base64 of 32 bytes; `PREFIX` + CURRENT is an id.

    Parameters
    ----------
    prefix : str
        The prefix of the variables' names.
    """

    def __init__(self, prefix: str = "STRUCTABLE_KEY_") -> None:
        self._prefix = prefix

    def current(self) -> tuple[str, bytes]:
        """Return the id and the key that new values are sealed with.

        Raises
        ------
        SecretError
            If a variable is missing, or is not a key.
        """
        name = f"{self._prefix}CURRENT"
        key_id = os.environ.get(name)
        if not key_id:
            raise SecretError(f"the environment variable {name} is missing; it names the current master key")
        return key_id, self.key(key_id)

    def key(self, key_id: str) -> bytes:
        """Return the key of an id.

        Raises
        ------
        SecretError
            If its variable is missing, or is not a key.
        """
        name = self._prefix + key_id
        valid = bool(key_id) and "\0" not in name and "=" not in name
        return _decoded(os.environ.get(name) if valid else None, key_id, "the environment")

    def __repr__(self) -> str:
        return f"EnvironmentKeys({self._prefix!r})"


def _decoded(text: object, key_id: str, origin: str) -> bytes:
    if text is None:
        raise SecretError(f"the master key {key_id!r} is not in {origin}")
    try:
        key = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretError(f"the master key {key_id!r} in {origin} is not base64 of {KEY_BYTES} bytes")
    return key
