"""The history of the system datasets' tables: revisions that take a store of an earlier release to this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from structable.migrations import Folder, Migrator, Revision
from structable.migrations.operations import CreateTable, Operation, Operations, Run
from structable.spi import Storage

from .system_data import DEFAULT_PREFIX

__all__ = ["system_migrator"]

REVISIONS = Path(__file__).parent / "revisions"


class _PrefixedFolder(Folder):
    """The revisions, of tables whose names begin with another prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__(REVISIONS)
        self._prefix = prefix

    def revisions(self) -> list[Revision]:
        return [replace(one, operations=self._renamed(one.operations)) for one in super().revisions()]

    def _renamed(self, operations: Operations) -> Operations:
        up, contract, down = (
            tuple(map(self._of_prefix, part)) for part in (operations.up, operations.contract, operations.down)
        )
        return Operations(up, contract, down, operations.reversible)

    def _of_prefix(self, operation: Operation) -> Operation:
        if isinstance(operation, Run):
            return operation
        name = self._prefix + operation.table.removeprefix(DEFAULT_PREFIX)
        if isinstance(operation, CreateTable):
            return CreateTable(operation.specification.evolve(name=name))
        return replace(operation, table=name)


def system_migrator(storage: Storage, prefix: str = DEFAULT_PREFIX) -> Migrator:
    """Return the migrator of the system datasets; its state has its own tables, apart from other folders' state."""
    return Migrator(storage, _PrefixedFolder(prefix), prefix=f"structable_{prefix}")
