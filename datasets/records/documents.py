"""JSON documents: deterministic texts, typed reading, and merging by RFC 7386."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from structable.datasets.errors import DocumentError
from structable.spi.authors import in_exact_context, named_class, plain_value, shown

from .document_equality import SEVERAL_TEXTS, equal, is_whole
from .plain_documents import is_plain, plain

_TIME = re.compile(r":\d\d[-+.Z]")
"""The end of a time whose offset msgspec may have rounded to minutes."""
MISFITS = (TypeError, ValueError, ArithmeticError, RecursionError)
"""The errors that msgspec raises for a value, or a text, that does not fit."""


class Document:
    """Writes and reads the documents of one field.

    Parameters
    ----------
    table, field : str
        The field, for messages.
    type : type
        The type of `decode`'s result.

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
        """Return compact JSON, the same in every process: the members of maps and the elements of sets are sorted.

        Equal values may have different texts: numbers, decimals and times keep their notation.

        Raises
        ------
        DocumentError
            If the value is not JSON, holds a NaN or an infinity, or would not be read back as the field's type.
        """
        try:
            text = _text(value)
            self.decode(text)
        except MISFITS as error:
            self._refuse(f"{shown(value)} is not a document of its type: {error}")
        return text

    @in_exact_context
    def equals(self, stored: str, value: object) -> bool:
        """Return whether a stored document equals a value, whatever their texts.

        A document with members that the type ignores equals no value: writing the value would lose them.
        """
        try:
            read, found = self.decode(stored), msgspec.json.decode(stored)
        except MISFITS:
            return False
        if equal(read, self.decode(self.encode(value))) and is_whole(found, read):
            return True
        # Where the type is open, the value decides whether a text is a decimal or a time.
        return equal(found, plain(value, kept=SEVERAL_TEXTS))

    @in_exact_context
    def merge(self, stored: str | None, patch: Mapping[str, object]) -> str:
        """Return the stored document with a merge patch (RFC 7386) applied; None in the patch removes a member."""
        if not isinstance(patch, Mapping):
            self._refuse(f"the patch is {shown(patch)}; it must be a mapping")
        try:
            changes = plain(patch)
            before = None if stored is None else msgspec.json.decode(stored)
        except MISFITS as error:
            self._refuse(f"the patch cannot be applied: {error}")
        return self.encode(merged(before, changes))

    def _refuse(self, reason: str) -> NoReturn:
        raise DocumentError(self.table, self.field, reason) from None


def _decoded(kind: type, found: object) -> object:
    """Return a value of a class that msgspec does not know: a standard class that freezegun has replaced."""
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


def _is_suspect(text: str) -> bool:
    """Return whether a text may differ from its value: a NaN became null, or the elements of a set have no order."""
    # A generator over the marks would take three times as long, for each record that is published.
    return "null" in text or "NaN" in text or "Inf" in text or "[[" in text or "[{" in text


def _text(value: object) -> str:
    try:
        text = msgspec.json.encode(value, enc_hook=plain_value, order="sorted").decode()
    except TypeError:  # keys that are not strings, set elements without an order, or a value that is not JSON
        pass
    else:
        suspect = _is_suspect(text) or _TIME.search(text)
        if not suspect or is_plain(value):
            return text
    return msgspec.json.encode(plain(value), order="sorted").decode()
