"""The tables of sealed values: secrets, owners with their keytabs, and credentials."""

from __future__ import annotations

import datetime as dt

from structable.datasets.records import Record, RecordTable


class _SealedRecord(Record):
    """A record with a sealed value, which its `repr` hides."""

    def __repr__(self) -> str:
        return f"<sealed {type(self).__name__}>"


class Secret(Record):
    """The metadata of a secret, without its value; `version` counts its values from 1."""

    namespace: str
    secret: str
    version: int
    description: str | None = None
    properties: dict[str, object] = {}
    created: dt.datetime
    updated: dt.datetime


class SecretValue(_SealedRecord):
    """The sealed value of a secret."""

    namespace: str
    secret: str
    version: int
    key_id: str
    wrapped: bytes
    nonce: bytes
    data: bytes


class Owner(_SealedRecord):
    """The principal that owns an entity, with its sealed keytab; without one the sealed fields are None."""

    entity: str
    principal: str
    key_id: str | None = None
    wrapped: bytes | None = None
    nonce: bytes | None = None
    keytab: bytes | None = None
    created: dt.datetime


class CredentialProfile(_SealedRecord):
    """A profile by which a provisioner gives credentials; its properties are sealed."""

    namespace: str
    profile: str
    provisioner: str
    description: str | None = None
    key_id: str
    wrapped: bytes
    nonce: bytes
    data: bytes


class CredentialIdentity(_SealedRecord):
    """An identity of a credential profile, `namespace/profile`; its properties are sealed."""

    namespace: str
    identity: str
    profile: str
    key_id: str
    wrapped: bytes
    nonce: bytes
    data: bytes


SECRETS = RecordTable(Secret, "secrets", key=("namespace", "secret"))
SECRET_VALUES = RecordTable(SecretValue, "secret_values", key=("namespace", "secret", "version"), indexes=("key_id",))
OWNERS = RecordTable(Owner, "owners", key=("entity",), indexes=("key_id",))
CREDENTIAL_PROFILES = RecordTable(
    CredentialProfile, "credential_profiles", key=("namespace", "profile"), indexes=("key_id",)
)
CREDENTIAL_IDENTITIES = RecordTable(
    CredentialIdentity, "credential_identities", key=("namespace", "identity"), indexes=("profile", "key_id")
)

TABLES = (SECRETS, SECRET_VALUES, OWNERS, CREDENTIAL_PROFILES, CREDENTIAL_IDENTITIES)
