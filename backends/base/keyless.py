"""`KeylessTable`: the operations that tables without a key do not have, refused the same in every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from structable.spi import Filter, Key, Range, Row, StructuredTable, UpdateMessage, Value
from structable.spi.rules.keyless import keyless_refusal

__all__ = ["KeylessTable"]


class KeylessTable(StructuredTable):
    """Mixed into a store's table, before it."""

    __slots__ = ()

    def _refuse(self, operation: str) -> NoReturn:
        raise keyless_refusal(self.specification, operation)

    def read(self, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        self._refuse("read")

    def multi_read(self, keys: Iterable[Key], columns: Iterable[str] | None = None) -> list[Row]:
        self._refuse("multi_read")

    def upsert(self, row: Mapping[str, Value]) -> None:
        self._refuse("upsert")

    def upsert_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._refuse("upsert_many")

    def replace(self, row: Mapping[str, Value]) -> None:
        self._refuse("replace")

    def replace_many(self, rows: Iterable[Mapping[str, Value]]) -> None:
        self._refuse("replace_many")

    def update(self, row: Mapping[str, Value], default: Mapping[str, Value] | None = None) -> None:
        self._refuse("update")

    def update_many(
        self, updates: Iterable[Mapping[str, Value] | UpdateMessage], default: Mapping[str, Value] | None = None
    ) -> list[tuple[Value, ...]]:
        self._refuse("update_many")

    def compare_and_swap(self, key: Key, field: str, expected: Value, value: Value) -> bool:
        self._refuse("compare_and_swap")

    def increment(self, key: Key, field: str, amount: int = 1) -> None:
        self._refuse("increment")

    def increment_many(self, increments: Iterable[tuple[Key, str, int]]) -> None:
        self._refuse("increment_many")

    def delete(self, key: Key) -> None:
        self._refuse("delete")

    def delete_many(self, keys: Iterable[Key]) -> None:
        self._refuse("delete_many")

    def update_all(self, range: Range, changes: Mapping[str, Value], where: Filter | None = None) -> int:
        self._refuse("update_all")

    def delete_all(self, range: Range, where: Filter | None = None) -> int:
        if self.specification.table_options.append_only:
            self._refuse("delete_all")
        return super().delete_all(range, where)  # type: ignore[safe-super]  # the store's own
