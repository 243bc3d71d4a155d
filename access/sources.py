"""`Source`: the calls beneath a table, of a StructuredTable or of functions, with checked keys and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["get", "put", "upsert", "update", "delete"]


class Update(NamedTuple):
    """The changes and the default of an update."""

    changes: Mapping[str, object]
    default: object
    """The value to start from where there is none; None for no default."""


class CheckedWrite(NamedTuple):
    """A write, checked when it was called."""

    payload: object
    """A value, an `Update`, or None for a delete."""
    fits: bool
    """False if the schema known here rejects the write, so that the source must check it by itself."""


class Source(ABC):
    """The system behind an `AsyncTable`.

    Keys come from `key_of`, payloads from `checked`. The methods that do I/O raise nothing: their awaitables do. Lists
    are never empty. Only updates and upserts may receive a key twice, and only if `repeats_keys` is true.
    """

    name: str
    """The table's name, for messages and metrics."""
    readable: bool
    writable: bool
    upserts: bool
    """Whether `write` upserts."""
    repeats_keys: bool
    """Whether a bulk write may have a key more than once, and keeps the order."""
    puts_defaults: bool
    """Whether updates put their defaults themselves."""
    judges_rows: bool
    """Whether the rows of a bulk write that raises InvalidFieldError or UnsupportedOperationError may fit alone."""

    @abstractmethod
    def has_bulk(self, kind: Kind) -> bool:
        """Return whether there is a bulk call of a kind; where there is none, each key has a call of its own."""

    @abstractmethod
    def key_of(self, key: object) -> Hashable:
        """Return a caller's key in the one form that equals any other form of it.

        Raises
        ------
        ValueError
            If the key is None, or does not fit.
        TypeError
            If it is not hashable.
        """

    @abstractmethod
    def checked(self, kind: Kind, key: Hashable, value: object, default: object = None) -> CheckedWrite:
        """Return the payload of a put, an upsert or an update.

        Raises
        ------
        InvalidFieldError
            If the value or the default names another key.
        """

    @abstractmethod
    def as_read(self, key: Hashable, payload: object) -> object:
        """Return what `get` returns after a put of this payload, not shared with another caller."""

    @abstractmethod
    def is_retriable(self, kind: Kind, error: BaseException) -> bool:
        """Return whether a call that failed with this error may succeed when it is made again."""

    @abstractmethod
    def look(self) -> None:
        """Read the schema again soon: the source has accepted a row that the known schema refuses."""

    @abstractmethod
    async def open(self) -> None:
        """Get ready; idempotent."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything; no call is under way, and none follows."""

    @abstractmethod
    def get(self, key: Hashable) -> Awaitable[object]:
        """Return a value, or None."""

    @abstractmethod
    def get_many(self, keys: list[Hashable]) -> Awaitable[Mapping[Hashable, object]]:
        """Return the values of the keys that have one."""

    @abstractmethod
    def write(self, kind: Kind, pairs: Sequence[tuple[Hashable, object]]) -> Awaitable[object]:
        """Put, upsert or delete; all or none. By the bulk call, unless there is one pair."""

    @abstractmethod
    def update(self, key: Hashable, update: Update) -> Awaitable[object]:
        """Change a value; RecordNotFoundError, or one raised from it, if there is none and no default was put."""

    @abstractmethod
    def update_many(self, pairs: list[tuple[Hashable, Update]]) -> Awaitable[Iterable[Hashable]]:
        """Change values, and return the keys that have none; all or none."""

    @abstractmethod
    def put_default(self, key: Hashable, default: object) -> Awaitable[object]:
        """Set the value of a key that has none; called only if `puts_defaults` is false."""
