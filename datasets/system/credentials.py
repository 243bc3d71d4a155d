"""Credential profiles and identities."""

from __future__ import annotations

from typing import TypeVar

from structable.datasets.errors import InUseError
from structable.datasets.identifiers import check_name
from structable.datasets.records import Page, Records
from structable.datasets.secrets.envelope import Sealed, open_sealed, seal
from structable.datasets.tables.secrets import (
    CREDENTIAL_IDENTITIES,
    CREDENTIAL_PROFILES,
    CredentialIdentity,
    CredentialProfile,
)
from structable.spi import Range

from .context import Dataset
from .secrets import rewrap

R = TypeVar("R", CredentialProfile, CredentialIdentity)


class Credentials(Dataset):
    """The dataset `credentials`. An identity names its profile as `namespace/profile`; the data of both are sealed.

    A new identity shares the fence `credential/NAMESPACE/PROFILE`; deleting the profile holds it exclusively.
    """

    @property
    def _profiles(self) -> Records[CredentialProfile]:
        return self._context.records(CREDENTIAL_PROFILES)

    @property
    def _identities(self) -> Records[CredentialIdentity]:
        return self._context.records(CREDENTIAL_IDENTITIES)

    def put_profile(
        self, namespace: str, profile: str, *, provisioner: str, data: bytes, description: str | None = None
    ) -> None:
        """Make or replace a profile, and seal its data.

        Raises
        ------
        NotFoundError
            If there is no such namespace.
        SecretError
            If there is no provider of master keys, or no key.
        """
        check_name(profile, "profile")
        self._context.member_of(namespace)
        sealed = self._seal(self._profiles, (namespace, profile), data)
        self._profiles.put(
            CredentialProfile(
                namespace=namespace,
                profile=profile,
                provisioner=provisioner,
                description=description,
                **sealed._asdict(),
            )
        )

    def get_profile(self, namespace: str, profile: str) -> CredentialProfile | None:
        """Return a profile, whose data are sealed, or None."""
        return self._profiles.get(namespace, profile)

    def profile_data(self, namespace: str, profile: str) -> bytes:
        """Return the data of a profile.

        Raises
        ------
        NotFoundError
            If there is no such profile.
        SecretError
            If they were tampered with, or their master key is missing or another one.
        """
        return self._opened(self._profiles, (namespace, profile))

    def page_profiles(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[CredentialProfile]:
        """Return a page of the profiles of a namespace, by name."""
        return self._profiles.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def delete_profile(self, namespace: str, profile: str) -> None:
        """Delete a profile that no identity names.

        Raises
        ------
        NotFoundError
            If there is no such profile.
        InUseError
            If an identity names it.
        """
        self._profiles.require(namespace, profile)
        name = f"{namespace}/{profile}"
        with self._identities.find("profile", name, limit=1) as found:
            for one in found:
                raise InUseError(f"credential profile {name}", f"identity {one.namespace}/{one.identity}")
        self._context.exclude(f"credential/{name}")
        self._profiles.delete(namespace, profile)

    def put_identity(self, namespace: str, identity: str, *, profile: str, data: bytes) -> None:
        """Make or replace an identity of the profile `namespace/profile`, and seal its data.

        Raises
        ------
        NotFoundError
            If there is no such namespace or profile.
        SecretError
            If there is no provider of master keys, or no key.
        """
        check_name(identity, "identity")
        self._context.member_of(namespace)
        owner, _, name = profile.partition("/")
        self._profiles.require(owner, name)
        self._context.share(f"credential/{profile}")
        sealed = self._seal(self._identities, (namespace, identity), data)
        self._identities.put(
            CredentialIdentity(namespace=namespace, identity=identity, profile=profile, **sealed._asdict())
        )

    def get_identity(self, namespace: str, identity: str) -> CredentialIdentity | None:
        """Return an identity, whose data are sealed, or None."""
        return self._identities.get(namespace, identity)

    def identity_data(self, namespace: str, identity: str) -> bytes:
        """Return the data of an identity.

        Raises
        ------
        NotFoundError
            If there is no such identity.
        SecretError
            If they were tampered with, or their master key is missing or another one.
        """
        return self._opened(self._identities, (namespace, identity))

    def page_identities(
        self, namespace: str, *, cursor: str | None = None, limit: int = 100
    ) -> Page[CredentialIdentity]:
        """Return a page of the identities of a namespace, by name."""
        return self._identities.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def delete_identity(self, namespace: str, identity: str) -> None:
        """Delete an identity.

        Raises
        ------
        NotFoundError
            If there is none.
        """
        self._identities.require(namespace, identity)
        self._identities.delete(namespace, identity)

    def rewrap(self, limit: int) -> int:
        """Wrap up to `limit` data of other master keys with the current one, and return their number.

        Raises
        ------
        SecretError
            If some were tampered with, or a master key is missing.
        """
        return rewrap(self._context, limit, (self._profiles, _sealed), (self._identities, _sealed))

    def _seal(self, records: Records[R], key: tuple[str, str], data: bytes) -> Sealed:
        return seal(self._context.keys, records.table.specification.name, key, data)

    def _opened(self, records: Records[R], key: tuple[str, str]) -> bytes:
        return open_sealed(self._context.keys, records.table.specification.name, key, _sealed(records.require(*key)))


def _sealed(record: CredentialProfile | CredentialIdentity) -> Sealed:
    return Sealed(record.key_id, record.wrapped, record.nonce, record.data)
