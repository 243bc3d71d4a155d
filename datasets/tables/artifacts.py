"""The tables of artifacts, of the plugins that they bring, and of the application classes in them."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Annotated

from structable.datasets.records import Json, Record, RecordTable


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactRange:
    """Versions of a parent artifact; None leaves an end open. The artifact "*" stands for all of the namespace."""

    namespace: str
    artifact: str
    low: str | None = None
    high: str | None = None
    low_inclusive: bool = True
    high_inclusive: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ProvidedPlugin:
    """A plugin that an artifact brings; `detail` is a document."""

    type: str
    plugin: str
    detail: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class ProvidedClass:
    """An application class that an artifact brings; `detail` is a document."""

    class_name: str
    detail: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactDetail:
    """The description of an artifact, with its plugins and classes."""

    properties: dict[str, str] = dataclasses.field(default_factory=dict)
    plugins: tuple[ProvidedPlugin, ...] = ()
    application_classes: tuple[ProvidedClass, ...] = ()


class Artifact(Record):
    """A version of an artifact; the texts `version_order` are in the order of versions."""

    namespace: str
    artifact: str
    version_order: str
    version: str
    detail: ArtifactDetail = ArtifactDetail()
    parents: tuple[ArtifactRange, ...] = ()
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
