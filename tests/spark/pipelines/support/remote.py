"""A remote system of tests: a folder with a file for each key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from structable.access import TableReadFunction, TableWriteFunction
from structable.spi import RecordNotFoundError, Value

Key = tuple[Value, ...]
Row = Mapping[str, Value]


@dataclass
class Folder(TableReadFunction[Key, Row], TableWriteFunction[Key, Row]):
    """Reads and writes files; counts the calls of `get_many` by files of their own."""

    path: str

    def _file(self, key: Key) -> Path:
        return Path(self.path, "-".join(map(str, key)))

    async def get(self, key: Key) -> Row | None:
        file = self._file(key)
        found: Row | None = json.loads(file.read_text()) if file.exists() else None
        return found

    async def put(self, key: Key, value: Row) -> None:
        self._file(key).write_text(json.dumps(dict(value)))

    async def update(self, key: Key, changes: Mapping[str, Value]) -> None:
        row = await self.get(key)
        if row is None:
            raise RecordNotFoundError("folder", key)
        await self.put(key, {**row, **changes})

    async def delete(self, key: Key) -> None:
        self._file(key).unlink(missing_ok=True)

    def rows(self) -> dict[str, Row]:
        """Return all rows by the names of their files."""
        return {file.name: json.loads(file.read_text()) for file in sorted(Path(self.path).iterdir())}


class Broken(TableReadFunction[Key, Row]):
    """A system that does not answer."""

    async def get(self, key: Key) -> Row | None:
        raise KeyError(f"no route to {key[0]!s}")


class Deaf(TableWriteFunction[Key, Row]):
    """A system that takes nothing."""

    async def put(self, key: Key, value: Row) -> None:
        raise KeyError(f"nobody takes {key[0]!s}")

    async def delete(self, key: Key) -> None:
        raise NotImplementedError
