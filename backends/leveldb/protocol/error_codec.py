"""Encoding of structable's errors: the name of their class and their facts, never code."""

from __future__ import annotations

import datetime
import json

from structable import spi
from structable.spi import StructableError
from structable.spi.authors import own_class

_CLASSES: dict[str, type[StructableError]] = {
    name: found
    for name in spi.__all__
    if isinstance(found := getattr(spi, name), type) and issubclass(found, StructableError)
}


def pack_error(error: Exception) -> bytes:
    """Return an error in its encoded form; a foreign error becomes a `StructableError` with its text."""
    name = type(error).__name__
    if _CLASSES.get(name) is not type(error):
        name = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _CLASSES), "")
    message = str(error.args[0]) if name and error.args else f"{type(error).__name__}: {error}"
    facts = {key: _pack(value) for key, value in vars(error).items() if not key.startswith("_")} if name else {}
    return json.dumps([name or "StructableError", message, facts]).encode()


def unpack_error(body: bytes) -> StructableError:
    """Return the error; `ValueError` if the body is not one."""
    name, message, facts = json.loads(body)
    found = _CLASSES.get(name, StructableError)
    error = found.__new__(found, message)
    error.args = (message,)
    vars(error).update({key: _unpack(value) for key, value in facts.items()})
    return error


def _pack(value: object) -> object:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return {"tuple": [_pack(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, datetime.datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    return repr(value)


def _unpack(value: object) -> object:
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    match kind:
        case "tuple":
            return tuple(_unpack(item) for item in content)
        case "bytes":
            return bytes.fromhex(content)
        case "datetime":
            return own_class(datetime.datetime).fromisoformat(content)
        case "date":
            return own_class(datetime.date).fromisoformat(content)
    raise ValueError(f"unknown kind of fact {kind!r}")
