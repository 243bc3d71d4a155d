"""Workloads on artifacts and what they bring, and on the lineage of fields."""

from __future__ import annotations

import datetime as dt
import random

from structable.datasets import (
    ArtifactRange,
    DatasetRef,
    FieldLineage,
    FieldOperation,
    ProgramRef,
    ProvidedClass,
    ProvidedPlugin,
    SystemData,
)

from .application_workloads import new_tag

NS = "default"

# Artifacts

_ARTIFACTS = ("a0", "a1")
_VERSIONS = ("1.0", "1.10-SNAPSHOT", "2-SNAPSHOT")


def add_artifact(system: SystemData, chance: random.Random) -> None:
    artifact, version = chance.choice(_ARTIFACTS), chance.choice(_VERSIONS)
    parents = [ArtifactRange(NS, name, "1", "3") for name in chance.sample(["p0", "p1"], chance.randrange(3))]
    plugins = [ProvidedPlugin("source", name, new_tag()) for name in chance.sample(["x", "y", "z"], 2)]
    classes = [ProvidedClass(name, new_tag()) for name in chance.sample(["C", "D"], 1)]
    system.run(
        lambda s: s.artifacts.add(NS, artifact, version, parents=parents, plugins=plugins, application_classes=classes)
    )


def set_properties(system: SystemData, chance: random.Random) -> None:
    artifact, version = chance.choice(_ARTIFACTS), chance.choice(_VERSIONS)
    system.run(lambda s: s.artifacts.set_properties(NS, artifact, version, {"by": new_tag()}))


def delete_artifact(system: SystemData, chance: random.Random) -> None:
    artifact, version = chance.choice(_ARTIFACTS), chance.choice(_VERSIONS)
    system.run(lambda s: s.artifacts.delete(NS, artifact, version))


ARTIFACTS = (add_artifact, add_artifact, add_artifact, set_properties, delete_artifact)

# Field lineage

_SOURCE, _TARGET = DatasetRef(NS, "source"), DatasetRef(NS, "target")
_FIRST_DAY = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
_PROGRAM = ProgramRef(NS, "etl", "workflow", "w")


def add_lineage(system: SystemData, chance: random.Random) -> None:
    """Keep operations that other runs keep too, or that a run kept before."""
    day, field = chance.randrange(3), chance.choice(["f0", "f1"])
    run = _run(day, chance.randrange(2))
    operations = [
        FieldOperation("read", outputs=(field,), source=_SOURCE),
        FieldOperation("write", inputs=(("read", field),), destination=_TARGET),
    ]
    info = FieldLineage([_SOURCE], [_TARGET], operations)
    system.run(lambda s: s.field_lineage.add(_PROGRAM.run(run), info))


def _run(day: int, number: int) -> str:
    """Return a run id of a day, the same in all processes."""
    millis = int((_FIRST_DAY + dt.timedelta(days=day)).timestamp() * 1_000)
    return f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7000-8000-{number:012x}"


def expire_lineage(system: SystemData, chance: random.Random) -> None:
    before, limit = (_FIRST_DAY + dt.timedelta(days=chance.randrange(4))).date(), chance.choice([1, 2, 1_000])
    system.run(lambda s: s.field_lineage.expire(before, limit=limit))


FIELD_LINEAGE = (add_lineage, add_lineage, add_lineage, expire_lineage, expire_lineage)
