"""The tables of namespaces, and of their preferences by scope, configurations and compute profiles."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable


class Namespace(Record):
    """A namespace, which holds applications, artifacts and secrets."""

    namespace: str
    description: str | None = None
    config: dict[str, object] = {}
    generation: int
    created: dt.datetime
    updated: dt.datetime


class StoredPreferences(Record):
    """The preferences of a scope; fields below its level are empty texts. Deleted ones keep their row."""

    namespace: str
    application: str
    program_type: str
    program: str
    properties: dict[str, object] | None = None
    seq: int


class Config(Record):
    """A named configuration of a kind."""

    namespace: str
    kind: str
    name: str
    properties: dict[str, object] = {}
    updated: dt.datetime


class ProfileStatus(enum.StrEnum):
    """Whether a profile may be assigned and used."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"


class Profile(Record):
    """A compute profile: how the clusters of runs are provisioned."""

    namespace: str
    profile: str
    provisioner: Annotated[object, Json] | None = None
    status: ProfileStatus
    created: dt.datetime


class ProfileAssignment(Record):
    """An entity that a profile is assigned to."""

    namespace: str
    profile: str
    entity: str
    created: dt.datetime


NAMESPACES = RecordTable(Namespace, "namespaces", key=("namespace",))
PREFERENCES = RecordTable(StoredPreferences, "preferences", key=("namespace", "application", "program_type", "program"))
CONFIGS = RecordTable(Config, "configs", key=("namespace", "kind", "name"))
PROFILES = RecordTable(Profile, "profiles", key=("namespace", "profile"))
PROFILE_ASSIGNMENTS = RecordTable(ProfileAssignment, "profile_assignments", key=("namespace", "profile", "entity"))

TABLES = (NAMESPACES, PREFERENCES, CONFIGS, PROFILES, PROFILE_ASSIGNMENTS)
