"""Invariants of artifacts and of the lineage of fields."""

from __future__ import annotations

from typing import Final

from structable.datasets.tables.artifacts import APPLICATION_CLASSES, ARTIFACTS, PLUGINS
from structable.datasets.tables.field_lineage import (
    LINEAGE_DESTINATIONS,
    LINEAGE_ENDPOINTS,
    LINEAGE_OPERATIONS,
    LINEAGE_SUMMARIES,
)

from .rows import Rows


def plugins_are_those_of_the_artifacts(rows: Rows) -> list[str]:
    wanted = set()
    for one in rows.of(ARTIFACTS):
        parents = [(parent.namespace, parent.artifact) for parent in one.parents] or [(one.namespace, "*")]
        of_artifact = (one.namespace, one.artifact, one.version_order)
        wanted |= {
            (*parent, plugin.type, plugin.plugin, plugin.detail, *of_artifact)
            for parent in parents
            for plugin in one.detail.plugins
        }
    found = {
        (
            one.parent_namespace,
            one.parent,
            one.type,
            one.plugin,
            one.detail,
            one.namespace,
            one.artifact,
            one.version_order,
        )
        for one in rows.of(PLUGINS)
    }
    return [f"only one of both: {one}" for one in wanted ^ found]


def application_classes_are_those_of_the_artifacts(rows: Rows) -> list[str]:
    wanted = {
        (brought.class_name, brought.detail, one.namespace, one.artifact, one.version_order)
        for one in rows.of(ARTIFACTS)
        for brought in one.detail.application_classes
    }
    found = {
        (one.class_name, one.detail, one.artifact_namespace, one.artifact, one.version_order)
        for one in rows.of(APPLICATION_CLASSES)
    }
    return [f"only one of both: {one}" for one in wanted ^ found]


def field_operations_are_those_of_the_endpoints(rows: Rows) -> list[str]:
    """Check that operations, and what follows from them, are there as long as an endpoint names them."""
    used = {one.checksum for one in rows.of(LINEAGE_ENDPOINTS)}
    stored = {one.checksum for one in rows.of(LINEAGE_OPERATIONS)}
    problems = [f"only one of endpoints and operations has {one}" for one in used ^ stored]
    destinations = {one.checksum for one in rows.of(LINEAGE_DESTINATIONS)}
    problems += [f"only one of operations and destinations has {one}" for one in stored ^ destinations]
    summaries = {one.checksum for one in rows.of(LINEAGE_SUMMARIES)}
    return problems + [f"only one of operations and summaries has {one}" for one in stored ^ summaries]


INVARIANTS: Final = (
    plugins_are_those_of_the_artifacts,
    application_classes_are_those_of_the_artifacts,
    field_operations_are_those_of_the_endpoints,
)
