"""The tables of artifacts, of the plugins that they bring, and of the application classes in them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable

__all__ = [
    "APPLICATION_CLASSES",
    "ARTIFACTS",
    "PLUGINS",
    "TABLES",
    "ApplicationClass",
    "Artifact",
    "Plugin",
]


class Artifact(Record):
    """A version of an artifact; `version_order` is a text whose order is that of versions."""

    namespace: str
    artifact: str
    version_order: str
    version: str
    detail: Annotated[object, Json] | None = None
    parents: Annotated[object, Json] | None = None
    created: dt.datetime


class Plugin(Record):
    """A plugin that a version of an artifact brings, for the versions of a parent artifact between two bounds.

    The bounds are texts as `version_order`; None is open. The parent "*" stands for every artifact.
    """

    parent_namespace: str
    parent: str
    type: str
    plugin: str
    namespace: str
    artifact: str
    version_order: str
    detail: Annotated[object, Json] | None = None
    low: str | None = None
    low_inclusive: bool | None = None
    high: str | None = None
    high_inclusive: bool | None = None


class ApplicationClass(Record):
    """An application class that a version of an artifact brings."""

    namespace: str
    class_name: str
    artifact_namespace: str
    artifact: str
    version_order: str
    detail: Annotated[object, Json] | None = None


ARTIFACTS = RecordTable(Artifact, "artifacts", key=("namespace", "artifact", "version_order"))
PLUGINS = RecordTable(
    Plugin,
    "plugins",
    key=("parent_namespace", "parent", "type", "plugin", "namespace", "artifact", "version_order"),
)
APPLICATION_CLASSES = RecordTable(
    ApplicationClass,
    "application_classes",
    key=("namespace", "class_name", "artifact_namespace", "artifact", "version_order"),
)

TABLES = (ARTIFACTS, PLUGINS, APPLICATION_CLASSES)
