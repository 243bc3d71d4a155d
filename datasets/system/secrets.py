"""`Secrets`: sealed values and their versions; `rewrap` moves sealed values to the current master key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from structable.datasets.errors import NotFoundError, StaleGenerationError
from structable.datasets.identifiers import check_name
from structable.datasets.records import Page, Records
from structable.datasets.secrets.envelope import Sealed, current_key, open_sealed, rewrapped, seal
from structable.datasets.tables.secrets import SECRET_VALUES, SECRETS, Secret, SecretValue
from structable.spi import Range, col

from .context import Context, Dataset


class Secrets(Dataset):
    """The dataset `secrets`: each secret has the sealed value of its latest version."""

    @property
    def _secrets(self) -> Records[Secret]:
        return self._context.records(SECRETS)

    @property
    def _values(self) -> Records[SecretValue]:
        return self._context.records(SECRET_VALUES)

    def put(
        self,
        namespace: str,
        secret: str,
        value: bytes,
        *,
        version: int | None = None,
        description: str | None = None,
        properties: Mapping[str, object] | None = None,
        at: dt.datetime | None = None,
    ) -> int:
        """Seal a value, delete the older one, and return the new version.

        Parameters
        ----------
        version : int, optional
            The version that the caller has read, 0 for none.
        description, properties : optional
            Unsealed data that `describe` returns; arguments that are not given stay unchanged.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        StaleGenerationError
            If the stored version differs from the given one.
        SecretError
            If there is no provider of master keys, or no key.
        """
        check_name(secret, "secret")
        now = self._context.now(at)
        self._context.member_of(namespace)
        before = self._secrets.get(namespace, secret)
        stored = 0 if before is None else before.version
        if version is not None and version != stored:
            raise StaleGenerationError(version, None if before is None else stored)
        new = stored + 1
        key = (namespace, secret, new)
        sealed = seal(self._context.keys, self._values.table.specification.name, key, value)
        if properties is None:
            properties = {} if before is None else before.properties
        kept = SecretValue(namespace=namespace, secret=secret, version=new, **sealed._asdict())
        self._context.check(SECRET_VALUES, [kept])
        self._secrets.put(
            Secret(
                namespace=namespace,
                secret=secret,
                version=new,
                description=before.description if description is None and before is not None else description,
                properties=dict(properties),
                created=now if before is None else before.created,
                updated=now,
            )
        )
        self._values.delete_all(Range.prefix((namespace, secret)))
        self._values.put(kept)
        return new

    def get(self, namespace: str, secret: str) -> bytes | None:
        """Return the latest value, or None.

        Raises
        ------
        SecretError
            If it was tampered with, or its master key is missing or another one.
        """
        described = self._secrets.get(namespace, secret)
        if described is None:
            return None
        key = (namespace, secret, described.version)
        found = self._values.require(*key)
        return open_sealed(self._context.keys, self._values.table.specification.name, key, _sealed(found))

    def require(self, namespace: str, secret: str) -> bytes:
        """Return the latest value, or raise `NotFoundError`."""
        value = self.get(namespace, secret)
        if value is None:
            raise NotFoundError(self._secrets.table.specification.name, (namespace, secret))
        return value

    def describe(self, namespace: str, secret: str) -> Secret | None:
        """Return a secret's metadata without its value, or None."""
        return self._secrets.get(namespace, secret)

    def page(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[Secret]:
        """Return a page of the secrets of a namespace, by name, without their values."""
        return self._secrets.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def delete(self, namespace: str, secret: str) -> None:
        """Delete a secret with its value.

        Raises
        ------
        NotFoundError
            If there is none.
        """
        self._secrets.require(namespace, secret)
        self._secrets.delete(namespace, secret)
        self._values.delete_all(Range.prefix((namespace, secret)))

    def rewrap(self, limit: int) -> int:
        """Wrap up to `limit` values of other master keys with the current one, and return their number.

        Raises
        ------
        SecretError
            If a value was tampered with, or a master key is missing.
        """
        return rewrap(self._context, limit, (self._values, _sealed))


def _sealed(value: SecretValue) -> Sealed:
    return Sealed(value.key_id, value.wrapped, value.nonce, value.data)


def rewrap(context: Context, limit: int, *parts: tuple[Records[Any], Callable[[Any], Sealed]]) -> int:
    """Wrap up to `limit` values of other master keys with the current one, and return their number.

    Parameters
    ----------
    *parts : tuple of records and callable
        Records with sealed values, and what returns the sealed value of one.

    Raises
    ------
    SecretError
        If a value was tampered with, or a master key is missing; nothing is written.
    """
    current, _ = current_key(context.keys)
    made: list[tuple[Records[Any], tuple[Any, ...], Sealed]] = []
    for records, sealed in parts:
        spec = records.table.specification
        # Two ranges of the index; one inequality would read every row.
        for other in (col("key_id") < current, col("key_id") > current):
            with records.scan(where=other, order_by="key_id", limit=limit - len(made)) as found:
                for one in found:
                    key = tuple(getattr(one, name) for name in spec.primary_key)
                    made.append((records, key, rewrapped(context.keys, spec.name, key, sealed(one))))
    for records, key, new in made:
        records.change(key, key_id=new.key_id, wrapped=new.wrapped)
    return len(made)
