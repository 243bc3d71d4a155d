"""`StructuredSource`: a StructuredTable as the source of a table, its calls made by threads."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from structable.spi import (
    FieldType,
    InvalidFieldError,
    Row,
    StorageUnavailableError,
    StructuredTable,
    TableSpecification,
    TransactionConflictError,
    UnsupportedOperationError,
    UpdateMessage,
    Value,
)
from structable.spi.authors import (
    MAX_KEY_FIELDS,
    MAX_KEY_SIZE,
    RowShape,
    check_default,
    check_key,
    check_row,
    keyless_refusal,
    shown,
)

from .sources import CheckedWrite, Kind, Source, Update
from .threads import Threads

Result = TypeVar("Result")
Key = tuple[Value, ...]

_PAUSE = 1.0
"""Seconds between two looks at the schema: rows that never fit must not double the calls."""


def _is_plain_text(value: Any) -> bool:  # noqa: ANN401 - any part of a key
    return value.__class__ is str and len(value) <= _PLAIN_SIZE and value.isascii() and "\0" not in value


def _is_plain_number(value: Any) -> bool:  # noqa: ANN401
    return value.__class__ is int and -_PLAIN_INT <= value < _PLAIN_INT


def _is_plain_time(value: Any) -> bool:  # noqa: ANN401
    return value.__class__ is dt.datetime and value.tzinfo is dt.UTC and not value.fold


_PLAIN_SIZE = MAX_KEY_SIZE // MAX_KEY_FIELDS
_PLAIN_INT = 1 << 31
# Nearly all keys have parts of these types that fit as they are; `check_key` is for the others, and much slower.
_PLAIN = {
    FieldType.STRING: _is_plain_text,
    FieldType.INT: _is_plain_number,
    FieldType.LONG: _is_plain_number,
    FieldType.TIMESTAMP: _is_plain_time,
}


def _is_plain(key: tuple[object, ...], tests: Sequence[Callable[[Any], bool]]) -> bool:
    if len(key) != len(tests):
        return False
    for part, test in zip(key, tests, strict=True):  # noqa: SIM110 - all() would take twice the time
        if not test(part):
            return False
    return True


def _is_never_plain(value: Any) -> bool:  # noqa: ANN401
    return False


class _NamedKey(tuple[Value, ...]):
    """A key given by the names of its fields: a table that was dropped and made again may have another order."""

    names: tuple[str, ...]

    @property
    def by_name(self) -> dict[str, Value]:
        return dict(zip(self.names, self, strict=True))


class StructuredSource(Source):
    """Calls the auto-commit view of a table in threads of its own.

    Keys are tuples in key order, payloads rows with their keys, all checked against the schema that was read last.
    Only the store knows the current schema: a row that does not fit is sent alone, and if the store accepts it, the
    schema is read again.
    """

    readable = True
    writable = True
    upserts = True
    repeats_keys = True
    puts_defaults = True
    judges_rows = True

    def __init__(self, table: StructuredTable, name: str | None, threads: int) -> None:
        spec = table.specification
        if spec.keyless:
            raise keyless_refusal(spec, "keys, which open_table needs")
        if not table.auto_commit:
            raise UnsupportedOperationError(
                f"table {spec.name!r} belongs to a transaction, and so to one thread; open storage.table({spec.name!r})"
            )
        self.name = name or spec.name
        self._table = table
        self._learn(spec)
        self._threads = Threads(threads, f"structable-access-{spec.name}", self._failed)
        self._closed = False
        self._looking: Awaitable[TableSpecification] | None = None
        self._looked = -math.inf

    def _learn(self, spec: TableSpecification) -> None:
        self._spec = spec
        names = (*spec.primary_key, *(field.name for field in spec.value_fields))
        self._shape = RowShape(spec.name, names, spec.primary_key)
        self._plain = [_PLAIN.get(field.type, _is_never_plain) for field in spec.key_fields]
        # A FLOAT rounds values that a DOUBLE of the same name would keep.
        self._rounds = any(field.type is FieldType.FLOAT for field in spec.value_fields)

    def has_bulk(self, kind: Kind) -> bool:
        return True

    def key_of(self, key: object) -> Key:
        if key is None:
            raise ValueError(f"table {self.name!r}: key is None; it must be a tuple or a mapping of the key fields")
        if key.__class__ is tuple and _is_plain(key, self._plain):
            return cast("Key", key)
        try:
            checked = check_key(self._spec, key)
            if not isinstance(key, Mapping):
                return checked
            named = _NamedKey(checked)
            named.names = self._spec.primary_key
            return named
        except InvalidFieldError:
            # A table that was created again may have other key fields.
            self.look()
            raise

    def checked(self, kind: Kind, key: Hashable, value: object, default: object = None) -> CheckedWrite:
        spec = self._spec
        assert isinstance(key, tuple)
        if not isinstance(value, Mapping):
            what = "changes" if kind == "update" else "value"
            raise InvalidFieldError(spec.name, what, f"{shown(value)} is not a mapping of field names to values")
        if default is not None and not isinstance(default, Mapping):
            raise InvalidFieldError(spec.name, "default", f"{shown(default)} is not a mapping of field names to values")
        self._check_same_key(key, value)
        self._check_same_key(key, default or {})
        row = {**value, **dict(zip(spec.primary_key, key, strict=True))}
        start = None if default is None else dict(default)
        fits = True
        try:
            kept = check_row(spec, row)
            started = None if default is None else check_default(spec, row, default)
            if not self._rounds:
                row, start = kept, started
        except InvalidFieldError:
            fits = False
        return CheckedWrite(Update(row, start) if kind == "update" else row, fits)

    def _check_same_key(self, key: Key, given: Mapping[str, object]) -> None:
        names = self._spec.primary_key
        named = [name for name in names if name in given]
        if not named:
            return
        other = check_key(self._spec, tuple([given.get(name, part) for name, part in zip(names, key, strict=True)]))
        for name, part, wanted in zip(names, other, key, strict=True):
            if part != wanted:
                reason = f"is {part!r}, in the key {wanted!r}; leave the key out of the values"
                raise InvalidFieldError(self._spec.name, name, reason)

    def as_read(self, key: Hashable, payload: object) -> object:
        row = cast("Mapping[str, Value]", payload)
        if self._rounds:
            row = check_row(self._spec, row)
        return Row(self._shape, tuple([row.get(name) for name in self._shape.columns]))

    def is_retriable(self, kind: Kind, error: BaseException) -> bool:
        if isinstance(error, StorageUnavailableError):
            return not error.lasting
        return isinstance(error, TransactionConflictError)

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self._closed = True
        self._threads.close()

    def get(self, key: Hashable) -> Awaitable[object]:
        return self._threads.call(self._table.read, self.for_store(key))

    def get_many(self, keys: list[Hashable]) -> Awaitable[Mapping[Hashable, object]]:
        return self._threads.call(self._rows, keys)

    def _rows(self, keys: list[Hashable]) -> Mapping[Hashable, object]:
        rows = self._table.multi_read([self.for_store(key) for key in keys])
        found: dict[Hashable, object] = {row.key: row for row in rows}
        for names in {key.names for key in keys if isinstance(key, _NamedKey)}:
            by_name = {tuple([row[name] for name in names]): row for row in rows}
            found.update({key: by_name[key] for key in keys if isinstance(key, _NamedKey) and key in by_name})
        return found

    def write(self, kind: Kind, pairs: Sequence[tuple[Hashable, object]]) -> Awaitable[object]:
        name = "replace" if kind == "put" else kind
        given = [self.for_store(key) for key, _ in pairs] if kind == "delete" else [row for _, row in pairs]
        if len(given) == 1:
            return self._threads.call(getattr(self._table, name), given[0])
        return self._threads.call(getattr(self._table, f"{name}_many"), given)

    def update(self, key: Hashable, update: Update) -> Awaitable[object]:
        return self._threads.call(self._table.update, update.changes, update.default)

    def update_many(self, pairs: list[tuple[Hashable, Update]]) -> Awaitable[Iterable[Hashable]]:
        messages = [UpdateMessage(cast("Mapping[str, Value]", one.changes), one.default) for _, one in pairs]  # type: ignore[arg-type]
        return self._threads.call(self._table.update_many, messages)

    def put_default(self, key: Hashable, default: object) -> Awaitable[object]:
        raise NotImplementedError("an update puts its default itself")

    @staticmethod
    def for_store(key: Hashable) -> Key | dict[str, Value]:
        """Return a checked key as the store takes it."""
        return key.by_name if isinstance(key, _NamedKey) else cast("Key", key)

    def call(self, verb: str, *arguments: object, **options: object) -> Awaitable[Any]:
        """Call a method of the table."""
        return self._threads.call(lambda: getattr(self._table, verb)(*arguments, **options))

    def run(self, function: Callable[[], Result]) -> Awaitable[Result]:
        """Run a function in a thread of the table."""
        return self._threads.call(function)

    async def run_last(self, function: Callable[[], None]) -> None:
        """Run a function in a thread of the table, or here once they have ended."""
        if self._closed:
            function()
        else:
            await self._threads.call(function)

    def look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._looking is None and now - self._looked >= _PAUSE:
            self._looked = now
            looking = self._looking = self._threads.call(lambda: self._table.specification)
            looking.attend(self._looked_at)

    def _looked_at(self, spec: TableSpecification, error: BaseException | None) -> None:
        self._looking = None
        # A table that is gone, or has no key any more, refuses the calls themselves.
        if error is None and not spec.keyless:
            self._learn(spec)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, InvalidFieldError):
            self.look()
