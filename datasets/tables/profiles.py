"""The tables of compute profiles and of the entities that they are assigned to."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable

__all__ = ["PROFILES", "PROFILE_ASSIGNMENTS", "TABLES", "Profile", "ProfileAssignment", "ProfileStatus"]


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


PROFILES = RecordTable(Profile, "profiles", key=("namespace", "profile"))
PROFILE_ASSIGNMENTS = RecordTable(ProfileAssignment, "profile_assignments", key=("namespace", "profile", "entity"))

TABLES = (PROFILES, PROFILE_ASSIGNMENTS)
