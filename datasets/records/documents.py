"""JSON documents: deterministic texts, typed reading, and merging by RFC 7386."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

import msgspec

from structable.datasets.errors import DocumentError
from structable.spi.exact_decimals import in_exact_context
from structable.spi.plain_values import named_class, plain_value
from structable.spi.showing import shown

__all__ = ["Document", "merged"]

_SUSPECT = ("null", "nan", "inf")


class Document:
    """Writes and reads the documents of one field.

    Parameters
    ----------
    table, field : str
        The field, for messages.
    type : type
        What `decode` returns.

    Raises
    ------
    TypeError
        If msgspec cannot decode the type.
    """

    def __init__(self, table: str, field: str, type: Any) -> None:  # noqa: A002, ANN401 - any annotation
        self.table = table
        self.field = field
        self.decode: Callable[[str], Any] = msgspec.json.Decoder(type, dec_hook=_decoded).decode

    @in_exact_context
    def encode(self, value: object) -> str:
        """Return compact JSON with sorted keys; equal values give equal texts.

        Raises
        ------
        DocumentError
            If the value is not JSON, holds a NaN or an infinity, or would not be read back as the field's type.
        """
        try:
            text = _encoded(value)
            lower = text.lower()
            if any(word in lower for word in _SUSPECT) and not _finite(value):
                self._refuse("it holds a NaN or an infinity, which JSON lacks")
            self.decode(text)
        except DocumentError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._refuse(f"{shown(value)} is not a document of its type: {error}")
        return text

    @in_exact_context
    def merge(self, stored: str | None, patch: Mapping[str, object]) -> str:
        """Return the stored document with a merge patch (RFC 7386) applied; None in the patch removes a member."""
        if not isinstance(patch, Mapping):
            self._refuse(f"the patch is {shown(patch)}; it must be a mapping")
        try:
            changes = msgspec.to_builtins(patch, str_keys=True, enc_hook=plain_value)
            before = None if stored is None else msgspec.json.decode(stored)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._refuse(f"the patch cannot be applied: {error}")
        if not _finite(patch):
            self._refuse("the patch holds a NaN or an infinity, which JSON lacks")
        return self.encode(merged(before, changes))

    def _refuse(self, reason: str) -> NoReturn:
        raise DocumentError(self.table, self.field, reason) from None


def _decoded(kind: type, found: object) -> object:
    """Return a value of a class that msgspec does not know: one of Python's own, where freezegun has replaced it."""
    own = named_class(kind)
    return found if own is kind else msgspec.convert(found, own)


def merged(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """Apply a JSON merge patch, as RFC 7386 defines it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _encoded(value: object) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=plain_value, order="sorted").decode()
    except TypeError:
        # Keys that are no strings: dict[int, X].
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=plain_value)
        return msgspec.json.encode(plain, order="sorted").decode()


def _finite(value: object) -> bool:
    plain = msgspec.to_builtins(value, str_keys=True, builtin_types=(Decimal,), enc_hook=plain_value)
    open_values = [plain]
    while open_values:
        one = open_values.pop()
        match one:
            case dict():
                open_values += one.values()
            case list() | tuple() | set() | frozenset():
                open_values += one
            case float() if not math.isfinite(one):
                return False
            case Decimal() if not one.is_finite():
                return False
    return True
