"""Repositories of namespaces, and which of their entities are synchronised."""

from __future__ import annotations

import datetime as dt

from structable.datasets.identifiers import check_names
from structable.datasets.records import Page
from structable.datasets.tables.platform import REPOSITORIES, SYNC_STATES, Repository, Side, SyncState
from structable.spi import Range, col

from .context import Dataset
from .newest import newest_first


class SourceControl(Dataset):
    """The datasets `repositories` and `sync_states`."""

    def set_repository(self, namespace: str, *, config: object, at: dt.datetime | None = None) -> Repository:
        """Store the repository of a namespace, replacing the previous one.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        """
        made = Repository(namespace=namespace, config=config, updated=self._context.now(at))
        self._context.member_of(namespace)
        self._context.records(REPOSITORIES).put(made)
        return made

    def repository(self, namespace: str) -> Repository | None:
        """Return the repository of a namespace, or None."""
        return self._context.records(REPOSITORIES).get(namespace)

    def delete_repository(self, namespace: str) -> None:
        """Forget the repository and all states of a namespace."""
        self._context.records(REPOSITORIES).delete(namespace)
        self._context.records(SYNC_STATES).delete_all(Range.prefix((namespace,)))

    def write(
        self,
        namespace: str,
        side: Side,
        kind: str,
        name: str,
        *,
        hash: str | None = None,  # noqa: A002 - the field's name
        commit: str | None = None,
        modified: dt.datetime | None = None,
        synced: bool = False,
    ) -> SyncState:
        """Store the state of an entity on one side, replacing the previous one.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        """
        check_names(kind=kind, name=name)
        made = SyncState(
            namespace=namespace,
            side=Side(side),
            kind=kind,
            name=name,
            hash=hash,
            commit=commit,
            modified=self._context.now(modified),
            synced=synced,
        )
        self._context.member_of(namespace)
        self._context.records(SYNC_STATES).put(made)
        return made

    def get(self, namespace: str, side: Side, kind: str, name: str) -> SyncState | None:
        """Return the state of an entity on one side, or None."""
        return self._context.records(SYNC_STATES).get(namespace, Side(side), kind, name)

    def mark_unsynced(self, namespace: str) -> int:
        """Mark every entity of a namespace, on both sides, as not synchronised, and return how many were."""
        states = self._context.records(SYNC_STATES).table
        return states.update_all(Range.prefix((namespace,)), {"synced": False}, col("synced") == True)  # noqa: E712

    def page(
        self,
        namespace: str,
        side: Side,
        synced: bool | None = None,
        order: str = "name",
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[SyncState]:
        """Return a page of the states of one side: all, only synchronised, or only unsynchronised ones.

        Parameters
        ----------
        order : str
            "name": by kind and name. "modified": the one changed last first; one that changes between two pages moves
            to the front, and is not given again.

        Raises
        ------
        InvalidCursorError
            If the cursor is garbled, or belongs to another listing.
        ValueError
            If the order is another text.
        """
        prefix = (namespace, Side(side))
        where = None if synced is None else col("synced") == synced
        states = self._context.records(SYNC_STATES)
        if order == "name":
            return states.page(Range.prefix(prefix), cursor=cursor, limit=limit, where=where)
        if order != "modified":
            raise ValueError(f"order {order!r}: it must be 'name' or 'modified'")
        return newest_first(states, prefix, "modified", where, cursor, limit)
