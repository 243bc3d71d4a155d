"""The tables of applications: heads, versions, history, and their state."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable

_APPLICATION = ("namespace", "application")


class Application(Record):
    """The head of an application: which version is the latest, and how many versions were ever deployed."""

    namespace: str
    application: str
    latest: str
    edits: int
    updated: dt.datetime


class ApplicationVersion(Record):
    """A version of an application, as it was deployed; `ordinal` counts the deployments from 1."""

    namespace: str
    application: str
    version: str
    spec: Annotated[object, Json]
    artifact: Annotated[object, Json] | None = None
    author: str | None = None
    summary: str | None = None
    source: Annotated[object, Json] | None = None
    ordinal: int
    created: dt.datetime


class ApplicationEdit(Record):
    """The version that a deployment made; `ordinal` counts the deployments in their order."""

    namespace: str
    application: str
    ordinal: int
    version: str


class ApplicationState(Record):
    """A value that an application keeps under a key."""

    namespace: str
    application: str
    state_key: str
    value: bytes


APPLICATIONS = RecordTable(Application, "applications", key=_APPLICATION)
APPLICATION_VERSIONS = RecordTable(ApplicationVersion, "application_versions", key=(*_APPLICATION, "version"))
APPLICATION_HISTORY = RecordTable(ApplicationEdit, "application_history", key=(*_APPLICATION, "ordinal"))
APPLICATION_STATE = RecordTable(ApplicationState, "application_state", key=(*_APPLICATION, "state_key"))

TABLES = (APPLICATIONS, APPLICATION_VERSIONS, APPLICATION_HISTORY, APPLICATION_STATE)
