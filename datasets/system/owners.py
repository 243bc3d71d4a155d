"""Owners of entities."""

from __future__ import annotations

import datetime as dt

from structable.datasets.identifiers import check_names
from structable.datasets.records import Records
from structable.datasets.secrets.envelope import Sealed, open_sealed, seal
from structable.datasets.tables.secrets import OWNERS, Owner

from .context import Dataset
from .secrets import rewrap


class Owners(Dataset):
    """The dataset `owners`. An entity is a text of levels, `namespace/application`, from the outermost."""

    @property
    def _owners(self) -> Records[Owner]:
        return self._context.records(OWNERS)

    def set(self, entity: str, principal: str, keytab: bytes | None = None, *, at: dt.datetime | None = None) -> None:
        """Set the owner of an entity, and seal the keytab.

        Raises
        ------
        AlreadyExistsError
            If it has an owner.
        SecretError
            If a keytab is given, and there is no provider of master keys, or no key.
        ValueError
            If the entity has an empty level, or a name is out of its range.
        """
        _check(entity)
        check_names(principal=principal)
        now = self._context.now(at)
        if keytab is None:
            self._owners.insert(Owner(entity=entity, principal=principal, created=now))
            return
        sealed = seal(self._context.keys, self._table, (entity,), keytab)
        self._owners.insert(
            Owner(
                entity=entity,
                principal=principal,
                key_id=sealed.key_id,
                wrapped=sealed.wrapped,
                nonce=sealed.nonce,
                keytab=sealed.data,
                created=now,
            )
        )

    def principal(self, entity: str) -> str | None:
        """Return the principal that owns exactly this entity, or None."""
        found = self._owners.get(entity)
        return None if found is None else found.principal

    def keytab(self, entity: str) -> bytes | None:
        """Return the keytab of exactly this entity's owner; None if it has none.

        Raises
        ------
        NotFoundError
            If the entity has no owner.
        SecretError
            If it was tampered with, or its master key is missing or another one.
        """
        owner = self._owners.require(entity)
        if owner.key_id is None and owner.wrapped is None and owner.nonce is None and owner.keytab is None:
            return None
        return open_sealed(self._context.keys, self._table, (entity,), _sealed(owner))

    def effective(self, entity: str) -> Owner | None:
        """Return the owner of the entity, or of its nearest ancestor that has one, or None.

        Raises
        ------
        ValueError
            If the entity has an empty level.
        """
        _check(entity)
        levels = entity.split("/")
        names = ["/".join(levels[:count]) for count in range(1, len(levels) + 1)]
        found = self._owners.get_many([(name,) for name in names])
        return max(found, key=lambda one: len(one.entity), default=None)

    def delete(self, entity: str) -> None:
        """Delete the owner of an entity, with its keytab.

        Raises
        ------
        NotFoundError
            If the entity has none.
        """
        self._owners.require(entity)
        self._owners.delete(entity)

    def rewrap(self, limit: int) -> int:
        """Wrap up to `limit` keytabs of other master keys with the current one, and return their number.

        Raises
        ------
        SecretError
            If one was tampered with, or a master key is missing.
        """
        return rewrap(self._context, limit, (self._owners, _sealed))

    @property
    def _table(self) -> str:
        return self._owners.table.specification.name


def _check(entity: str) -> None:
    check_names(entity=entity)
    if not all(entity.split("/")):
        raise ValueError(f"entity {entity!r} has an empty level")


def _sealed(owner: Owner) -> Sealed:
    # A field that is null though others are not was tampered with; the empty value does not open.
    return Sealed(owner.key_id or "", owner.wrapped or b"", owner.nonce or b"", owner.keytab or b"")
