"""Artifacts: their versions, the plugins that they provide for other artifacts, and their application classes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from structable.datasets.errors import AlreadyExistsError, NotFoundError
from structable.datasets.identifiers import check_name, check_names, check_namespace_name, version_order
from structable.datasets.records import Page, Records
from structable.datasets.tables.artifacts import (
    APPLICATION_CLASSES,
    ARTIFACTS,
    PLUGINS,
    ApplicationClass,
    Artifact,
    ArtifactDetail,
    ArtifactRange,
    Plugin,
    ProvidedClass,
    ProvidedPlugin,
)
from structable.spi import Filter, Range, col

from .context import Dataset

EVERY_ARTIFACT = "*"


class Artifacts(Dataset):
    """The datasets `artifacts`, `plugins` and `application_classes`.

    Versions are compared as `version_order` says. A version whose name ends in `-SNAPSHOT` may be added again: the
    new one replaces it with its plugins and classes.
    """

    def add(
        self,
        namespace: str,
        artifact: str,
        version: str,
        *,
        parents: Iterable[ArtifactRange] = (),
        plugins: Iterable[ProvidedPlugin] = (),
        application_classes: Iterable[ProvidedClass] = (),
        properties: Mapping[str, str] | None = None,
        at: dt.datetime | None = None,
    ) -> Artifact:
        """Add a version of an artifact, with the plugins and application classes that it brings.

        Parameters
        ----------
        parents : iterable of ArtifactRange
            The artifacts that the plugins are for. Without any, the plugins are for all artifacts of the namespace, or,
            from the namespace `system`, for every artifact.

        Raises
        ------
        AlreadyExistsError
            If the version exists, and is not a `-SNAPSHOT`.
        NotFoundError
            If there is no such namespace.
        ValueError
            If a name or a version is invalid, a range of versions ends before it begins, or a parent, plugin or class
            is given twice.
        """
        made = Artifact(
            namespace=namespace,
            artifact=check_name(artifact, "artifact"),
            version_order=version_order(version),
            version=version,
            detail=ArtifactDetail(dict(properties or {}), tuple(plugins), tuple(application_classes)),
            parents=tuple(parents),
            created=self._context.now(at),
        )
        plugin_rows, class_rows = _plugins(made), _classes(made)
        self._context.check(ARTIFACTS, [made])
        self._context.check(PLUGINS, plugin_rows)
        self._context.check(APPLICATION_CLASSES, class_rows)
        before = self.get(namespace, artifact, version)
        if before is not None:
            if not version.endswith("-SNAPSHOT"):
                raise AlreadyExistsError(
                    self._artifacts.table.specification.name, (namespace, artifact, made.version_order)
                )
            self._take_back(before)
        self._context.member_of(namespace)
        self._artifacts.put(made)
        self._plugins.put_many(plugin_rows)
        self._classes.put_many(class_rows)
        return made

    def get(self, namespace: str, artifact: str, version: str) -> Artifact | None:
        """Return a version, or None."""
        return self._artifacts.get(namespace, artifact, version_order(version))

    def versions(
        self,
        namespace: str,
        artifact: str,
        low: str | None = None,
        high: str | None = None,
        reverse: bool = False,
    ) -> list[Artifact]:
        """Return the versions of `low <= version < high`, the lowest first, or with `reverse` the highest."""
        with self._artifacts.scan(_between(namespace, artifact, low, high), reverse=reverse) as found:
            return list(found)

    def latest(self, namespace: str, artifact: str) -> Artifact | None:
        """Return the highest version, or None if there is none."""
        with self._artifacts.scan(Range.prefix((namespace, artifact)), reverse=True, limit=1) as found:
            return next(iter(found), None)

    def page(self, namespace: str, *, cursor: str | None = None, limit: int = 100) -> Page[Artifact]:
        """Return a page of a namespace's artifacts, by name and version."""
        return self._artifacts.page(Range.prefix((namespace,)), cursor=cursor, limit=limit)

    def plugins_of(
        self,
        namespace: str,
        parent: str,
        parent_version: str,
        type: str | None = None,  # noqa: A002 - the field's name
        plugin: str | None = None,
    ) -> list[Plugin]:
        """Return the plugins for a version of an artifact, by type, name, and the artifact that brings them.

        A plugin may come from several artifacts and versions. If one is declared both for this artifact and for every
        artifact, it is returned twice.

        Parameters
        ----------
        type, plugin : str, optional
            Only plugins of this type, and of this name.
        """
        order = version_order(parent_version)
        fits = _fits(order)
        if plugin is not None and type is None:
            fits = fits & (col("plugin") == plugin)
        within = tuple(name for name in (type, plugin if type is not None else None) if name is not None)
        artifacts = dict.fromkeys([(namespace, parent), (namespace, EVERY_ARTIFACT), ("system", EVERY_ARTIFACT)])
        found: list[Plugin] = []
        for artifact in artifacts:
            with self._plugins.scan(Range.prefix((*artifact, *within)), where=fits) as some:
                found += some
        return sorted(found, key=lambda one: (one.type, one.plugin, one.namespace, one.artifact, one.version_order))

    def applications_of(self, namespace: str, class_name: str) -> list[ApplicationClass]:
        """Return the versions of artifacts that bring an application class, in key order."""
        with self._classes.scan(Range.prefix((namespace, class_name))) as found:
            return list(found)

    def set_properties(self, namespace: str, artifact: str, version: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of a version.

        Raises
        ------
        NotFoundError
            If there is no such version.
        """
        key = (namespace, artifact, version_order(version))
        before = self._artifacts.require(*key)
        detail = ArtifactDetail(dict(properties), before.detail.plugins, before.detail.application_classes)
        self._artifacts.change(key, detail=detail)

    def delete(self, namespace: str, artifact: str, version: str) -> None:
        """Delete a version, with the plugins and application classes that it brought.

        Raises
        ------
        NotFoundError
            If there is no such version.
        """
        before = self.get(namespace, artifact, version)
        if before is None:
            raise NotFoundError(self._artifacts.table.specification.name, (namespace, artifact, version))
        self._take_back(before)
        self._artifacts.delete(namespace, artifact, before.version_order)

    def _take_back(self, artifact: Artifact) -> None:
        for rows, brought in ((self._plugins, _plugins(artifact)), (self._classes, _classes(artifact))):
            key = rows.table.specification.primary_key
            rows.table.delete_many([tuple(getattr(one, name) for name in key) for one in brought])

    @property
    def _artifacts(self) -> Records[Artifact]:
        return self._context.records(ARTIFACTS)

    @property
    def _plugins(self) -> Records[Plugin]:
        return self._context.records(PLUGINS)

    @property
    def _classes(self) -> Records[ApplicationClass]:
        return self._context.records(APPLICATION_CLASSES)


def _between(namespace: str, artifact: str, low: str | None, high: str | None) -> Range:
    prefix = (namespace, artifact)
    return Range(
        prefix if low is None else (*prefix, version_order(low)),
        prefix if high is None else (*prefix, version_order(high)),
        end_inclusive=high is None,
    )


def _fits(order: str) -> Filter:
    low, high = col("low"), col("high")
    above = low.is_null() | (low < order) | ((low == order) & (col("low_inclusive") == True))  # noqa: E712 - a filter
    below = high.is_null() | (high > order) | ((high == order) & (col("high_inclusive") == True))  # noqa: E712 - a filter
    return above & below


def _plugins(artifact: Artifact) -> list[Plugin]:
    """Return a row for each plugin and parent."""
    parents = artifact.parents or (ArtifactRange(artifact.namespace, EVERY_ARTIFACT),)
    plugins = artifact.detail.plugins
    for parent in parents:
        check_namespace_name(parent.namespace)
        check_name(parent.artifact, "parent")
    for plugin in plugins:
        check_names(type=plugin.type, plugin=plugin.plugin)
    _refuse_twice("parent", [(parent.namespace, parent.artifact) for parent in parents])
    _refuse_twice("plugin", [(plugin.type, plugin.plugin) for plugin in plugins])
    return [_plugin(artifact, parent, plugin) for parent in parents for plugin in plugins]


def _refuse_twice(what: str, names: list[tuple[str, ...]]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} {'/'.join(name)} is given twice")


def _plugin(artifact: Artifact, parent: ArtifactRange, plugin: ProvidedPlugin) -> Plugin:
    low = None if parent.low is None else version_order(parent.low)
    high = None if parent.high is None else version_order(parent.high)
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"the range of versions from {parent.low} to {parent.high} of {parent.namespace}/{parent.artifact} is empty"
        )
    return Plugin(
        parent_namespace=parent.namespace,
        parent=parent.artifact,
        type=plugin.type,
        plugin=plugin.plugin,
        namespace=artifact.namespace,
        artifact=artifact.artifact,
        version_order=artifact.version_order,
        detail=plugin.detail,
        low=low,
        low_inclusive=parent.low_inclusive,
        high=high,
        high_inclusive=parent.high_inclusive,
    )


def _classes(artifact: Artifact) -> list[ApplicationClass]:
    classes = artifact.detail.application_classes
    _refuse_twice("application class", [(one.class_name,) for one in classes])
    return [
        ApplicationClass(
            namespace=artifact.namespace,
            class_name=check_name(one.class_name, "class_name"),
            artifact_namespace=artifact.namespace,
            artifact=artifact.artifact,
            version_order=artifact.version_order,
            detail=one.detail,
        )
        for one in classes
    ]
