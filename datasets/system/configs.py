"""Named configurations, by kind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from structable.datasets.identifiers import check_names
from structable.datasets.records import Page
from structable.datasets.tables.preferences import CONFIGS, Config
from structable.spi import Range

from .context import Dataset

__all__ = ["Configs"]


class Configs(Dataset):
    """The dataset `configs`."""

    def put(
        self,
        namespace: str,
        kind: str,
        name: str,
        *,
        properties: Mapping[str, object],
        at: dt.datetime | None = None,
    ) -> Config:
        """Keep a configuration, in place of the one before.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        """
        check_names(kind=kind, name=name)
        made = Config(
            namespace=namespace, kind=kind, name=name, properties=dict(properties), updated=self._context.now(at)
        )
        self._context.member_of(namespace)
        self._context.records(CONFIGS).put(made)
        return made

    def get(self, namespace: str, kind: str, name: str) -> Config | None:
        """Return the configuration, or None."""
        return self._context.records(CONFIGS).get(namespace, kind, name)

    def require(self, namespace: str, kind: str, name: str) -> Config:
        """Return the configuration, or raise `NotFoundError`."""
        return self._context.records(CONFIGS).require(namespace, kind, name)

    def page(self, namespace: str, kind: str, *, cursor: str | None = None, limit: int = 100) -> Page[Config]:
        """Return a page of the configurations of a kind, by name."""
        return self._context.records(CONFIGS).page(Range.prefix((namespace, kind)), cursor=cursor, limit=limit)

    def delete(self, namespace: str, kind: str, name: str) -> None:
        """Delete the configuration; nothing is written if there is none."""
        self._context.records(CONFIGS).delete(namespace, kind, name)
