"""Namespaces: created, changed by generation, deleted when empty."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from structable.datasets.errors import NotEmptyError, StaleGenerationError
from structable.datasets.identifiers import check_namespace_name
from structable.datasets.records import Page, Records, RecordTable
from structable.datasets.tables.applications import APPLICATIONS
from structable.datasets.tables.artifacts import ARTIFACTS
from structable.datasets.tables.catalog import DATASET_INSTANCES
from structable.datasets.tables.namespaces import NAMESPACES, PROFILES, Namespace
from structable.datasets.tables.schedules import SCHEDULES
from structable.datasets.tables.secrets import SECRETS
from structable.spi import Range

from .context import Dataset

_MEMBERS: tuple[RecordTable[Any], ...] = (APPLICATIONS, ARTIFACTS, SECRETS, PROFILES, SCHEDULES, DATASET_INSTANCES)


class Namespaces(Dataset):
    """The dataset `namespaces`. Deleting one holds the fence `ns/NAME` exclusively; each new member shares it."""

    @property
    def _namespaces(self) -> Records[Namespace]:
        return self._context.records(NAMESPACES)

    def create(
        self,
        name: str,
        *,
        description: str | None = None,
        config: Mapping[str, object] | None = None,
        at: dt.datetime | None = None,
    ) -> Namespace:
        """Create a namespace of generation 1.

        Raises
        ------
        AlreadyExistsError
            If it exists.
        ValueError
            If the name is not `[a-z0-9][a-z0-9_-]{0,62}`.
        """
        now = self._context.now(at)
        created = Namespace(
            namespace=check_namespace_name(name),
            description=description,
            config=dict(config or {}),
            generation=1,
            created=now,
            updated=now,
        )
        self._namespaces.insert(created)
        return created

    def get(self, name: str) -> Namespace | None:
        """Return the namespace, or None."""
        return self._namespaces.get(name)

    def require(self, name: str) -> Namespace:
        """Return the namespace, or raise `NotFoundError`."""
        return self._namespaces.require(name)

    def page(self, *, cursor: str | None = None, limit: int = 100) -> Page[Namespace]:
        """Return a page of the namespaces, by name."""
        return self._namespaces.page(cursor=cursor, limit=limit)

    def change(
        self,
        name: str,
        *,
        generation: int | None = None,
        at: dt.datetime | None = None,
        **changes: object,
    ) -> Namespace:
        """Change `description` or `config`, and return the namespace with the next generation.

        Parameters
        ----------
        generation : int, optional
            The generation that the caller has read.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        StaleGenerationError
            If its generation differs from the given one.
        TypeError
            If another field is named.
        """
        unknown = changes.keys() - {"description", "config"}
        if unknown:
            raise TypeError(f"a namespace's description and config can be changed, not {', '.join(sorted(unknown))}")
        before = self._namespaces.require(name)
        if generation is not None and generation != before.generation:
            raise StaleGenerationError(generation, before.generation)
        self._namespaces.change((name,), **changes, generation=before.generation + 1, updated=self._context.now(at))
        return self._namespaces.require(name)

    def delete(self, name: str) -> None:
        """Delete a namespace without members: applications, artifacts, secrets, profiles, schedules, datasets.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        NotEmptyError
            If it has members; their numbers are in `counts`, by dataset.
        """
        self._namespaces.require(name)
        self._context.no_member_of(name)
        within = [Range.prefix((name,))]
        counts = {table.name: self._context.records(table).count(within) for table in _MEMBERS}
        if any(counts.values()):
            raise NotEmptyError({dataset: count for dataset, count in counts.items() if count})
        self._namespaces.delete(name)
