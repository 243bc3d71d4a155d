"""Preferences by scope: of the instance, a namespace, an application, a program; and named configurations."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping

from structable.datasets.errors import StaleGenerationError
from structable.datasets.identifiers import check_name, check_names
from structable.datasets.records import Page, Records
from structable.datasets.tables.namespaces import CONFIGS, PREFERENCES, Config, StoredPreferences
from structable.spi import Range

from .context import Dataset

LEVELS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of one scope.

    Parameters
    ----------
    properties : dict
        Empty if none were put, or they were deleted.
    seq : int
        Counts the changes of the scope; 0 if there was none.
    """

    properties: dict[str, object]
    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """The preferences that hold at a scope: its own, and those inherited from the scopes above.

    Parameters
    ----------
    properties : dict
        If two scopes name a key, the nearer one counts.
    seq : int
        The largest of the scopes; it never goes back.
    """

    properties: dict[str, object]
    seq: int


class PreferenceSets(Dataset):
    """The dataset `preferences`.

    A scope is a tuple of leading names of (namespace, application, program type, program); `()` is the instance.
    """

    def get(self, scope: tuple[str, ...]) -> Preferences:
        """Return the preferences of the scope alone."""
        found = self._records.get(*_key(scope))
        return Preferences({}, 0) if found is None else Preferences(found.properties or {}, found.seq)

    def put(self, scope: tuple[str, ...], properties: Mapping[str, object], *, seq: int | None = None) -> int:
        """Replace the preferences of the scope, and return its new seq.

        Raises
        ------
        StaleGenerationError
            If `seq` is given, and is not the scope's.
        NotFoundError
            If there is no such namespace.
        """
        return self._change(scope, dict(properties), seq)

    def delete(self, scope: tuple[str, ...]) -> int:
        """Delete the preferences of the scope, and return its new seq, so that a resolved seq never goes back."""
        return self._change(scope, None, None)

    def resolve(self, scope: tuple[str, ...]) -> Resolved:
        """Return the preferences that hold at the scope, by one read of all its levels."""
        keys = [_key(scope[:length]) for length in range(len(_checked(scope)) + 1)]
        # In key order the empty names of the levels above come first.
        found = self._records.get_many(keys)
        properties: dict[str, object] = {}
        for level in found:
            properties |= level.properties or {}
        return Resolved(properties, max((level.seq for level in found), default=0))

    @property
    def _records(self) -> Records[StoredPreferences]:
        return self._context.records(PREFERENCES)

    def _change(self, scope: tuple[str, ...], properties: dict[str, object] | None, seq: int | None) -> int:
        key = _key(scope)
        before = self._records.get(*key)
        stored = 0 if before is None else before.seq
        if seq is not None and seq != stored:
            raise StaleGenerationError(seq, stored)
        if scope:
            self._context.member_of(scope[0])
        if len(scope) > 1:
            self._context.share(f"app/{scope[0]}/{scope[1]}")
        namespace, application, program_type, program = key
        self._records.put(
            StoredPreferences(
                namespace=namespace,
                application=application,
                program_type=program_type,
                program=program,
                properties=properties,
                seq=stored + 1,
            )
        )
        return stored + 1


def _checked(scope: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(scope, tuple) or len(scope) > LEVELS:
        raise ValueError(f"scope {scope!r} is not a tuple of at most {LEVELS} names")
    for name in scope:
        check_name(name, "a name of the scope")
    return scope


def _key(scope: tuple[str, ...]) -> tuple[str, ...]:
    return (*_checked(scope), *[""] * (LEVELS - len(scope)))


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
        """Store a configuration, replacing the previous one.

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
