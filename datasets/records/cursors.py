"""Pages, and the cursors that continue them."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime as dt
import hashlib
from typing import Any, Generic, TypeVar

import msgspec

from structable.datasets.errors import InvalidCursorError
from structable.spi import Field, FieldType, Value
from structable.spi.authors import own_class

T = TypeVar("T")

MAX_PAGE = 1_000
_DIGEST_BYTES = 9
_TYPES: dict[FieldType, Any] = {
    FieldType.BOOLEAN: bool,
    FieldType.STRING: str,
    FieldType.BYTES: bytes,
    FieldType.DATE: own_class(dt.date),
    FieldType.TIMESTAMP: own_class(dt.datetime),
    FieldType.TIMESTAMP_NTZ: own_class(dt.datetime),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a listing.

    Parameters
    ----------
    items : list
        At most as many as the limit, in the listing's order.
    next : str or None
        The cursor of the next page, of the characters `[A-Za-z0-9_-]`; None at the end.
    """

    items: list[T]
    next: str | None


def check_limit(limit: int) -> None:
    """Check the limit of a page.

    Raises
    ------
    ValueError
        If it is not an integer of 1 to 1,000.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit is {limit!r}; it must be an integer of 1 to {MAX_PAGE:,}")


def encode_cursor(listing: str, key: tuple[Value, ...]) -> str:
    """Return the cursor behind a key.

    Parameters
    ----------
    listing : str
        The properties that all pages of the listing share: method, table, range, filter, direction.
    key : tuple
        The last key of the page.
    """
    text = msgspec.msgpack.encode(key)
    return _as_text(_digest(listing, text) + text)


def decode_cursor(cursor: str, listing: str, fields: tuple[Field, ...]) -> tuple[Value, ...]:
    """Return the key that a cursor names.

    Raises
    ------
    InvalidCursorError
        If it is not a cursor of this listing.
    """
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, text = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest != _digest(listing, text) or _as_text(data) != cursor:
            raise InvalidCursorError("the cursor belongs to another listing, or was changed; begin at the first page")
        types = tuple(_TYPES.get(field.type, int) for field in fields)
        key: tuple[Value, ...] = msgspec.msgpack.decode(text, type=tuple[types])  # type: ignore[valid-type]
    except InvalidCursorError:
        raise
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidCursorError(f"the cursor is not one that a page gave: {error}") from None
    return key


def _as_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _digest(listing: str, key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES, key=hashlib.sha256(listing.encode()).digest()).digest()
