"""`Held`, the base of leases and permits: a row that is held by its token and renewed by its beat."""

from __future__ import annotations

from structable.datasets.errors import LeaseLostError
from structable.spi import Row, Storage, Transaction

from . import fences


class Held:
    """A row that an owner holds until it is released, or taken over by a process that saw its beat stop.

    Parameters
    ----------
    storage : Storage
        The store.
    table, fences_table : str
        The names of the tables.
    key : mapping of str to value
        The key of the row.
    field : str
        The field with the owner.
    owner : str
        The owner.
    token : int
        The token of the owner.
    scope : str
        The fence that `check` shares, and takeover and release exclude.
    """

    def __init__(
        self,
        storage: Storage,
        table: str,
        fences_table: str,
        *,
        key: dict[str, str | int],
        field: str,
        owner: str,
        token: int,
        scope: str,
    ) -> None:
        self.token = token
        self._storage = storage
        self._table = table
        self._fences = fences_table
        self._key = key
        self._field = field
        self._owner = owner
        self._scope = scope

    @property
    def _name(self) -> str:
        return "/".join(str(part) for part in self._key.values())

    def renew(self) -> None:
        """Show other processes that the owner is alive; a transaction of its own.

        Raises
        ------
        LeaseLostError
            If it has another owner, or none.
        """

        def beat(tx: Transaction) -> None:
            row = self._mine(tx)
            if row is None:
                raise LeaseLostError(self._name)
            count = row["beat"]
            assert isinstance(count, int)
            tx.table(self._table).update({**self._key, "beat": count + 1})

        self._storage.run(beat)

    def release(self) -> None:
        """Let others acquire it at once; a transaction of its own. Does nothing if it was lost or released."""

        def free(tx: Transaction) -> None:
            if self._mine(tx) is not None:
                fences.exclude(tx, self._fences, self._scope)
                tx.table(self._table).update({**self._key, self._field: None})
                self._freed(tx)

        self._storage.run(free)

    def _freed(self, tx: Transaction) -> None:
        """Take part in the transaction that releases it."""

    def check(self, tx: Transaction) -> None:
        """Let the transaction commit only if the lease is still held at the commit.

        A takeover or a release that commits first makes the transaction end in a conflict.

        Raises
        ------
        LeaseLostError
            If it has another owner, or none.
        """
        fences.share(tx, self._fences, self._scope)
        if self._mine(tx) is None:
            raise LeaseLostError(self._name)

    def _mine(self, tx: Transaction) -> Row | None:
        row = tx.table(self._table).read(tuple(self._key.values()))
        held = row is not None and row["token"] == self.token and row[self._field] is not None
        return row if held else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {self._owner!r}, token={self.token})"
